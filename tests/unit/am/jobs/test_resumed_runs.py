"""The run of a job in MLflow: reported, shown, and given to the next start, of the same app master and of the next."""

import asyncio

from attempt_cases import Attempt

from am.status import job_status

RUN = "0123456789abcdef0123456789abcdef"
TRACKED = {"MLFLOW_TRACKING_URI": "http://ml.example.org"}


def test_reported_run_is_shown_and_resumed_by_later_starts(tmp_path):
    first = Attempt(tmp_path, tuner="single", iterations=10, jobs=("j0",), environment=TRACKED)
    given = []

    async def scenario(one, *lines):
        await one.start("j0")
        job = one.jobs["j0"]
        given.append(job.handles[0].launch.environment.get("MLFLOW_RUN_ID"))
        with job.log_path.open("a") as log:
            log.write("".join(f"{line}\n" for line in lines))
        one.look()
        one.runner.stop(job, "its lease ends")
        job.handles[0].end(75)
        await one.ended("j0")

    asyncio.run(scenario(first, f'INFO:themis:run "{RUN}"', "step 1 loss 0.5"))
    shown = job_status(first.app, first.jobs["j0"], first.app.search.plan())
    assert shown.tracked_run == RUN
    asyncio.run(scenario(first, "step 2 loss 0.4"))
    first.journal.close()
    asyncio.run(scenario(Attempt(tmp_path, tuner="single", iterations=10, jobs=("j0",), environment=TRACKED)))
    assert given == [None, RUN, RUN]
