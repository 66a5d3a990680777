"""What a silent app does not report gains it no GPUs: its claim is no larger than with the truth reported."""

from agent_cases import cluster_of
from hypothesis import given
from hypothesis import strategies as st

from am.agent.model.fairness import Valuer, ideal_time_s
from am.agent.model.finish_time import finish_time_s
from am.app_view import (
    UNKNOWN_PACE_S,
    JobProgress,
    app_view,
    held_gang,
    make_cluster_view,
    phase_views,
    reference_job,
    work_gpu_s,
)
from am.profiler.profile import JobProfile
from am.profiler.records import StepLoss
from am.tuners.port import Phase, TunerPlan
from themis.apps import Estimate, JobShape, JobSpec
from themis.choices import BundleRule
from themis.cluster import GpuId, Level

CLUSTER = cluster_of((4,), (4,))
GPUS = tuple(GpuId("m0", place) for place in range(4))
SHAPE = JobShape(tasks=4, min_tasks=4)
ITERATIONS = 1000
LEASE_S = 20.0


def claim(serial_s, done, held, elapsed_s, contention, ran_s=0.0):
    """Return the view of an app of one job, its rho and its fair-share time; silent if `serial_s` is None."""
    profile = JobProfile(Estimate(serial_iteration_s=serial_s))
    profile.started(4, Level.MACHINE)
    for second in range(0, int(ran_s), 5):
        profile.look(float(second))
    if done:
        profile.feed(StepLoss(step=done, loss=1.0))
    spec = JobSpec(job_id="j", iterations_total=ITERATIONS, shape=SHAPE)
    jobs = {"j": JobProgress(spec=spec, profile=profile, silent=serial_s is None)}
    phases = (Phase(jobs=1, iterations=ITERATIONS),)
    plan = TunerPlan(phase=0, phases=phases, targets={"j": ITERATIONS}, stopped=frozenset(), finished=False, best=None)
    gangs = (held_gang("j", GPUS, (), CLUSTER),) if held else ()
    view = app_view(
        "app",
        plan,
        phase_views(jobs, plan),
        reference_job(jobs),
        elapsed_s=elapsed_s,
        contention=contention,
        work_total_gpu_s=work_gpu_s(jobs, phases),
        demand_max_gpus=4,
        held=gangs,
        restart_s=1.0,
    )
    cluster = make_cluster_view(CLUSTER, active_apps=int(contention), lease_s=LEASE_S, rule=BundleRule.CONTINUATION)
    time_s = finish_time_s(view, [gang.at for gang in view.held], cluster)
    return Valuer.of(view, cluster).rho(time_s), ideal_time_s(view, cluster)


@given(
    st.floats(1e-3, UNKNOWN_PACE_S * 4 / ITERATIONS),
    st.floats(0, 1),
    st.booleans(),
    st.floats(0, 1e5),
    st.integers(1, 8),
)
def test_silent_app_claims_no_more_than_it_would_by_reporting(serial_s, share, held, elapsed_s, contention):
    # It has done at most what its fair share of the time since its submission allows. For one that has done nearly as
    # much, the elapsed share of a day is what silence may add.
    _, ideal_s = claim(serial_s, 0, held, 0.0, contention)
    done = min(ITERATIONS - 1, int(share * ITERATIONS * elapsed_s / ideal_s))
    honest, _ = claim(serial_s, done, held, elapsed_s, contention)
    silent, _ = claim(None, 0, held, elapsed_s, contention)
    slack = (elapsed_s + LEASE_S) / (UNKNOWN_PACE_S * contention) if done else 0.0
    assert silent <= honest * (1 + 1e-9) + slack


@given(st.floats(0, UNKNOWN_PACE_S), st.integers(1, 8))
def test_rho_of_a_silent_app_that_waits_is_bounded_for_a_day(elapsed_s, contention):
    rho, _ = claim(None, 0, False, elapsed_s, contention)
    assert rho <= 2.1


def test_assumed_work_grows_with_the_time_that_a_silent_job_has_run():
    def serial_s(ran_s):
        profile = JobProfile()
        profile.started(4, Level.MACHINE)
        for second in range(0, ran_s + 1, 5):
            profile.look(float(second))
        spec = JobSpec(job_id="j", iterations_total=1, shape=SHAPE)
        return JobProgress(spec=spec, profile=profile, silent=True).serial_iteration_s

    day = int(UNKNOWN_PACE_S)
    assert serial_s(600) == 4 * day
    assert serial_s(day) == 2 * 4 * day


def test_silent_job_that_has_ended_counts_with_its_measured_time():
    profile = JobProfile()
    profile.started(4, Level.MACHINE)
    for second in range(0, 61, 5):
        profile.look(float(second))
    spec = JobSpec(job_id="j", iterations_total=1, shape=SHAPE)
    assert JobProgress(spec=spec, profile=profile, silent=True, ended=True).serial_iteration_s == 4 * 60.0
