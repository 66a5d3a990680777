"""What the command prints of an app: golden texts, JSON that is JSON."""

from __future__ import annotations

import io
import json
import math
import time

import pytest

from submarine_client.app_list import list_text, wide_text
from submarine_client.as_json import dump
from submarine_client.colours import with_colours
from submarine_client.events import event_line
from submarine_client.job_commands import meta_info
from submarine_client.show import app_text, end_line, jobs_table, progress_line
from submarine_client.table import age, percent, seconds, table
from submarine_client.terminal import UNLIMITED, Terminal
from themis.wire import themis_pb2 as pb
from themis.wire.app_document import app_document

NOON = 1_760_011_200.0  # 2025-10-09 12:00:00 UTC


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def job(number: int, **values) -> pb.JobStatus:
    return pb.JobStatus(
        job_id=f"job-{number:02d}",
        hyper_parameters={"learning_rate": pb.Scalar(number=0.1 / (number + 1)), "hidden": pb.Scalar(integer=64)},
        **values,
    )


def app(**values) -> pb.AppStatus:
    defaults = {
        "app_id": "app-0001",
        "name": "digits",
        "user": "alice",
        "queue": "default",
        "state": "RUNNING",
        "tuner": "successive_halving",
        "program": "digits_cnn",
        "submitted_at_s": NOON,
        "progress": 0.417,
        "rho": 1.2345,
        "gpus": 2,
        "gpu_time_s": 190.0,
        "attempts": 1,
        "best": "job-01",
        "phase": 1,
        "phases": 3,
        "jobs": [
            job(0, state="STOPPED", iteration=100, target_iteration=100, loss=1.5, has_loss=True),
            job(
                1,
                state="RUNNING",
                iteration=150,
                target_iteration=200,
                loss=0.25,
                has_loss=True,
                accuracy=0.912,
                has_accuracy=True,
                gpus=2,
                iteration_s=0.0501,
                restarts=1,
            ),
        ],
        "leases": [
            pb.Lease(lease_id=1, machine_id="m00", gpu_index=0, expires_at_s=NOON + 600, state="GRANTED"),
            pb.Lease(lease_id=2, machine_id="m00", gpu_index=1, expires_at_s=NOON + 600, state="GRANTED"),
        ],
    }
    return pb.AppStatus(**{**defaults, **values})


SHOWN = """\
App:            app-0001, digits
State:          RUNNING, phase 2 of 3, 41 %
User, queue:    alice, default
Program:        digits_cnn
Tuner:          successive_halving
Submitted:      2025-10-09 12:00:00+00:00
rho:            1.23 (fluid)
Fluid:          the time to the end over the time on an ideal cluster that all apps share fairly at every moment
GPUs:           2 now, 3:10 min of GPU time in all
Best job:       job-01, accuracy 0.912, loss 0.25, hidden=64 learning_rate=0.05
Leases:         m00/0 m00/1 until 2025-10-09 12:10:00+00:00

JOB     STATE    ITERATION  LOSS  ACCURACY  GPUS  S/ITERATION  RESTARTS  HYPER-PARAMETERS
job-00  STOPPED  100/100     1.5         -     0            -         0  hidden=64 learning_rate=0.1
job-01  RUNNING  150/200    0.25     0.912     2       0.0501         1  hidden=64 learning_rate=0.05"""


def test_ended_app_shows_rho_by_definition_and_what_those_mean_that_rank_policies():
    rhos = {"themis": 1.23, "fluid": 1.5, "attainable": 0.9, "isolated_fluid": 0.7, "themis_fluid": 1.4}
    lines = app_text(app(final_rho=rhos)).splitlines()
    assert "rho at the end: fluid 1.5, isolated_fluid 0.7, themis_fluid 1.4" in lines
    assert "By schedule:    themis 1.23, attainable 0.9" in lines
    for label in ("Fluid:         ", "Isolated_fluid:", "Themis_fluid:  "):
        assert any(line.startswith(f"{label} the time to the end over") for line in lines)


def test_an_app_is_shown_with_its_best_job_leases_and_jobs() -> None:
    assert app_text(app()) == SHOWN


@pytest.mark.parametrize(("phase", "phases", "shown"), [(0, 3, 1), (2, 3, 3), (3, 3, 3), (0, 0, None)])
def test_phase_in_json_counts_from_1_to_the_last_phase(phase, phases, shown) -> None:
    document = app_document(app(phase=phase, phases=phases))
    assert (document["phase"], document["phases"]) == (shown, phases or None)


def test_an_app_on_a_cluster_with_cpu_nodes_has_devices() -> None:
    assert "Devices:        3 now" in app_text(app(gpus=3, device_noun="device"))
    assert "of device time in all" in app_text(app(device_noun="device"))
    assert "of GPU time in all" in app_text(app())


def test_lease_of_a_job_ends_with_it_and_a_waiting_job_says_why() -> None:
    lease = pb.Lease(lease_id=1, machine_id="m00", gpu_index=0, expires_at_s=NOON, state="GRANTED", job_id="job-01")
    text = app_text(app(leases=[lease], waits_for="job-02 waits for m01"))
    assert "Leases:         m00/0 until job-01 ends\nWaits:          job-02 waits for m01\n" in text


def test_waiting_app_shows_its_place_and_its_estimate() -> None:
    waiting = pb.AppWaiting(reason="no GPU is free", rank=2, of=5, ahead=["app-0007"])
    first_gpu, end = pb.Seconds(median=600, low=60, high=900), pb.Seconds(median=math.inf, low=10, high=math.inf)
    shown = app(gpus=0, gpus_unmet=4, waiting=waiting, estimate=pb.AppEstimate(first_gpu_s=first_gpu, end_s=end))
    text = app_text(shown)
    assert "GPUs:           0 now, 4 more wanted, 3:10 min of GPU time in all\n" in text
    assert "Waits:          no GPU is free (place 2 of 5)\n" in text
    assert "First GPU:      in about 10:00 min (80 %: 60.0 s to 15:00 min)\n" in text
    assert "End:            not in sight\n" in text
    document = app_document(shown)
    assert document["waiting"] == {"reason": "no GPU is free", "rank": 2, "of": 5, "ahead": ["app-0007"]}
    assert document["gpus_unmet"] == 4
    assert document["estimate"]["first_gpu_s"] == {"median": 600.0, "low": 60.0, "high": 900.0}
    assert document["estimate"]["end_s"] == {"median": None, "low": 10.0, "high": None}


def test_app_that_can_use_no_more_has_null_for_waiting_and_estimate() -> None:
    document = app_document(app())
    assert document["waiting"] is None and document["estimate"] is None


def test_an_app_that_has_only_been_submitted_shows_the_jobs_that_it_will_run() -> None:
    spec = pb.AppSpec(
        tuner=pb.TunerSpec(name="successive_halving", settings={"eta": pb.Scalar(integer=2)}),
        jobs=[pb.JobSpec(job_id="job-00", iterations_total=400, hyper_parameters={"x": pb.Scalar(number=0.5)})],
    )
    text = app_text(
        pb.AppStatus(
            app_id="a", name="n", state="SUBMITTED", tuner="successive_halving", submitted_at_s=NOON, spec=spec
        )
    )
    assert "Tuner:          successive_halving eta=2" in text
    assert "rho:            -" in text
    assert text.splitlines()[-1].split() == ["job-00", "-", "0/400", "-", "-", "-", "-", "-", "x=0.5"]


def test_lists_line_up() -> None:
    apps = [app(), app(app_id="app-0002", name="a-long-name", rho=0.0, gpus=0, progress=1.0)]
    assert list_text(apps, NOON + 7300, 80).splitlines() == [
        "APP       NAME         USER   STATE    AGE   DONE  GPUS  RHO",
        "app-0001  digits       alice  RUNNING  2h    41 %     2  1.23",
        "app-0002  a-long-name  alice  WAITING  2h   100 %     0  -",
    ]
    lines = wide_text(apps).splitlines()
    assert lines[1].index("successive") == lines[2].index("successive") == lines[0].index("TUNER")


def test_a_list_fits_80_columns_by_shorter_names() -> None:
    one = app(name="n" * 60, user="someone.with.a.long.name", state="SUBMITTED", rho=12345.0)
    _head, line = list_text([one], NOON + 500 * 86400, 80).splitlines()
    assert len(line) == 80
    assert line.split() == [
        *("app-0001", "n" * 20 + "…", "someone.wit…", "SUBMITTED", "500d", "41", "%", "2", ">100"),
    ]


@pytest.mark.parametrize(
    ("duration_s", "shown"),
    [(-3, "0s"), (119.9, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172799, "47h"), (172800, "2d")],
)
def test_an_age_has_one_unit(duration_s: float, shown: str) -> None:
    assert age(duration_s) == shown


def test_progress_and_end_fit_on_a_line() -> None:
    assert progress_line(app()) == (
        "app-0001 RUNNING, phase 2 of 3, 41 %, 2 GPUs, rho 1.23 (fluid), best job-01 (accuracy 0.912, loss 0.25)"
    )
    assert end_line(app(state="FINISHED", finished_at_s=NOON + 75.5, phase=3)) == (
        "app-0001 FINISHED after 75.5 s; rho 1.23 (fluid); "
        "best job-01 (accuracy 0.912, loss 0.25) with hidden=64 learning_rate=0.05"
    )
    assert end_line(pb.AppStatus(app_id="a", state="FAILED", diagnostics="no GPUs")) == "a FAILED; no GPUs"


def test_json_has_null_for_unknown_values() -> None:
    text = dump(app_document(app(rho=math.inf, final_rho={"themis": math.nan})))
    value = json.loads(text)
    assert value["rho"] is None and value["final_rho"] == {"themis": None}
    assert value["finished_at_s"] is None
    assert value["jobs"][0]["accuracy"] is None
    assert value["jobs"][1]["hyper_parameters"] == {"hidden": 64, "learning_rate": 0.05}
    assert value["leases"][0]["gpu"] == "m00/0"


def test_job_show_prints_submarines_block() -> None:
    environment = {
        "SUBMARINE_INPUT_PATH": "hdfs://default/data",
        "SUBMARINE_SAVED_MODEL_PATH": "/m",
        "SUBMARINE_CHECKPOINT_PATH": "/c",
        "SUBMARINE_RUN_PARAMETERS": "--name tf-job-001",
    }
    status = pb.AppStatus(app_id="app-0001", spec=pb.AppSpec(program=pb.ProgramSpec(environment=environment)))
    assert meta_info(status) == (
        "Job Meta Info:\n\tApplication Id: app-0001\n\tInput Path: hdfs://default/data\n\tSaved Model Path: /m\n"
        "\tCheckpoint Path: /c\n\tRun Parameters: --name tf-job-001"
    )


@pytest.mark.parametrize(
    ("duration_s", "text"), [(0.04, "0.0 s"), (119.9, "119.9 s"), (190, "3:10 min"), (7325, "2:02:05 h")]
)
def test_durations(duration_s: float, text: str) -> None:
    assert seconds(duration_s) == text


def test_a_hundred_percent_is_the_end_only() -> None:
    assert (percent(0.999), percent(1.0), percent(0.29), percent(math.nan)) == ("99 %", "100 %", "29 %", "-")


def test_progress_of_an_app_that_ended_short_of_its_target_is_unknown() -> None:
    short = app(state="FINISHED", phases=0, progress=math.nan)
    assert "State:          FINISHED, progress unknown\n" in app_text(short)
    assert app_document(short)["progress"] is None
    assert "%" not in list_text([short], 0.0, 200)


def test_an_empty_table_is_its_header() -> None:
    assert table(("A", "B"), []) == "A  B"


def test_an_app_on_yarn_shows_its_engine_id_and_page() -> None:
    app = pb.AppStatus(
        app_id="app-1", name="a", state="RUNNING", engine_id="application_17_0001", page_url="http://n1:9/"
    )
    shown = app_text(app)
    assert "application_17_0001" in shown and "http://n1:9/" in shown


def test_an_app_shows_its_page_at_the_resource_manager() -> None:
    shown = app(app_page_url="http://rm:8080/apps/app-0001", page_url="http://n1:9/")
    text = app_text(shown)
    assert "Page:           http://rm:8080/apps/app-0001\nIts own page:   http://n1:9/\n" in text
    assert app_document(shown)["app_page_url"] == "http://rm:8080/apps/app-0001"


def test_a_best_job_without_hyper_parameters_ends_with_its_score() -> None:
    only = pb.JobStatus(job_id="job-01", state="FINISHED", loss=0.25, has_loss=True)
    assert "Best job:       job-01, loss 0.25\n" in app_text(app(jobs=[only]))


def test_a_declared_metric_has_its_own_name_and_mode() -> None:
    spec = pb.AppSpec(metric=pb.MetricSpec(name="val_auc", mode="max"))
    text = app_text(app(spec=spec))
    assert "Metric:         val_auc, higher is better\n" in text
    assert "Best job:       job-01, accuracy 0.912, val_auc 0.25, " in text
    assert " VAL_AUC " in text and "LOSS" not in text
    assert "best job-01 (accuracy 0.912, val_auc 0.25)" in progress_line(app(spec=spec))
    by_regex = app_text(app(spec=pb.AppSpec(metric=pb.MetricSpec(regex="x=(.*)"))))
    assert "Metric:         metric, lower is better\n" in by_regex and "LOSS" not in by_regex


def test_a_wide_list_says_why_an_app_waits() -> None:
    waits = app(gpus=0, waiting=pb.AppWaiting(reason="no GPU is free", rank=2, of=5, ahead=["app-0007"]))
    assert wide_text([waits]).endswith("  no GPU is free (place 2 of 5)")


def test_estimate_of_the_end_is_on_the_line_of_progress() -> None:
    def line(end_s: float) -> str:
        end = pb.Seconds(median=end_s, low=10, high=math.inf)
        return progress_line(app(estimate=pb.AppEstimate(first_gpu_s=end, end_s=end)))

    assert "41 %, ends in about 3:10 min, 2 GPUs" in line(190.0)
    assert "ends in" not in line(math.inf) and "ends in" not in progress_line(app())


def test_job_health_and_s_by_level_are_shown():
    levels = [
        pb.LevelSlowdown(level="slot", factor=1.0, intervals=50, spread=0.01),
        pb.LevelSlowdown(level="rack", factor=1.25),
    ]
    ill = job(2, state="FAILED", health="its loss is no number since iteration 7")
    shown = app(jobs=[job(1, state="RUNNING", slowdown=levels), ill])
    text = app_text(shown)
    assert "job-02  its loss is no number since iteration 7" in text
    assert "S: SLOT" in text
    assert "1 (50 intervals)" in text
    assert "1.25 (estimated)" in text
    first, second = app_document(shown)["jobs"]
    assert first["slowdown"]["slot"] == {"factor": 1.0, "intervals": 50, "spread": 0.01}
    assert (first["health"], second["health"]) == (None, "its loss is no number since iteration 7")
    assert "HEALTH" not in app_text(app())
    assert "S: " not in app_text(app())


def test_tracked_runs_are_shown() -> None:
    shown = app(jobs=[job(1, tracked_run="https://wandb.ai/me/digits/runs/1b2c"), job(2)])
    assert "job-01  https://wandb.ai/me/digits/runs/1b2c" in app_text(shown)
    assert [each["tracked_run"] for each in app_document(shown)["jobs"]] == [
        "https://wandb.ai/me/digits/runs/1b2c",
        None,
    ]
    assert "TRACKED RUN" not in app_text(app())


EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\nState: FINISHED\u202eback\r"
VISIBLE = r"\x1b[2J\x1b]0;owned\x07\x9b31m\nState: FINISHED\u202eback\r"


def test_control_characters_are_shown_and_not_sent_to_the_terminal() -> None:
    one = app(
        name=EVIL,
        queue=EVIL,
        tuner=EVIL,
        diagnostics=EVIL,
        folder=EVIL,
        jobs=[pb.JobStatus(job_id="job-01", state="FAILED", health=EVIL, hyper_parameters={"x": pb.Scalar(text=EVIL)})],
    )
    for shown in (app_text(one), list_text([one], NOON, 80), wide_text([one]), progress_line(one), end_line(one)):
        assert all(each == "\n" or each.isprintable() for each in shown)
        assert "\nState: FINISHED" not in shown
    assert VISIBLE in app_text(one)
    assert VISIBLE in wide_text([one])
    document = dump(app_document(one))
    assert json.loads(document)["name"] == EVIL
    assert all(each == "\n" or each.isprintable() for each in document)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_states_have_colours_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(stream: io.StringIO) -> str:
        Terminal(stream, stream).show("app-0001 RUNNING  my-RUNNING RUNNING.log FAILED WAITING")
        return stream.getvalue().rstrip()

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    green, red, yellow = (f"\x1b[{code}m{{}}\x1b[0m".format for code in (32, 31, 33))
    coloured = f"app-0001 {green('RUNNING')}  my-RUNNING RUNNING.log {red('FAILED')} {yellow('WAITING')}"
    assert shown(Screen()) == coloured
    assert "\x1b" not in shown(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in shown(Screen())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(Screen())


def test_heads_of_tables_have_no_colours() -> None:
    for head in (wide_text([]), list_text([], NOON, 80), jobs_table(app())):
        assert "\x1b" not in with_colours(head.splitlines()[0])


def test_log_on_a_terminal_keeps_lines_colours_and_bars_alone() -> None:
    screen, pipe = Screen(), io.StringIO()
    log = "\x1b[1;32mgreen\x1b[0m 50%\b\b\b60%\r70%\tx\n\x1b[2J\x1b]0;owned\x07\x1bc"
    for out in (screen, pipe):
        Terminal(out, out).write(log)
    assert screen.getvalue() == "\x1b[1;32mgreen\x1b[0m 50%\b\b\b60%\r70%\tx\n" + r"\x1b[2J\x1b]0;owned\x07\x1bc"
    assert pipe.getvalue() == log


WAITS = "no GPU is free: all 8 are leased; the next leases end in 15.8 s (place 2 of 3)"
PATH = "/a/path/of/one/word/that/is/longer/than/most/terminals/are/wide/when/there/are/two/of/them"


@pytest.mark.parametrize("width", [80, 60, 40])
def test_app_fits_a_terminal_but_for_words_that_are_wider(width):
    levels = [pb.LevelSlowdown(level=level, factor=1.0, intervals=50) for level in ("slot", "machine", "rack")]
    jobs = [job(1, state="RUNNING", health=WAITS, slowdown=levels), job(2)]
    whole = app_text(app(waits_for=WAITS, folder=PATH, jobs=jobs))
    text = app_text(app(waits_for=WAITS, folder=PATH, jobs=jobs), width)
    assert [line for line in text.splitlines() if len(line) > width] == [f"Folder:         {PATH}"]
    assert sorted(text.split()) == sorted(whole.split())
    assert max(map(len, whole.splitlines())) > 80


def test_values_are_broken_at_blanks_below_each_other():
    text = app_text(app(waits_for=WAITS, jobs=[job(1, health=WAITS)]), 60)
    assert "Waits:          no GPU is free: all 8 are leased; the next\n                leases end" in text
    assert "\njob-01  no GPU is free: all 8 are leased; the next leases\n        end in 15.8 s" in text


def test_columns_without_room_stand_on_a_further_line_of_each_row():
    assert jobs_table(app(), 80).splitlines() == [
        "JOB     STATE    ITERATION  LOSS  ACCURACY  GPUS  S/ITERATION  RESTARTS",
        "    HYPER-PARAMETERS",
        "job-00  STOPPED  100/100     1.5         -     0            -         0",
        "    hidden=64 learning_rate=0.1",
        "job-01  RUNNING  150/200    0.25     0.912     2       0.0501         1",
        "    hidden=64 learning_rate=0.05",
    ]


def test_wide_list_fits_a_terminal_and_loses_nothing():
    waits = app(name="n" * 40, gpus=0, waiting=pb.AppWaiting(reason="no GPU is free", rank=2, of=5, ahead=["app-0007"]))
    narrow = wide_text([waits], 80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert sorted(narrow.split()) == sorted(wide_text([waits]).split())


def test_lists_events_and_tables_of_a_pipe_have_long_lines():
    pipe = io.StringIO()
    assert Terminal(pipe, pipe).width == UNLIMITED
    assert "n" * 60 in list_text([app(name="n" * 60)], NOON, UNLIMITED)
    assert len(app_text(app(waits_for=WAITS * 9)).splitlines()) == len(app_text(app(waits_for="-")).splitlines())


def test_event_is_broken_beside_its_time():
    event = pb.Event(kind="job_state", time_s=NOON, detail=json.dumps({"job_id": "job-01 " * 12, "to": "RUNNING"}))
    lines = event_line(event, "GPU", 60).splitlines()
    assert len(lines) > 1 and max(map(len, lines)) <= 60
    assert all(line.startswith(" " * 27) for line in lines[1:])
    assert " ".join(lines).split() == event_line(event, "GPU").split()
