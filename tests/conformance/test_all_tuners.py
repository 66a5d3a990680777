"""What every registered tuner promises to the app master, whichever rule it follows."""

import inspect
import math
import os
import random
import subprocess
import sys

import pytest
from documents import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from tuner_cases import Search, facts, failed, jobs_of, make, progress, reached

from am.journal import Journal
from am.tuners.port import Observation, ObservationKind
from am.tuners.registry import TUNERS
from themis.config.tuner_settings import TUNERS as KNOWN

VARIANTS = [
    ("single", {}),
    ("successive_halving", {}),
    ("successive_halving", {"eta": 3, "first_iterations": 1}),
    ("hyperband", {}),
    ("hyperband", {"eta": 2, "max_resource": 1}),
    ("asynchronous_halving", {}),
    ("asynchronous_halving", {"eta": 4, "first_iterations": 1}),
    ("median_stopping", {}),
    ("median_stopping", {"warmup": 1, "min_jobs": 1}),
    ("performance_curve", {}),
    ("performance_curve", {"threshold": 0.4, "warmup": 1, "interval": 1}),
    ("optuna", {}),
    ("optuna", {"pruner": "median", "n_startup_trials": 1}),
    ("optuna", {"pruner": "successive_halving", "min_resource": 1, "reduction_factor": 2}),
    ("optuna", {"sampler": "tpe", "startup_trials": 2, "parallel": 2}),
    ("optuna", {"sampler": "random", "trials": 4, "parallel": 3, "seed": 7}),
    ("optuna", {"sampler": "tpe", "startup_trials": 1, "pruner": "median", "n_startup_trials": 1}),
]
EACH = pytest.mark.parametrize(("name", "chosen"), VARIANTS, ids=lambda value: value if isinstance(value, str) else "")
BARRIERS = ("single", "successive_halving", "hyperband")
"""Tuners whose jobs wait for each other: sizes of their phases never grow, and what they plan is what they run."""

LOSS = st.one_of(st.floats(0.0, 3.0), st.sampled_from([math.nan, math.inf, 1.0]))
TOTALS = st.lists(st.integers(1, 60), min_size=1, max_size=9)
FEW = settings(max_examples=20, deadline=None)


@st.composite
def any_observations(draw, count):
    """All observations that an app master may send, in any order: stale, repeated, beyond the end."""
    return [
        Observation(
            kind=draw(st.sampled_from(ObservationKind)),
            job_id=f"j{draw(st.integers(0, count - 1)):02d}",
            iteration=draw(st.integers(0, 70)),
            loss=draw(LOSS),
        )
        for _ in range(draw(st.integers(0, 30)))
    ]


class Checked(Search):
    """A search that checks at each step what must hold of every plan."""

    def __post_init__(self):
        super().__post_init__()
        # Halving from `first_iterations` on may end before the jobs do.
        whole = sum(phase.iterations for phase in self.plan.phases)
        self.ends = {arm.job_id: min(arm.iterations_total, whole) for arm in self.arms}
        self.trials = None
        self.ran, self.replaced = set(), set()
        self.check(self.plan)

    def tell(self, observation):
        before = self.plan
        if observation.kind is ObservationKind.FAILED:
            self.replaced |= {observation.job_id} - before.stopped
        super().tell(observation)
        after = self.plan
        self.check(after)
        assert not (after.stopped - before.stopped) & self.given_up
        back = before.stopped - after.stopped
        assert len(back) <= 1
        assert not back or not self.at.keys() - before.stopped - self.given_up, "taken back though others live"
        assert before.phase <= after.phase
        for job_id, target in after.targets.items():
            assert target >= before.targets.get(job_id, 0)

    def check(self, plan):
        totals = {arm.job_id: arm.iterations_total for arm in self.arms}
        assert plan.finished == (not plan.targets) == (not plan.phases)
        assert not plan.targets.keys() & (plan.stopped | self.given_up)
        assert plan.stopped <= totals.keys()
        assert plan.best is None or plan.best not in plan.stopped | self.given_up
        for job_id, target in plan.targets.items():
            assert self.reached[job_id] < target <= totals[job_id], "a job runs no iteration twice and none too many"
        self.ran |= plan.targets.keys()
        if self.trials is not None:
            assert len(self.ran - self.replaced) <= self.trials, "as many jobs are run as trials are asked for"
        assert plan.latest.keys() <= plan.targets.keys()
        for job_id, latest in plan.latest.items():
            assert self.at[job_id] < latest < plan.targets[job_id]
        self.check_phases(plan)

    def check_phases(self, plan):
        assert all(phase.jobs >= 1 and phase.iterations >= 1 for phase in plan.phases)
        if plan.phases:
            assert len(plan.targets) <= plan.phases[0].jobs <= len(self.arms)
        sizes = [phase.jobs for phase in plan.phases]
        if self.tuner.name in BARRIERS:
            assert sizes == sorted(sizes, reverse=True)

    def check_end(self):
        plan = self.plan
        assert plan.finished
        finished = self.at.keys() - plan.stopped - self.given_up
        for job_id in finished:
            assert self.reached[job_id] == self.ends[job_id]
        assert plan.best in finished if finished else plan.best is None
        assert finished or self.given_up == self.at.keys(), "it ended though a job lives"
        # Nothing that comes late changes the end.
        before = facts(self.tuner)
        for job_id in self.at:
            for late in (progress(job_id, 999, 0.0), reached(job_id, 999, 0.0), failed(job_id)):
                self.tuner.observe(late)
        assert facts(self.tuner) == before


def test_every_tuner_that_is_registered_is_tested():
    assert {name for name, _ in VARIANTS} == set(TUNERS) == set(KNOWN)


@pytest.mark.parametrize("name", TUNERS)
def test_settings_are_the_tuners_own(name):
    """The table that group files are checked by, against what the tuner takes."""
    taken = inspect.signature(TUNERS[name]).parameters
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        assert set(KNOWN[name].settings) == set(taken) - {"jobs"}


@EACH
def test_it_begins_with_all_jobs(name, chosen):
    """B follows from the first plan: its first phase holds every job, with its iterations of that phase.

    Where a sampler chooses the jobs, it holds as many as run at once, and the later phases the others.
    """
    arms = jobs_of([40] * 7)
    plan = make(name, arms, **chosen).plan()
    if "sampler" in chosen:
        at_once = chosen.get("parallel", 4)
        assert len(plan.targets) == plan.phases[0].jobs == at_once
        assert sum(phase.jobs for phase in plan.phases) == chosen.get("trials", 7)
        assert all(phase.jobs <= at_once for phase in plan.phases)
    else:
        assert plan.targets.keys() == {arm.job_id for arm in arms}
        assert plan.phases[0].jobs == 7
    assert set(plan.targets.values()) == {plan.phases[0].iterations}
    assert (plan.phase, plan.stopped, plan.best, dict(plan.latest)) == (0, frozenset(), None, {})


@EACH
@FEW
@given(TOTALS, st.data())
def test_any_search_comes_to_its_end(name, chosen, totals, data):
    """Jobs of any speed that log any loss, or fail: each is stopped, failed or ran to its end, and none twice.

    Those that run fail, or any: also one that the tuner has just stopped, or that waits for others at its target.
    """
    search = Checked(make(name, jobs_of(totals), **chosen), jobs_of(totals))
    search.trials = chosen.get("trials")
    # A draw at every step would be slow: one seed makes the whole story.
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    losses = data.draw(st.lists(LOSS, min_size=1, max_size=8))
    failing = data.draw(st.sampled_from([0.0, 0.0, 0.1, 0.5]))
    any_fails = data.draw(st.booleans())
    for _ in range(sum(totals) + len(totals) + 1):
        if search.plan.finished:
            break
        job_id = rng.choice(sorted(search.plan.targets))
        if rng.random() < failing:
            search.give_up(rng.choice(sorted(search.at.keys() - search.given_up)) if any_fails else job_id)
        else:
            search.step(job_id, rng.choice((1, 5, 60)), lambda *_: rng.choice(losses) * rng.choice((1.0, 0.5)))
    search.check_end()


@EACH
@FEW
@given(TOTALS, st.data())
def test_a_replay_of_every_prefix_gives_the_same_state(name, chosen, totals, data):
    """It plans the same, and goes on planning the same: whatever it keeps beside its plan is there as well."""
    seen = data.draw(any_observations(len(totals)))
    live = make(name, jobs_of(totals), **chosen)
    planned = []
    for count, observation in enumerate(seen, start=1):
        live.observe(observation)
        planned.append(facts(live))
        again = make(name, jobs_of(totals), **chosen)
        for old in seen[:count]:
            again.observe(old)
        assert facts(again) == planned[-1]
    known = data.draw(st.integers(0, len(seen)))
    again = make(name, jobs_of(totals), **chosen)
    for old in seen[:known]:
        again.observe(old)
    for observation, expected in zip(seen[known:], planned[known:], strict=True):
        again.observe(observation)
        assert facts(again) == expected


@EACH
@FEW
@given(TOTALS, st.data())
def test_repeated_and_stale_observations_change_nothing(name, chosen, totals, data):
    tuner = make(name, jobs_of(totals), **chosen)
    seen = data.draw(any_observations(len(totals)))
    newest = dict.fromkeys((arm.job_id for arm in jobs_of(totals)), -1)
    for observation in seen:
        tuner.observe(observation)
        once = facts(tuner)
        tuner.observe(observation)
        assert facts(tuner) == once
        if observation.kind is ObservationKind.PROGRESS:
            newest[observation.job_id] = max(newest[observation.job_id], observation.iteration)
    once = facts(tuner)
    for job_id, iteration in newest.items():
        tuner.observe(progress(job_id, iteration, 0.0))
        tuner.observe(progress(job_id, iteration - 1, math.nan))
    assert facts(tuner) == once


@EACH
def test_the_journal_brings_it_back(name, chosen, tmp_path):
    """Through the file: what the app master writes is all that its next attempt needs."""
    arms = jobs_of([50] * 6)
    rng = random.Random(3)
    live = make(name, arms, **chosen)
    search = Search(live, arms)
    journal = Journal(tmp_path / "journal.jsonl")
    for _ in range(40):
        if search.plan.finished:
            break
        search.step(rng.choice(sorted(search.plan.targets)), 7, lambda *_: rng.choice((rng.random(), math.nan)))
        journal.observation(search.seen[-1])
    journal.close()
    journal = Journal(tmp_path / "journal.jsonl")
    again = make(name, arms, **chosen)
    for observation in journal.content.observations:
        again.observe(observation)
    journal.close()
    assert len(journal.content.observations) >= 6
    assert facts(again) == facts(live)


@EACH
@pytest.mark.parametrize("count", [1, 5])
def test_all_jobs_fail(name, chosen, count):
    search = Checked(make(name, jobs_of([30] * count), **chosen), jobs_of([30] * count))
    for job_id in sorted(search.at):
        search.give_up(job_id)
    search.check_end()
    assert search.plan.best is None
    assert search.plan.stopped == frozenset()


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
@FEW
@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 2**32))
def test_as_many_jobs_are_run_as_trials_are_asked_for(pruner, trials, parallel, seed):
    """Also if jobs fail before the stop that the pruner wanted: they are trials with losses."""
    rng, arms = random.Random(seed), jobs_of([40] * 12)
    tuner = make("optuna", arms, sampler="random", trials=trials, parallel=parallel, pruner=pruner)
    search = Checked(tuner, arms)
    search.trials = trials
    while not search.plan.finished:
        search.step(rng.choice(sorted(search.plan.targets)), 5, lambda job_id, at: int(job_id[1:]) + 1.0 / at)
        for job_id in sorted(search.plan.stopped & search.ran - search.given_up):
            if rng.random() < 0.5 and not search.plan.finished:
                search.give_up(job_id)
    search.check_end()


@EACH
def test_a_search_goes_on_while_a_job_lives(name, chosen):
    """Each job that reaches its end fails there. Another takes its place, until none is left."""
    arms = jobs_of([64] * 8)
    search = Checked(make(name, arms, **chosen), arms)
    while not search.plan.finished:
        for job_id in sorted(search.plan.targets):
            if search.at[job_id] + 4 >= search.ends[job_id]:
                search.give_up(job_id)
            elif job_id in search.plan.targets:
                search.step(job_id, 4, lambda job_id, at: int(job_id[1:]) + 1.0 / at)
    assert search.given_up == search.at.keys()
    search.check_end()


@EACH
@pytest.mark.parametrize("loss", [0.5, math.nan])
def test_a_lone_job_runs_to_its_end(name, chosen, loss):
    search = Checked(make(name, jobs_of([30]), **chosen), jobs_of([30])).run_in_turns(3, lambda *_: loss)
    search.check_end()
    assert search.reached == search.ends
    assert search.plan.best == "j00"


@EACH
def test_losses_that_are_no_numbers_lose_against_any(name, chosen):
    arms = jobs_of([64] * 8)
    search = Checked(make(name, arms, **chosen), arms)
    search.run_in_turns(2, lambda job_id, at: 5.0 + 1.0 / at if job_id == "j06" else math.nan)
    search.check_end()
    assert search.plan.best == "j06"


@EACH
def test_jobs_that_all_diverge_still_leave_one_that_ends(name, chosen):
    arms = jobs_of([64] * 8)
    search = Checked(make(name, arms, **chosen), arms).run_in_turns(2, lambda *_: math.nan)
    search.check_end()
    assert search.plan.best is not None


@EACH
def test_executed_work_does_not_exceed_the_first_plan(name, chosen):
    """B, the work by the first plan: with barriers exactly what is run, where jobs stop early no less than that."""
    arms = jobs_of([60] * 9)
    tuner = make(name, arms, **chosen)
    planned = sum(phase.jobs * phase.iterations for phase in tuner.plan().phases)
    search = Checked(tuner, arms).run_in_turns(2, lambda job_id, at: int(job_id[1:]) + 1.0 / at)
    ran = sum(search.at.values())
    if name in BARRIERS:
        assert ran == planned
    elif name != "asynchronous_halving":
        assert ran <= planned == chosen.get("trials", 9) * 60


@pytest.mark.parametrize(("name", "chosen"), [variant for variant in VARIANTS if variant[0] in BARRIERS])
def test_phases_left_and_work_done_add_up(name, chosen):
    """At every moment, in a search with barriers: iterations done + those to targets + later phases = B."""
    arms = jobs_of([60] * 9)
    search = Search(make(name, arms, **chosen), arms)
    planned = sum(phase.jobs * phase.iterations for phase in search.plan.phases)
    rng = random.Random(1)
    while not search.plan.finished:
        plan = search.plan
        now = sum(target - search.at[job_id] for job_id, target in plan.targets.items())
        later = sum(phase.jobs * phase.iterations for phase in plan.phases[1:])
        assert sum(search.at.values()) + now + later == planned
        search.step(rng.choice(sorted(plan.targets)), rng.randint(1, 9), lambda *_: rng.random())


STORY = """
import random
from tuner_cases import Search, facts, jobs_of, make
for name, chosen in {variants!r}:
    rng, arms = random.Random(5), jobs_of([40] * 7)
    search = Search(make(name, arms, **chosen), arms)
    while not search.plan.finished:
        search.step(rng.choice(sorted(search.plan.targets)), rng.randint(1, 9), lambda *_: rng.random())
        print(name, [sorted(part) if isinstance(part, frozenset) else part for part in facts(search.tuner)])
"""


def test_other_processes_decide_the_same():
    """Whatever the order in which a process hashes text."""
    seen = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}/tests"}
        story = STORY.format(variants=VARIANTS)
        run = subprocess.run(
            [sys.executable, "-c", story], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        seen.append(run.stdout)
    assert seen[0] == seen[1]
    assert len(seen[0].splitlines()) > 20 * len(VARIANTS)
