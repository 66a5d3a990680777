"""What a silent app does not report gains it no GPUs: its claim is no larger than with the truth reported."""

import pytest
from agent_cases import cluster_of
from hypothesis import given, settings
from hypothesis import strategies as st
from silent_cases import TimedApp, play, stay_of

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


class TestSharedCluster:
    """Rounds of `fair_finish` on 8 GPUs, leases of 20 s. No silent job lives long enough to be known as one."""

    @staticmethod
    def silent_apps(count, takes_s, submitted_s, told=False, **shape):
        return [
            TimedApp(
                f"silent-{place}",
                takes_s=takes_s,
                states_s=takes_s if told else None,
                submitted_s=submitted_s + place,
                **shape,
            )
            for place in range(count)
        ]

    @staticmethod
    def honest_app(submitted_s, takes_s):
        return TimedApp("honest", takes_s=takes_s, states_s=takes_s, submitted_s=submitted_s)

    @pytest.mark.parametrize("policy", ["fair_finish", "srtf", "srsf", "tiresias"])
    def test_honest_app_shares_with_two_silent_ones_within_a_lease(self, policy):
        silent, honest = self.silent_apps(2, 120.0, 0), self.honest_app(5, 60.0)
        seen = play([*silent, honest], 300, policy)
        first_s, longest_s, _ = stay_of(seen, honest)
        assert first_s - honest.submitted_s <= LEASE_S
        assert longest_s <= LEASE_S + 1
        assert all(stay_of(seen, each)[2] < 300 for each in silent), "the silent ones end too"

    @pytest.mark.parametrize("policy", ["fair_finish", "srtf", "srsf", "tiresias"])
    def test_silent_apps_that_come_later_take_an_honest_one_its_gpus_for_a_lease_at_most(self, policy):
        silent, honest = self.silent_apps(2, 120.0, 2), self.honest_app(0, 60.0)
        _, longest_s, _ = stay_of(play([*silent, honest], 300, policy), honest)
        assert longest_s <= LEASE_S + 1

    @pytest.mark.parametrize("told", [False, True])
    def test_search_of_short_silent_jobs_takes_no_more_than_with_an_estimate(self, told):
        """40 jobs of 30 s, of which none runs for 45 s."""
        silent, honest = self.silent_apps(1, 30.0, 0, told, jobs=40, gang=2), self.honest_app(5, 300.0)
        seen = play([*silent, honest], 300)
        assert {gpus["honest"] for gpus in seen[20:]} == {4}

    @settings(max_examples=15)
    @given(
        st.sampled_from([(1, 1, 4), (2, 1, 4), (3, 1, 4), (1, 40, 2)]),
        st.floats(5.0, 400.0),
        st.floats(20.0, 200.0),
        st.booleans(),
    )
    def test_honest_app_ends_no_later_than_if_the_others_told_their_pace(self, kind, takes_s, honest_s, first):
        """But for a lease: so much a new app gets, to report with."""
        count, jobs, gang = kind
        ends = []
        for told in (False, True):
            silent = self.silent_apps(count, takes_s, 0 if first else 2, told, jobs=jobs, gang=gang)
            honest = self.honest_app(5 if first else 0, honest_s)
            ends.append(stay_of(play([*silent, honest], 700), honest)[2])
        assert ends[0] <= ends[1] + LEASE_S

    def test_app_without_an_estimate_soon_gets_gpus_to_report_with(self):
        """Two honest apps of an hour hold all GPUs. With the day of a silent job it would wait for both."""
        honest = [TimedApp(f"honest-{place}", takes_s=3_600.0, states_s=3_600.0) for place in range(2)]
        fresh = TimedApp("fresh", takes_s=10.0, submitted_s=30)
        first_s, _, _ = stay_of(play([*honest, fresh], 100), fresh)
        assert first_s - fresh.submitted_s <= LEASE_S
