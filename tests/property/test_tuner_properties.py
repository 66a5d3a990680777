"""Tuners under random observations: deterministic, replayable at every prefix, and always with something to do."""

import math

from hypothesis import given
from hypothesis import strategies as st

from am.tuners.port import Observation, ObservationKind
from am.tuners.single import single
from am.tuners.successive_halving import successive_halving
from themis.apps import JobSpec

LOSS = st.one_of(st.floats(0.0, 3.0), st.sampled_from([math.nan, math.inf, 1.0]))
TOTALS = st.lists(st.integers(1, 60), min_size=1, max_size=7)


def build(totals, eta):
    jobs = [JobSpec(job_id=f"j{index}", iterations_total=total) for index, total in enumerate(totals)]
    return single(jobs) if eta is None else successive_halving(jobs, eta=eta)


def facts(tuner):
    """The plan as a comparable value."""
    plan = tuner.plan()
    return plan.phase, plan.phases, dict(plan.targets), plan.stopped, plan.finished, plan.best


TUNERS = st.builds(lambda totals, eta: (totals, eta), TOTALS, st.one_of(st.none(), st.integers(2, 4)))


@st.composite
def any_observations(draw, jobs):
    return [
        Observation(
            kind=draw(st.sampled_from(ObservationKind)),
            job_id=f"j{draw(st.integers(0, jobs - 1))}",
            iteration=draw(st.integers(0, 70)),
            loss=draw(LOSS),
        )
        for _ in range(draw(st.integers(0, 40)))
    ]


@given(TUNERS, st.data())
def test_replay_of_every_prefix_gives_the_same_state(arguments, data):
    observations = data.draw(any_observations(len(arguments[0])))
    live = build(*arguments)
    for count, observation in enumerate(observations, start=1):
        live.observe(observation)
        replayed = build(*arguments)
        for old in observations[:count]:
            replayed.observe(old)
        assert facts(replayed) == facts(live)


@given(TUNERS, st.data())
def test_a_repeated_observation_changes_nothing(arguments, data):
    tuner = build(*arguments)
    for observation in data.draw(any_observations(len(arguments[0]))):
        tuner.observe(observation)
        once = facts(tuner)
        tuner.observe(observation)
        assert facts(tuner) == once


@given(TUNERS, st.data())
def test_invariants_hold_and_the_end_is_reached(arguments, data):
    totals, _ = arguments
    tuner = build(*arguments)
    given_up = set()
    best_at_end = None
    for _ in range(200):
        plan = tuner.plan()
        check(plan, totals, given_up)
        if plan.finished:
            best_at_end = plan.best
            break
        job = data.draw(st.sampled_from(sorted(plan.targets)))
        kind = data.draw(st.sampled_from([ObservationKind.TARGET_REACHED] * 5 + [ObservationKind.FAILED]))
        if kind is ObservationKind.FAILED:
            given_up.add(job)
        tuner.observe(Observation(kind=kind, job_id=job, iteration=plan.targets[job], loss=data.draw(LOSS)))
    assert tuner.plan().finished
    assert best_at_end is None or best_at_end not in given_up | plan.stopped


def check(plan, totals, given_up):
    assert plan.finished == (not plan.targets)
    assert plan.finished == (not plan.phases)
    for job, target in plan.targets.items():
        assert 1 <= target <= totals[int(job[1:])]
        assert job not in plan.stopped | given_up
    sizes = [phase.jobs for phase in plan.phases]
    assert sizes == sorted(sizes, reverse=True)
    assert all(phase.jobs >= 1 and phase.iterations >= 1 for phase in plan.phases)
    if plan.phases:
        assert len(plan.targets) <= plan.phases[0].jobs
