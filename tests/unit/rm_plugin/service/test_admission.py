"""Apps that a ResourceManager takes, and those that it refuses, whichever client submits them."""

import pytest
from agent_cases import cluster_of
from msgspec.structs import replace

from rm_plugin.service.admission import check_app
from themis.apps import AppSpec, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.errors import InputError

CLUSTER = cluster_of((2, 2), (2,), (1,))
JOB = JobSpec(job_id="job-00", iterations_total=10)
APP = AppSpec(name="app", tuner=TunerSpec(name="none"), program=ProgramSpec(name="replay"), jobs=(JOB,))


def with_job(**changes):
    return replace(APP, jobs=(replace(JOB, **changes),))


def test_an_app_that_fits_is_taken():
    check_app(APP, CLUSTER)
    check_app(with_job(shape=JobShape(tasks=3, gpus_per_task=2)), CLUSTER)
    check_app(with_job(job_id="application_1506638472019_10258"), CLUSTER)


@pytest.mark.parametrize(
    ("app", "told"),
    [
        (replace(APP, name="../up"), "the app submitted: a name is up to 63 of a-z"),
        (replace(APP, user="al\nice"), "the app submitted: user is not text that can be shown: 'al\\nice'"),
        (replace(APP, queue=""), "the app submitted: queue is not text that can be shown: ''"),
        (with_job(job_id="../../etc"), "unusable job id: '../../etc'; use 1 to 200 characters that can be shown"),
        (with_job(job_id=".."), "unusable job id"),
        (with_job(job_id="j\x1b[2J"), "unusable job id"),
        (with_job(job_id="j" * 201), "unusable job id"),
        (
            with_job(shape=JobShape(gpus_per_task=5)),
            "no machine of c holds a task of so many GPUs: 5; ask",
        ),
        (with_job(shape=JobShape(tasks=4, gpus_per_task=2)), "job job-00 is larger than the cluster c of 7 GPUs"),
        (replace(APP, checkpoint_uri="s3://b/c"), "unknown scheme in a checkpoint URI"),
    ],
)
def test_others_are_refused_with_the_reason(app, told):
    with pytest.raises(InputError) as refused:
        check_app(app, CLUSTER)
    assert told in str(refused.value)
