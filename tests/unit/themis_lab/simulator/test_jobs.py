import pytest
from sim_cases import FAR, job

from themis.cluster import GpuId, Level
from themis_lab.simulator.jobs import SimJob

HERE = (GpuId("m0", 0), GpuId("m0", 1))


def started(**shape):
    sim = SimJob(job(iterations=100, serial_s=2.0, gpus=2, slowdown=FAR, **shape))
    sim.target = 100
    return sim


def test_progress_is_whole_iterations_from_when_it_is_ready():
    sim = started()
    assert sim.start(HERE, Level.MACHINE, now_s=10.0, delay_s=5.0) == pytest.approx(115.0)
    assert [sim.iteration_at(at_s) for at_s in (10.0, 15.0, 15.5, 16.0, 17.99, 18.0)] == [0, 0, 0, 1, 2, 3]


def test_distant_gpus_make_a_job_slower():
    sim = started()
    assert sim.start(HERE, Level.RACK, now_s=0.0, delay_s=0.0) == pytest.approx(200.0)
    assert sim.start(HERE, Level.CLUSTER, now_s=0.0, delay_s=0.0) == pytest.approx(400.0)


def test_it_does_not_pass_its_target():
    sim = started()
    sim.start(HERE, Level.SLOT, now_s=0.0, delay_s=0.0)
    assert sim.iteration_at(1e9) == 100


def test_a_view_has_an_iteration_left_and_is_cached_until_a_change():
    sim = started()
    sim.start(HERE, Level.SLOT, now_s=0.0, delay_s=0.0)
    assert sim.view(50.0).iterations_left == 50
    assert sim.view(50.5) is sim.view(50.4)
    assert sim.view(1e9).iterations_left == 1


def test_type_is_measured_after_three_iterations_beyond_the_first_one_of_each_start():
    sim = started()
    sim.start(HERE, Level.SLOT, now_s=0.0, delay_s=0.0, device="cpu")
    assert (sim.view(3.0).measured, sim.view(4.0).measured) == ((), ("cpu",))
    sim.halt(3, interrupted=True)
    assert sim.view(4.0).measured == ()
    sim.start(HERE, Level.SLOT, now_s=10.0, delay_s=0.0, device="gpu")
    sim.halt(8, interrupted=True)
    sim.start(HERE, Level.SLOT, now_s=20.0, delay_s=0.0, device="cpu")
    assert sim.view(21.0).measured == ("gpu",)
    assert sim.view(22.0).measured == ("cpu", "gpu")
