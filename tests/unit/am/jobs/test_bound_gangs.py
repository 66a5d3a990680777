"""Jobs on GPUs that are bound to them."""

from am.jobs.bound_gangs import plan_bound
from themis.cluster import GpuId

G0, G1 = GpuId("m0", 0), GpuId("m0", 1)


def test_waiting_job_starts_on_its_gpu():
    plan = plan_bound({}, ["a", "b"], [], {}, {G0: "a"})
    assert (plan.start, plan.stop, plan.release) == ({"a": (G0,)}, {}, ())


def test_running_job_stays():
    plan = plan_bound({"a": (G0,)}, ["b"], [], {}, {G0: "a"})
    assert (plan.start, plan.stop, plan.release) == ({}, {}, ())


def test_gpu_goes_back_when_its_job_has_ended_although_another_waits():
    plan = plan_bound({}, ["b"], [], {}, {G0: "a"})
    assert (plan.start, plan.release) == ({}, (G0,))


def test_gpu_stays_while_a_stopped_job_still_runs_there():
    plan = plan_bound({}, [], [], {"a": (G0,)}, {G0: "a"})
    assert plan.release == ()


def test_job_waits_until_its_gpu_is_idle():
    plan = plan_bound({"b": (G0,)}, ["a"], [], {}, {G0: "a"})
    assert (plan.start, plan.release) == ({}, ())
    assert plan.stop == {"b": "its GPUs are for another job"}


def test_gang_that_has_one_gpu_of_another_job_stops():
    plan = plan_bound({"b": (G0, G1)}, ["a"], [], {}, {G0: "a"})
    assert plan.stop == {"b": "its GPUs are for another job"}


def test_gpu_of_a_job_that_runs_elsewhere_goes_back():
    plan = plan_bound({"a": (G0,)}, [], [], {}, {G1: "a"})
    assert plan.release == (G1,)


def test_gpu_stays_for_a_job_that_loses_the_gpu_on_which_it_runs():
    plan = plan_bound({"a": (G0,)}, [], ["a"], {}, {G1: "a"})
    assert (plan.start, plan.release) == ({}, ())
