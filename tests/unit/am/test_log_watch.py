"""The events that the app master emits for the lines of a job's log."""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from capped_cases import MIB, used_bytes

from am.jobs.run import JobRun
from am.jobs.saved_state import checkpoint_folders
from am.log_watch import LogWatch
from am.profiler import follower
from am.profiler.follower import LogFollower
from am.profiler.health import MIN_STALL_S
from am.profiler.iteration_time import Placement
from am.profiler.profile import JobProfile
from themis.apps import JobShape, JobSpec
from themis.cluster import GpuId, Level
from themis.lifecycle import JobState

GOLDEN = Path(__file__).parents[2] / "golden" / "profiler"

SUBMITTED_AT_S = 1.7e9


class Watched:
    """A job whose log is read every `look_s` seconds, with the emitted events."""

    def __init__(
        self, folder: Path, look_s: float = 10.0, checkpoints: str = "hdfs://nn/ckpt", path: str = "", log_mb: int = 0
    ) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []
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
            handles=[SimpleNamespace(pid=1)],
        )
        self.job.profile.started(1, Level.SLOT)
        self.app = SimpleNamespace(
            now_s=lambda: self.now_s,
            restarted=lambda _: None,
            task_log_mb=log_mb,
            submitted_at_s=SUBMITTED_AT_S,
            checkpoint_uri=checkpoints,
            spec=SimpleNamespace(
                program=SimpleNamespace(environment={"SUBMARINE_CHECKPOINT_PATH": path} if path else {})
            ),
            search=SimpleNamespace(
                remeasure=lambda: None,
                jobs={"job-00": self.job},
                progressed=lambda _: None,
                keep_measurements=lambda _: None,
                turn=lambda job, state: job.turn(state),
                target_of=lambda job, plan: 10_000,
                plan=lambda: None,
                compares=False,
            ),
        )
        self.watch = LogWatch(self.app, lambda kind, _, detail: self.seen.append((kind, dict(detail))), lambda: None)

    def log(self, text: str) -> None:
        with self.job.log_path.open("a") as file:
            file.write(text)
        self.look()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_s += self.look_s
            self.watch.poll()

    def details(self, kind: str) -> list[dict[str, object]]:
        return [detail for name, detail in self.seen if name == kind]


def test_progress_is_of_present_incarnation(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.log("INFO:tensorflow:loss = 0.5, step = 350\n")
    watched.job.incarnation, watched.job.stepped = 2, False
    watched.log("INFO:tensorflow:loss = 0.6, step = 201\n")
    progress = [(detail["incarnation"], detail["iteration"]) for detail in watched.details("job_progress")]
    assert progress == [(1, 350), (2, 201)]
    assert watched.job.profile.iteration == 350


def test_chatty_log_is_capped_and_no_step_is_missed(tmp_path):
    watched = Watched(tmp_path, log_mb=1)
    other = tmp_path / "task-1.log"
    watched.job.spec = JobSpec(job_id="job-00", iterations_total=400, shape=JobShape(tasks=2))
    for step in range(1, 101):
        chatter = "".join(f"chatter {step} {line}\n" for line in range(3000))
        with other.open("a") as file:
            file.write(chatter)
        watched.log(f"{chatter}INFO:tensorflow:loss = 0.5, step = {step}\n{chatter}")
        assert used_bytes(watched.job.log_path) < 1.5 * MIB
        assert used_bytes(other) < 1.5 * MIB
    assert watched.job.log_path.stat().st_size > 8 * MIB
    assert [detail["iteration"] for detail in watched.details("job_progress")] == list(range(1, 101))


def test_next_attempt_knows_the_tracked_run_again(tmp_path):
    watched = Watched(tmp_path)
    watched.log("wandb: View run at https://wandb.ai/me/digits/runs/1b2c\n")
    next_attempt = Watched(tmp_path)
    next_attempt.watch.catch_up()
    assert watched.job.profile.tracked_run == "https://wandb.ai/me/digits/runs/1b2c"
    assert next_attempt.job.profile.tracked_run == "https://wandb.ai/me/digits/runs/1b2c"


def test_next_attempt_takes_steps_from_bars_of_this_target_and_of_earlier_ones(tmp_path):
    """As of the Trainer of Hugging Face: without the targets, its parts of epochs would count."""
    earlier = " 40%|████      | 4000/10000 [00:01<00:02, 30.00it/s]\n{'loss': 0.7, 'epoch': 2.5}\n"
    watched = Watched(tmp_path)
    (tmp_path / "task-0.log").write_text(earlier)
    watched.watch.catch_up()
    assert watched.job.profile.iteration == 4000
    promoted = Watched(tmp_path)
    (tmp_path / "task-0.log").write_text(" 90%|███| 90/100 [00:01<00:02, 30.00it/s]\n{'loss': 0.7, 'epoch': 2.5}\n")
    promoted.job.earlier_targets = [50, 100]
    promoted.watch.catch_up()
    assert promoted.job.profile.iteration == 90


def test_log_without_a_cap_is_kept_whole(tmp_path):
    watched = Watched(tmp_path, log_mb=0)
    watched.log("chatter\n" * 300_000)
    watched.look()
    assert used_bytes(watched.job.log_path) >= watched.job.log_path.stat().st_size


def test_first_step_event_has_startup_times(tmp_path):
    watched = Watched(tmp_path)
    watched.log("INFO:themis:imported seconds = 2.5, after = 0.25\nINFO:themis:restored iteration = 7, seconds = 0.5\n")
    assert watched.details("first_step") == []
    watched.log("INFO:tensorflow:loss = 0.5, step = 8\n")
    (seen,) = watched.details("first_step")
    assert seen["seconds"] == {"process": 0.25, "import": 2.5, "restore": 0.5}


@pytest.mark.parametrize(("name", "iteration"), [("keras_bars", 96), ("keras_lines", 96), ("tf_cnn_benchmarks", 30)])
def test_plain_script_is_followed_by_its_log(tmp_path, name, iteration):
    watched = Watched(tmp_path)
    for line in (GOLDEN / f"{name}.log").read_text().splitlines(keepends=True):
        watched.log(line)
    assert watched.job.state is JobState.RUNNING
    assert len(watched.details("first_step")) == 1
    assert watched.details("job_progress")[-1]["iteration"] == iteration
    assert watched.details("job_progress")[-1]["iteration_s"] > 0.0


def test_silent_script_is_followed_by_event_files_in_job_folder(tmp_path):
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
def test_silent_script_is_followed_by_event_files_in_model_folder(tmp_path, settings, lies):
    (source,) = (GOLDEN / "summary_events").iterdir()
    folder, job = tmp_path / lies, tmp_path / "jobs" / "job-00"
    folder.mkdir(parents=True)
    job.mkdir(parents=True, exist_ok=True)
    (folder / source.name).write_bytes(source.read_bytes())
    watched = Watched(job, **{name: value.format(tmp_path) for name, value in settings.items()})
    watched.log("training\n")
    assert watched.job.profile.iteration == 40


def test_old_event_files_in_model_folder_are_ignored(tmp_path):
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
def test_model_folder_that_is_not_local_is_ignored(tmp_path, places):
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
def test_jobs_read_only_their_own_files(tmp_path, checkpoints, path, looked_at):
    folder = tmp_path / "job-00" / "jobs"
    watched = Watched(folder / "job-00", checkpoints=checkpoints.format(tmp_path), path=path.format(tmp_path))
    watched.app.search.jobs["job-01"] = Watched(folder / "job-01").job
    found = [os.path.relpath(each, tmp_path) for each in checkpoint_folders(watched.app, watched.job)]
    assert found == looked_at


def test_stall_is_reported_once_per_occurrence(tmp_path):
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


def test_divergence_is_reported_once(tmp_path):
    watched = Watched(tmp_path)
    for step in range(1, 6):
        watched.log(f"INFO:tensorflow:loss = nan, step = {step}\n")
    assert watched.details("job_diverged") == [{"iteration": 1, "losses": 2}]


def test_logs_of_earlier_attempts_emit_no_events(tmp_path):
    watched = Watched(tmp_path)
    watched.job.log_path.write_bytes((GOLDEN / "keras_lines.log").read_bytes())
    watched.watch.catch_up()
    watched.look()
    assert watched.job.profile.iteration == 96
    assert watched.seen == []


def test_last_lines_are_read_before_job_is_final(tmp_path):
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


def test_log_lines_count_for_their_incarnation(tmp_path, monkeypatch):
    monkeypatch.setattr(follower, "MAX_POLL_BYTES", 500)
    watched = Watched(tmp_path)
    lines = [f"INFO:tensorflow:loss = 0.5, step = {step} (2.000 sec)\n" for step in range(1, 101)]
    watched.job.log_path.write_text("".join(lines))
    watched.watch.drain(watched.job, ended_well=True)
    assert watched.job.profile.iteration == 100
    watched.job.profile.started(4, Level.RACK)
    watched.look()
    assert set(watched.job.profile.paces) == {Placement(1, Level.SLOT)}


def test_unterminated_last_line_is_read_and_kept_separate(tmp_path):
    watched = Watched(tmp_path)
    watched.log("INFO:tensorflow:loss = 0.5, step = 10\nINFO:tensorflow:loss = 0.25, step = 20")
    assert watched.job.profile.iteration == 10
    watched.watch.drain(watched.job, ended_well=True)
    assert (watched.job.profile.iteration, watched.job.loss) == (20, 0.25)
    watched.log("INFO:themis:restored iteration = 20, seconds = 0.5\nINFO:tensorflow:loss = 0.125, step = 30\n")
    assert watched.job.profile.restored is not None
    assert (watched.job.profile.iteration, watched.job.loss) == (30, 0.125)


def test_partial_line_of_killed_job_is_ignored_and_kept_separate(tmp_path):
    watched = Watched(tmp_path)
    watched.log("INFO:tensorflow:loss = 0.5, step = 10\nINFO:tensorflow:loss = 0.2")
    watched.watch.drain(watched.job, ended_well=False)
    assert watched.job.loss == 0.5
    watched.log("INFO:themis:restored iteration = 10, seconds = 0.5\n")
    assert watched.job.profile.restored is not None
    assert watched.job.loss == 0.5


def test_checkpoints_that_cannot_be_saved_are_reported_once_and_shown_until_one_is(tmp_path):
    watched = Watched(tmp_path)
    watched.log("INFO:themis:checkpoint iteration = 50, seconds = 0.1, bytes = 3\n")
    for iteration in (100, 150):
        watched.log(f"INFO:themis:unsaved iteration = {iteration}, reason = cannot save: No space left on device\n")
    assert watched.details("checkpoint_failed") == [
        {"iteration": 100, "reason": "cannot save: No space left on device"}
    ]
    assert watched.job.health == "no checkpoint since iteration 50: cannot save: No space left on device"
    watched.log("INFO:themis:checkpoint iteration = 200, seconds = 0.1, bytes = 3\n")
    assert watched.job.health == ""
    watched.log("INFO:themis:unsaved iteration = 250, reason = cannot save: Disk quota exceeded\n")
    assert len(watched.details("checkpoint_failed")) == 2
