"""The phases of a resize, from hand-made events, and the benchmark's table of them."""

import json

import pytest

from themis.errors import InputError, ThemisError
from themis_cli.main import main
from themis_lab.bench.resize_apps import Program
from themis_lab.bench.resize_bare import BareStart, bare_start
from themis_lab.bench.resize_output import document, result, table
from themis_lab.bench.resize_phases import FREE_PHASES, STEP_PHASES, Change, changes
from themis_lab.bench.resize_run import EngineName, ResizeBenchPlan, Round
from themis_lab.testbed.events import Event

APP = "app-0001"


class Log:
    """Events with times and sequence numbers."""

    def __init__(self):
        self.events = []

    def add(self, time_s, kind, app_id=APP, **detail):
        number = len(self.events) + 1
        self.events.append(Event(sequence=number, time_s=time_s, kind=kind, app_id=app_id, detail=detail))

    def lease(self, time_s, change, lease_id, app_id=APP):
        self.add(time_s, f"lease_{change}", app_id, lease_id=lease_id, gpu=f"m/{lease_id}")

    def start(self, time_s, incarnation, tasks, **seconds):
        gpus = [f"m/{index}" for index in range(tasks)]
        self.add(time_s, "tasks_started", incarnation=incarnation, gpus=gpus, tasks=tasks, seconds=seconds)

    def first(self, time_s, incarnation, since_start_s, **seconds):
        self.add(time_s, "first_step", incarnation=incarnation, since_start_s=since_start_s, seconds=seconds)

    def stop(self, asked_s, checkpoint_s, ended_s, tasks):
        self.add(asked_s, "job_state", state="CHECKPOINTING")
        self.add(ended_s - 0.01, "checkpoint", seconds=checkpoint_s, iteration=7, bytes=1)
        self.add(ended_s, "tasks_ended", exit_codes=[75] * tasks)
        self.add(ended_s, "job_state", state="WAITING")


def a_run():
    """A run on YARN with two GPUs, then one while another app runs, then two again."""
    log = Log()
    log.lease(1.0, "granted", 1)
    log.lease(1.0, "granted", 2)
    log.start(3.0, 1, 2, ask=0.1, grant=0.5, start=0.2, connect=1.0)
    log.first(7.0, 1, 5.8, process=0.3)
    log.add(8.0, "checkpoint", seconds=9.0, iteration=3, bytes=1)
    log.lease(10.0, "expiring", 2)
    log.stop(10.2, 0.5, 12.0, 2)
    log.lease(12.1, "released", 2)
    log.lease(12.1, "granted", 3, app_id="app-0002")
    log.start(13.0, 2, 1, grant=0.5)
    log.first(15.0, 2, 2.9, process=0.3)
    log.lease(20.0, "granted", 4)
    log.stop(20.3, 0.4, 21.0, 1)
    log.start(23.1, 3, 2, ask=0.1, grant=0.8, start=0.2, connect=0.7)
    log.first(28.0, 3, 6.8, **{"process": 0.3, "import": 3.0, "restore": 0.4})
    return log.events


def by_kind(kind):
    return [change for change in changes(a_run(), APP) if change.kind == kind]


def test_warning_to_free_gpu_is_split_into_phases():
    (free,) = by_kind("free")
    assert free.tasks == 2
    expected = {"plan": 0.2, "checkpoint": 0.5, "stop": 1.3, "release": 0.1}
    assert free.seconds == pytest.approx(expected)
    assert free.total_s == pytest.approx(12.1 - 10.0)


def test_phases_from_grant_to_first_step_add_up():
    (step,) = by_kind("step")
    assert step.tasks == 2
    assert step.seconds == pytest.approx(
        {
            # Before the word to stop, and between the end of the old tasks and asking for containers at 21.2.
            "plan": 0.5, "checkpoint": 0.4, "stop": 0.3,
            "ask": 0.1, "grant": 0.8, "start": 0.2, "connect": 0.7,
            # What the launch took beyond reserving counts as the start of the process.
            "process": 0.4, "import": 3.0, "restore": 0.4, "first step": 1.2,
        }
    )  # fmt: skip
    assert step.total_s == pytest.approx(28.0 - 20.0)
    assert step.startup_s == pytest.approx(28.0 - 21.2)


def test_first_start_is_no_resize():
    events = [event for event in a_run() if event.time_s < 20.0]
    assert [change.kind for change in changes(events, APP)] == ["free"]


def test_changes_of_other_app_are_separate():
    assert changes(a_run(), "app-0002") == []


def test_warning_resolved_by_renewal_or_crash_is_no_change():
    log = Log()
    log.lease(10.0, "expiring", 2)
    log.add(11.0, "tasks_ended", exit_codes=[1])
    log.lease(12.0, "released", 2)
    assert changes(log.events, APP) == []


def test_leases_released_together_are_one_change():
    log = Log()
    log.lease(10.0, "expiring", 1)
    log.lease(10.0, "expiring", 2)
    log.stop(10.2, 0.5, 12.0, 2)
    log.lease(12.1, "released", 1)
    log.lease(12.1, "released", 2)
    assert len(changes(log.events, APP)) == 1


# ---- what is made of them ----


def a_round(startup_s, bare_s):
    steps = dict.fromkeys(STEP_PHASES, 0.0) | {"stop": 2.0, "import": startup_s}
    found = (
        Change(kind="free", seconds=dict.fromkeys(FREE_PHASES, 0.25), tasks=2),
        Change(kind="step", seconds=steps, tasks=2),
    )
    bare = BareStart(total_s=bare_s, seconds={"process": 0.1, "import": bare_s - 0.2, "restore": 0.1}, tasks=2)
    return Round(changes=found, bare=bare, load_1min=1.5)


@pytest.mark.parametrize(("engine", "reached"), [(EngineName.LOCAL, False), (EngineName.YARN, True)])
def test_heartbeat_allowance_is_for_yarn_only(engine, reached):
    plan = ResizeBenchPlan(engine=engine, repeat=1, heartbeat_s=1.0)
    found = result(plan, [a_round(5.9, 4.0)])
    assert found.startup_ratio == pytest.approx(5.9 / 4.0)
    assert found.step_ratio == pytest.approx(7.9 / 4.0)
    assert found.reached is reached
    assert ("reached, by 0.10 s" if reached else "missed, by 0.90 s") in table(plan, [a_round(5.9, 4.0)])


def test_ratio_is_median_over_rounds():
    rounds = [a_round(2.0, 2.0), a_round(30.0, 10.0), a_round(4.0, 2.0)]
    found = result(ResizeBenchPlan(repeat=3), rounds)
    assert found.startup_ratio == pytest.approx(2.0)
    assert found.phases["step"]["total"]["median"] == pytest.approx(6.0)
    assert found.phases["bare"]["total"]["p95"] == 10.0


def test_table_has_every_phase_and_paper_values():
    text = table(ResizeBenchPlan(repeat=1), [a_round(5.0, 4.0)])
    for phase in (*FREE_PHASES, *STEP_PHASES, "total"):
        assert any(line.startswith(phase) for line in text.splitlines())
    assert "the paper, on its testbed: resize 35 s median, 50 s p95; checkpoint 5 to 10 s" in text
    assert "load of the machine (1 min) after the rounds: 1.5" in text


def test_table_without_measurements_says_so():
    plan = ResizeBenchPlan(repeat=1)
    empty = Round(changes=(), bare=a_round(1.0, 1.0).bare, load_1min=0.0)
    assert result(plan, [empty]).reached is None
    assert "not measured" in table(plan, [empty])
    assert json.loads(json.dumps(document(plan, [empty])))["reached"] is None


# ---- bare processes and bad input ----


def test_bare_processes_restore_without_tensorflow(tmp_path):
    from am.checkpoints.uri import open_store

    (tmp_path / "state.json").write_text("{}")
    store = open_store(str(tmp_path / "checkpoints"))
    store.save("job-00", 3, {"state.json": tmp_path / "state.json"}, {})
    found = bare_start(str(tmp_path / "checkpoints"), "job-00", tasks=2, tensorflow=False, environment={})
    assert found.tasks == 2
    assert set(found.seconds) == {"process", "import", "restore"}
    assert 0.0 < sum(found.seconds.values()) <= found.total_s + 0.05


def test_bare_process_without_checkpoint_names_reason(tmp_path):
    with pytest.raises(ThemisError, match="no checkpoint"):
        bare_start(str(tmp_path), "job-00", tasks=1, tensorflow=False, environment={})


@pytest.mark.parametrize(
    "changed", [{"repeat": 0}, {"repeat": 1001}, {"heartbeat_s": 0.0}, {"heartbeat_s": float("nan")}]
)
def test_impossible_plans_are_refused(changed):
    with pytest.raises(InputError):
        ResizeBenchPlan(**changed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--engine", "yarnn"), "did you mean 'yarn'"), (("--program", "x"), "program"), (("--repeat", "0"), "--repeat")],
)
def test_bad_options_exit_2(arguments, said, capsys):
    assert main(["bench", "resize", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_programs_are_in_catalogue():
    from tf_jobs.catalog import program

    assert [program(str(each)).name for each in Program] == [str(each) for each in Program]
