"""Apps that a ResourceManager accepts or refuses, from any client."""

import asyncio
import math
import re
import tracemalloc

import pytest
from agent_cases import cluster_of
from msgspec.structs import replace

from rm_plugin.service.admission import check_app, types_that_run
from rm_plugin.service.memory_service import memory_service
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, MetricSpec, ProgramSpec, Slowdown, TunerSpec
from themis.cluster import Cluster, DeviceKind, DeviceType, Machine
from themis.errors import InputError

CLUSTER = cluster_of((2, 2), (2,), (1,))
JOB = JobSpec(job_id="job-00", iterations_total=10)
APP = AppSpec(user="user", name="app", tuner=TunerSpec(name="none"), program=ProgramSpec(name="replay"), jobs=(JOB,))


def with_job(**changes):
    return replace(APP, jobs=(replace(JOB, **changes),))


def test_valid_app_is_accepted():
    check_app(APP, CLUSTER)
    check_app(with_job(shape=JobShape(tasks=3, gpus_per_task=2)), CLUSTER)
    check_app(with_job(job_id="application_1506638472019_10258"), CLUSTER)


def test_further_apps_are_checked_without_a_walk_over_all_machines():
    walks = []

    class Machines(tuple):
        def __iter__(self):
            walks.append(self)
            return super().__iter__()

    cluster = Cluster(name="c", machines=Machines(CLUSTER.machines))
    check_app(APP, cluster)
    first = len(walks)
    check_app(APP, cluster)
    assert first and len(walks) == first


@pytest.mark.parametrize(
    ("app", "message"),
    [
        (replace(APP, name="../up"), "the app submitted: a name is up to 63 of a-z"),
        (replace(APP, name="app-0001"), "the app submitted: a name must not look like the id of an app"),
        (replace(APP, user="al\nice"), "the app submitted: user is not text that can be shown: 'al\\nice'"),
        (replace(APP, queue="=1+1"), "queue does not begin with a letter, a digit or '_': '=1+1'"),
        (replace(APP, queue=""), "the app submitted: queue is not text that can be shown: ''"),
        (with_job(job_id="../../etc"), "unusable job id: '../../etc'; use 1 to 200 characters that can be shown"),
        (with_job(job_id=".."), "unusable job id"),
        (with_job(job_id="j\x1b[2J"), "unusable job id"),
        (with_job(job_id="j" * 201), "unusable job id"),
        (
            with_job(shape=JobShape(gpus_per_task=5)),
            "no machine of c has enough GPUs for one task: 5; ask",
        ),
        (with_job(shape=JobShape(tasks=4, gpus_per_task=2)), "job job-00 is larger than the cluster c of 7 GPUs"),
        (replace(APP, checkpoint_uri="s3://b/c"), "unknown scheme in a checkpoint URI"),
        (
            replace(APP, estimate=Estimate(slowdown=Slowdown(1.0, 1.0, 1.0, math.inf))),
            "estimate.slowdown must be a number above 0",
        ),
    ],
)
def test_invalid_apps_are_refused_with_reason(app, message):
    with pytest.raises(InputError) as refused:
        check_app(app, CLUSTER)
    assert message in str(refused.value)


def test_size_of_a_command_is_known_without_filling_it_in():
    """Anyone may send this; it would be 180 MB, and more with more placeholders."""
    program = ProgramSpec(command="%a%" * 2_000, arguments={"a": "x" * 90_000})
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="the command of job-00 cannot be run: '180000000 bytes'"):
            check_app(replace(APP, program=program), CLUSTER)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_size_of_a_command_counts_each_value_as_often_as_it_is_there():
    program = ProgramSpec(command="%a% %a% %b%", arguments={"a": "x" * 40_000, "b": "y"})
    check_app(replace(APP, program=program), CLUSTER)
    longer = replace(with_job(hyper_parameters={"a": "x" * 50_000}), program=program)
    with pytest.raises(InputError, match="'100003 bytes'"):
        check_app(longer, CLUSTER)


def test_machines_are_not_looked_at_once_for_each_job(monkeypatch):
    """10,000 jobs on a cluster of 1,000 machines held the service for six seconds."""
    seen = []
    gpus = Machine.gpus
    monkeypatch.setattr(Machine, "gpus", property(lambda machine: seen.append(machine) or gpus.fget(machine)))
    counts = []
    for jobs in (1, 50):
        app = replace(APP, jobs=tuple(replace(JOB, job_id=f"job-{place}") for place in range(jobs)))
        check_app(app, replace(CLUSTER))
        counts.append(len(seen))
        seen.clear()
    assert counts[0] == counts[1]


def test_regular_expression_of_a_user_is_never_compiled_here(monkeypatch):
    """With 1,000 characters that alone can take the service a minute."""
    monkeypatch.setattr(re, "compile", lambda *_: pytest.fail("compiled"))
    check_app(replace(APP, metric=MetricSpec(name="loss", regex=r"(?i)([\0-\U0010ffff])" * 10)), CLUSTER)


# ---- device types ----------------------------------------------------------------------------------------------------

MIXED = Cluster(
    name="mixed",
    machines=tuple(
        Machine(machine_id=f"m{number}", rack_id="r", slots=slots, device=device)
        for number, (slots, device) in enumerate([((4,), "k80"), ((2,), "v100"), ((2,), "v100"), ((1,), "cpu")])
    ),
    devices={
        "k80": DeviceType(name="k80"),
        "v100": DeviceType(name="v100", speed=3.0),
        "cpu": DeviceType(name="cpu", kind=DeviceKind.CPU),
        "a100": DeviceType(name="a100", speed=9.0),
    },
)
CPU_ONLY = replace(MIXED, machines=MIXED.machines[3:])


def test_an_app_that_one_device_type_can_hold_is_taken():
    check_app(with_job(shape=JobShape(tasks=4)), MIXED)
    check_app(with_job(speed_by_device={"cpu": 0.2}), CPU_ONLY)


@pytest.mark.parametrize(
    ("job", "cluster", "message"),
    [
        (
            {"speed_by_device": {"v10": 2.0}},
            MIXED,
            "unknown device type in estimate.speed of job job-00: 'v10'; did you mean 'v100'?",
        ),
        (
            {"speed_by_device": {"a100": 2.0}},
            MIXED,
            "estimate.speed of job job-00: no machine of mixed has this type: 'a100'",
        ),
        ({}, CPU_ONLY, "job job-00 can run on no device type of mixed; give its speed"),
        ({"shape": JobShape(tasks=5)}, MIXED, "job job-00 is larger than the 4 GPUs of type k80 in the cluster mixed"),
    ],
)
def test_an_app_that_no_device_type_can_hold_is_refused(job, cluster, message):
    with pytest.raises(InputError) as refused:
        check_app(with_job(**job), cluster)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({}, "runs on v100 (speed 3), k80 (speed 1), not on cpu"),
        ({"speed_by_device": {"k80": 0.5, "cpu": 4.0}}, "runs on cpu (speed 4), v100 (speed 3), k80 (speed 0.5)"),
    ],
)
def test_device_types_that_run_an_app_are_named_with_its_speeds(job, expected):
    assert types_that_run(with_job(**job), MIXED) == expected


def test_a_type_without_room_for_the_smallest_gang_runs_no_job():
    pairs = {"speed_by_device": {"cpu": 4.0}, "shape": JobShape(gpus_per_task=2)}
    assert types_that_run(with_job(**pairs), MIXED) == "runs on v100 (speed 3), k80 (speed 1), not on cpu"


def test_a_task_that_no_machine_can_hold_is_refused_with_the_largest_machine():
    # The job can run on CPU nodes too, which have one device each.
    with pytest.raises(InputError, match="no machine of mixed has enough GPUs for one task: 5; ask for at most 4 GPUs"):
        check_app(with_job(shape=JobShape(gpus_per_task=5), speed_by_device={"cpu": 1.0}), MIXED)


def test_speeds_of_different_jobs_are_a_range():
    app = with_job()
    other = replace(app.jobs[0], job_id="job-01", speed_by_device={"v100": 2.0})
    reported = types_that_run(replace(app, jobs=(app.jobs[0], other)), MIXED)
    assert reported == "runs on v100 (speed 2 to 3), k80 (speed 1), not on cpu"


def test_device_types_need_no_name_on_a_cluster_of_one():
    assert types_that_run(with_job(), CLUSTER) == ""


@pytest.mark.parametrize(("policy", "refused"), [("allox", True), ("srtf", False)])
def test_gang_is_refused_under_policy_that_gives_each_job_one_device(tmp_path, policy, refused):
    job = JobSpec(job_id="job-0", iterations_total=10, shape=JobShape(tasks=2, min_tasks=2))

    async def scenario():
        async with memory_service(tmp_path, policy=policy) as rm:
            if refused:
                with pytest.raises(InputError, match="policy allox gives each job one device"):
                    await rm.manager.submit(replace(APP, jobs=(job,)))
            else:
                await rm.manager.submit(replace(APP, jobs=(job,)))
            assert len(list(rm.entries)) == (0 if refused else 1)

    asyncio.run(scenario())
