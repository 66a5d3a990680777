"""Where the run of a job is in MLflow or Weights & Biases, as their own lines and `report_run` say it."""

import json
from pathlib import Path

import pytest

from am.profiler.parser import LogReader
from am.profiler.profile import JobProfile
from am.profiler.records import TrackedRun
from am.profiler.run_format import MAX_RUN_LETTERS
from themis import report_run
from themis.reporting import FILE_VARIABLE

GOLDEN = Path(__file__).parents[3] / "golden" / "profiler" / "text"
WANDB = "https://wandb.ai/me/digits/runs/app-0001-j0-69273a60"


def records(text):
    return LogReader().read(text.encode())


def runs(text):
    return [record.run for record in records(text) if isinstance(record, TrackedRun)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wandb_online", [WANDB, WANDB]),
        ("wandb_offline", ["/scratch/digits/wandb/offline-run-20261126_173913-app-1-j0"]),
        ("mlflow", ["http://127.0.0.1:5999/#/experiments/0/runs/82e23a42d7ee441db9f9da8c242caaa6"]),
    ],
)
def test_libraries_own_lines_name_the_run_and_nothing_else(name, expected):
    text = (GOLDEN / f"{name}.log").read_text()
    assert runs(text) == expected
    assert all(isinstance(record, TrackedRun) for record in records(text))


def test_profile_keeps_the_newest_run():
    profile = JobProfile()
    for record in records(f"wandb: View run at {WANDB}1\n[rank0]: wandb: View run at {WANDB}2\nstep=1 loss=0.5\n"):
        profile.feed(record)
    assert (profile.tracked_run, profile.iteration) == (f"{WANDB}2", 1)


@pytest.mark.parametrize(
    "line",
    [
        "View run at https://example.org",
        "wandb: View run at javascript:alert(7)",
        "wandb: Run data is saved locally in /scratch/wandb/run-20261126_173913-x",
        "wandb: View project at https://wandb.ai/me/digits",
        "INFO:themis:run {",
        "INFO:themis:run 7",
        'INFO:themis:run ""',
        "INFO:themis:run " + json.dumps("x" * (MAX_RUN_LETTERS + 1)),
        "wandb: View run at https://" + "x" * MAX_RUN_LETTERS,
    ],
)
def test_other_lines_name_no_run(line):
    assert runs(f"{line}\n") == []


def test_id_of_one_letter_is_one():
    assert runs('INFO:themis:run "7"\n') == ["7"]


def test_password_with_an_at_sign_is_left_out_whole():
    assert runs("🏃 View run j0 at: https://me:s@cret@ml.example.org/#/runs/1\n") == ["https://ml.example.org/#/runs/1"]


def test_password_of_a_tracking_server_is_left_out():
    assert runs("🏃 View run j0 at: https://me:secret@ml.example.org/#/experiments/0/runs/1\n") == [
        "https://ml.example.org/#/experiments/0/runs/1"
    ]


def test_reported_run_is_read_also_behind_a_bar_and_from_standard_output(tmp_path, monkeypatch, capfd):
    log = tmp_path / "task-0.log"
    log.write_text(" 40%|████      | 40/100 [00:01<00:02, 30.0it/s]")
    monkeypatch.setenv(FILE_VARIABLE, str(log))
    report_run("1b2c")
    assert runs(log.read_text()) == ["1b2c"]
    monkeypatch.delenv(FILE_VARIABLE)
    report_run(WANDB)
    assert runs(capfd.readouterr().out) == [WANDB]
