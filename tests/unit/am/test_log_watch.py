"""What a job's log makes the app master tell."""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from am.jobs.run import JobRun
from am.log_watch import LogWatch, checkpoint_folders
from am.profiler import follower
from am.profiler.follower import LogFollower
from am.profiler.health import MIN_STALL_S
from am.profiler.iteration_time import Placement
from am.profiler.profile import JobProfile
from themis.apps import JobSpec
from themis.cluster import GpuId, Level
from themis.lifecycle import JobState

GOLDEN = Path(__file__).parents[2] / "golden" / "profiler"

SUBMITTED_AT_S = 1.7e9


class Watched:
    """A job whose log is watched every `look_s` seconds, and what was told of it."""

    def __init__(self, folder: Path, look_s: float = 10.0, checkpoints: str = "hdfs://nn/ckpt", path: str = "") -> None:
        self.told: list[tuple[str, dict[str, object]]] = []
        self.now_s, self.look_s = 0.0, look_s
        self.job = JobRun(
            spec=JobSpec(job_id="job-00", iterations_total=400),
            folder=folder,
            profile=JobProfile(),
            follower=LogFollower(folder / "task-0.log"),
            state=JobState.STARTING,
            gpus=(GpuId("m0", 0),),
            level=Level.SLOT,
            incarnation=1,
        )
        self.job.profile.started(1, Level.SLOT)
        self.app = SimpleNamespace(
            now_s=lambda: self.now_s,
            restarted=lambda _: None,
            submitted_at_s=SUBMITTED_AT_S,
            checkpoint_uri=checkpoints,
            spec=SimpleNamespace(
                program=SimpleNamespace(environment={"SUBMARINE_CHECKPOINT_PATH": path} if path else {})
            ),
            board=SimpleNamespace(
                jobs={"job-00": self.job},
                progressed=lambda _: None,
                waited=lambda _: None,
                turn=lambda job, state: job.turn(state),
            ),
        )
        self.watch = LogWatch(self.app, lambda kind, _, detail: self.told.append((kind, dict(detail))), lambda: None)

    def log(self, text: str) -> None:
        with self.job.log_path.open("a") as file:
            file.write(text)
        self.look()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_s += self.look_s
            self.watch.poll()

    def details(self, kind: str) -> list[dict[str, object]]:
        return [detail for name, detail in self.told if name == kind]


def test_progress_is_that_of_the_incarnation_not_of_one_that_crashed_further_on(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.log("INFO:tensorflow:loss = 0.5, step = 350\n")
    watched.job.incarnation, watched.job.stepped = 2, False
    watched.log("INFO:tensorflow:loss = 0.6, step = 201\n")
    progress = [(detail["incarnation"], detail["iteration"]) for detail in watched.details("job_progress")]
    assert progress == [(1, 350), (2, 201)]
    assert watched.job.profile.iteration == 350


def test_the_first_step_tells_what_the_program_told_of_its_start(tmp_path):
    watched = Watched(tmp_path)
    watched.log("INFO:themis:imported seconds = 2.5, after = 0.25\nINFO:themis:restored iteration = 7, seconds = 0.5\n")
    assert watched.details("first_step") == []
    watched.log("INFO:tensorflow:loss = 0.5, step = 8\n")
    (told,) = watched.details("first_step")
    assert told["seconds"] == {"process": 0.25, "import": 2.5, "restore": 0.5}


@pytest.mark.parametrize(("name", "iteration"), [("keras_bars", 96), ("keras_lines", 96), ("tf_cnn_benchmarks", 30)])
def test_scripts_that_know_nothing_of_us_are_told_of_by_their_logs_alone(tmp_path, name, iteration):
    watched = Watched(tmp_path)
    for line in (GOLDEN / f"{name}.log").read_text().splitlines(keepends=True):
        watched.log(line)
    assert watched.job.state is JobState.RUNNING
    assert len(watched.details("first_step")) == 1
    assert watched.details("job_progress")[-1]["iteration"] == iteration
    assert watched.details("job_progress")[-1]["iteration_s"] > 0.0


def test_event_files_in_the_jobs_folder_tell_of_a_silent_one(tmp_path):
    source = next((GOLDEN / "summary_events").iterdir())
    folder = tmp_path / "logs" / "train"
    folder.mkdir(parents=True)
    (folder / source.name).write_bytes(source.read_bytes())
    watched = Watched(tmp_path)
    watched.log("training\n")
    assert watched.job.state is JobState.RUNNING
    assert watched.job.profile.iteration == 40


@pytest.mark.parametrize(
    ("settings", "lies"),
    [
        ({"checkpoints": "{0}/ckpt"}, "ckpt/job-00"),
        ({"checkpoints": "file://{0}/ckpt"}, "ckpt/job-00/model"),
        ({"path": "{0}/model"}, "model/train"),
        ({"path": "model"}, "jobs/job-00/model"),
    ],
)
def test_event_files_where_the_script_keeps_its_model_tell_of_a_silent_one(tmp_path, settings, lies):
    (source,) = (GOLDEN / "summary_events").iterdir()
    folder, job = tmp_path / lies, tmp_path / "jobs" / "job-00"
    folder.mkdir(parents=True)
    job.mkdir(parents=True, exist_ok=True)
    (folder / source.name).write_bytes(source.read_bytes())
    watched = Watched(job, **{name: value.format(tmp_path) for name, value in settings.items()})
    watched.log("training\n")
    assert watched.job.profile.iteration == 40


def test_event_files_that_an_earlier_run_left_in_the_model_directory_are_left_alone(tmp_path):
    (source,) = (GOLDEN / "summary_events").iterdir()
    job, model, left = tmp_path / "job", tmp_path / "model", tmp_path / "model" / source.name
    for folder in (job, model):
        folder.mkdir()
    left.write_bytes(source.read_bytes())
    os.utime(left, (SUBMITTED_AT_S - 1.0, SUBMITTED_AT_S - 1.0))
    watched = Watched(job, path=str(model))
    watched.log("training\n")
    assert watched.job.profile.iteration == 0
    os.utime(left, (SUBMITTED_AT_S, SUBMITTED_AT_S))
    watched.log("training\n")
    assert watched.job.profile.iteration == 40


@pytest.mark.parametrize(
    "places", [{"checkpoints": "hdfs://nn/ckpt"}, {"path": "webhdfs://nn:1/model"}, {"path": "s3://bucket/model"}]
)
def test_a_model_directory_that_is_no_local_folder_is_not_looked_at(tmp_path, places):
    watched = Watched(tmp_path, **places)
    assert checkpoint_folders(watched.app, watched.job) == []


@pytest.mark.parametrize(
    ("checkpoints", "path", "looked_at"),
    [
        # All jobs have the variable, with one value: whose event files lie there is not known.
        ("hdfs://nn/ckpt", "model", []),
        ("hdfs://nn/ckpt", "{0}/model", []),
        ("{0}/ckpt", "{0}/model", ["ckpt/job-00"]),
        # The app is called as the job, and its checkpoints lie beside apps' folders.
        ("{0}", "", []),
        ("{0}/job-00/jobs", "", ["job-00/jobs/job-00"]),
    ],
)
def test_of_several_jobs_none_reads_what_another_writes(tmp_path, checkpoints, path, looked_at):
    folder = tmp_path / "job-00" / "jobs"
    watched = Watched(folder / "job-00", checkpoints=checkpoints.format(tmp_path), path=path.format(tmp_path))
    watched.app.board.jobs["job-01"] = Watched(folder / "job-01").job
    found = [os.path.relpath(each, tmp_path) for each in checkpoint_folders(watched.app, watched.job)]
    assert found == looked_at


def test_a_stall_is_told_once_and_again_when_it_comes_back(tmp_path):
    watched = Watched(tmp_path, look_s=1.0)
    for step in range(1, 6):
        watched.log(f"INFO:tensorflow:loss = 0.5, step = {step}\n")
    watched.look(int(MIN_STALL_S) + 50)
    [stall] = watched.details("job_stalled")
    assert stall["iteration"] == 5
    assert stall["waited_s"] > stall["allowed_s"] == MIN_STALL_S
    watched.log("INFO:tensorflow:loss = 0.5, step = 6\n")
    watched.look(600)
    assert [detail["iteration"] for detail in watched.details("job_stalled")] == [5, 6]


def test_a_divergence_is_told_once(tmp_path):
    watched = Watched(tmp_path)
    for step in range(1, 6):
        watched.log(f"INFO:tensorflow:loss = nan, step = {step}\n")
    assert watched.details("job_diverged") == [{"iteration": 1, "losses": 2}]


def test_what_earlier_attempts_logged_is_read_without_a_word(tmp_path):
    watched = Watched(tmp_path)
    watched.job.log_path.write_bytes((GOLDEN / "keras_lines.log").read_bytes())
    watched.watch.catch_up()
    watched.look()
    assert watched.job.profile.iteration == 96
    assert watched.told == []


def test_what_a_job_writes_just_before_its_end_is_known_when_it_is_settled(tmp_path):
    watched = Watched(tmp_path, look_s=1.0)
    watched.look()
    source = next((GOLDEN / "summary_events").iterdir())
    (tmp_path / source.name).write_bytes(source.read_bytes())
    watched.look()
    assert math.isnan(watched.job.loss)
    watched.watch.drain(watched.job, ended_well=True)
    assert watched.job.profile.iteration == 40
    assert watched.job.loss == pytest.approx(0.05)
    assert watched.job.state is JobState.RUNNING


def test_all_that_a_job_logged_counts_for_the_incarnation_that_logged_it(tmp_path, monkeypatch):
    monkeypatch.setattr(follower, "MAX_POLL_BYTES", 500)
    watched = Watched(tmp_path)
    lines = [f"INFO:tensorflow:loss = 0.5, step = {step} (2.000 sec)\n" for step in range(1, 101)]
    watched.job.log_path.write_text("".join(lines))
    watched.watch.drain(watched.job, ended_well=True)
    assert watched.job.profile.iteration == 100
    watched.job.profile.started(4, Level.RACK)
    watched.look()
    assert set(watched.job.profile.paces) == {Placement(1, Level.SLOT)}


def test_a_last_line_without_an_end_is_read_and_no_later_incarnations_line_is_glued_to_it(tmp_path):
    watched = Watched(tmp_path)
    watched.log("INFO:tensorflow:loss = 0.5, step = 10\nINFO:tensorflow:loss = 0.25, step = 20")
    assert watched.job.profile.iteration == 10
    watched.watch.drain(watched.job, ended_well=True)
    assert (watched.job.profile.iteration, watched.job.loss) == (20, 0.25)
    watched.log("INFO:themis:restored iteration = 20, seconds = 0.5\nINFO:tensorflow:loss = 0.125, step = 30\n")
    assert watched.job.profile.restored is not None
    assert (watched.job.profile.iteration, watched.job.loss) == (30, 0.125)


def test_a_line_that_a_killed_job_left_half_written_tells_nothing_and_is_kept_apart(tmp_path):
    watched = Watched(tmp_path)
    watched.log("INFO:tensorflow:loss = 0.5, step = 10\nINFO:tensorflow:loss = 0.2")
    watched.watch.drain(watched.job, ended_well=False)
    assert watched.job.loss == 0.5
    watched.log("INFO:themis:restored iteration = 10, seconds = 0.5\n")
    assert watched.job.profile.restored is not None
    assert watched.job.loss == 0.5
