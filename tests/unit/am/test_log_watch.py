"""What a job's log makes the app master tell."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from am.jobs.run import JobRun
from am.log_watch import LogWatch
from am.profiler.follower import LogFollower
from am.profiler.profile import JobProfile
from themis.apps import JobSpec
from themis.cluster import GpuId, Level
from themis.lifecycle import JobState


def test_progress_is_that_of_the_incarnation_not_of_one_that_crashed_further_on(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, object]]] = []
    app = SimpleNamespace(
        now_s=iter(range(0, 1000, 10)).__next__,
        restarted=lambda _: None,
        board=SimpleNamespace(progressed=lambda _: None, turn=lambda job, state: job.turn(state)),
    )
    log = tmp_path / "task-0.log"
    job = JobRun(
        spec=JobSpec(job_id="job-00", iterations_total=400),
        folder=tmp_path,
        profile=JobProfile(),
        follower=LogFollower(log),
        state=JobState.STARTING,
        gpus=(GpuId("m0", 0),),
        level=Level.SLOT,
        incarnation=1,
    )
    watch = LogWatch(app, lambda kind, _, detail: told.append((kind, dict(detail))), lambda: None)
    log.write_text("INFO:tensorflow:loss = 0.5, step = 350\n")
    watch.read(job)
    job.incarnation, job.stepped = 2, False
    with log.open("a") as file:
        file.write("INFO:tensorflow:loss = 0.6, step = 201\n")
    watch.read(job)
    progress = [(detail["incarnation"], detail["iteration"]) for kind, detail in told if kind == "job_progress"]
    assert progress == [(1, 350), (2, 201)]
    assert job.profile.iteration == 350
