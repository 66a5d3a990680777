"""The same arms survive as under Optuna's own pruners, on losses recorded from our programs; and Optuna as a tuner.

What is compared, and where the semantics differ:

- Optuna's SuccessiveHalvingPruner decides on a trial when it reports at a rung, against the trials that reported there
  before, itself included: it goes on if it is among the best max(1, floor(c / eta)) of c. Ours waits for all of a phase
  and keeps floor(c / eta). The two coincide for a trial that is the last to report. So for each rung and each arm of
  our phase a study is made in which the other arms of that phase reported before, and Optuna's verdict on the last one
  is ours. Each of our rungs is the first rung of a pruner with that `min_resource`, as a pruned trial of Optuna reports
  at no later rung. Equal losses, which Optuna all lets pass and we order by job id, do not occur in the curves.
- HyperbandPruner deals trials to brackets by a hash and has the paper's bracket sizes only on average. Compared are its
  number of brackets and their sizes, and within each of our brackets the survivors of each rung as above.
- Asynchronous halving: at each arrival with c >= eta arms at the rung, ours promotes the arriving one if and only if
  Optuna does not prune it. With c < eta Optuna lets the leader pass, since it cannot suspend a trial, and ours waits;
  ours also promotes arms later that Optuna pruned when they came: those cases are left out.
- MedianPruner counts COMPLETE trials only, ours all jobs that came as far. Compared is the iteration at which an arm
  is stopped that runs after the others completed, with the same warm-up. A loss that is no number, which Optuna passes
  over while there are others, does not occur, and where ours keeps an arm because it leads Optuna does so here too.
"""

import math
import random

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.pruners import HyperbandPruner, MedianPruner, PercentilePruner, SuccessiveHalvingPruner
from tuner_cases import (
    ITERATIONS,
    Search,
    facts,
    jobs,
    jobs_of,
    loss_at,
    make,
    progress,
    reached,
    recorded_curves,
)

from am.tuners.hyperband import hyperband, table
from am.tuners.optuna_tuner import study_tuner
from am.tuners.successive_halving import successive_halving
from themis.errors import InputError

FAMILIES = ("digits_cnn", "digits_dense", "digits_lstm")
EACH_FAMILY = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def arms_of(families):
    """Recorded curves as jobs: their specs, and each one's loss at an iteration."""
    curves = [curve for family in families for curve in recorded_curves(family).values()]
    arms = jobs(len(curves), total=ITERATIONS)
    by_id = {arm.job_id: curve for arm, curve in zip(arms, curves, strict=True)}
    return arms, lambda job_id, iteration: loss_at(by_id[job_id], iteration)


def passes_as_last(pruner, others, last, step):
    """Optuna's verdict on the trial that reports last; losses are those at `step`."""
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0))
    for loss in (*others, last):
        trial = study.ask()
        trial.report(loss, step)
        pruned = trial.should_prune()
    return not pruned


def survivors(members, loss_of, target, eta):
    """The members that Optuna lets pass, each as the last to report at `target`."""
    passed = set()
    for job_id in members:
        others = [loss_of(other, target) for other in members if other != job_id]
        pruner = SuccessiveHalvingPruner(min_resource=target, reduction_factor=eta)
        if passes_as_last(pruner, others, loss_of(job_id, target), target):
            passed.add(job_id)
    return passed


class TestHalving:
    @EACH_FAMILY
    @pytest.mark.parametrize("eta", [2, 4])
    def test_successive_halving(self, family, eta):
        arms, loss_of = arms_of([family])
        search = Search(successive_halving(arms, eta=eta), arms)
        phases = 0
        while True:
            targets = search.plan.targets
            members, target = sorted(targets), next(iter(targets.values()))
            search.run_phase(loss_of)
            if search.plan.finished:
                break
            assert set(search.plan.targets) == survivors(members, loss_of, target, eta)
            phases += 1
        assert phases == {2: 3, 4: 2}[eta]

    def test_hyperband_has_optunas_brackets(self):
        pruner = HyperbandPruner(min_resource=1, max_resource=81, reduction_factor=3)
        study = optuna.create_study(pruner=pruner)
        trial = study.ask()
        trial.report(1.0, 1)
        trial.should_prune()
        assert pruner._trial_allocation_budgets == [bracket.sizes[0] for bracket in table(4, 3)]

    def test_hyperband(self):
        """24 arms: brackets of 9, 5 and 3, and of 7 in a second loop, to 44, 133 and 400 iterations."""
        arms, loss_of = arms_of(FAMILIES)
        order = [arm.job_id for arm in arms]
        brackets = [set(order[:9]), set(order[9:14]), set(order[14:17]), set(order[17:])]
        search = Search(hyperband(arms), arms)
        cuts = {44: (0, 3), 133: (0, 1, 3)}
        for target, cut in cuts.items():
            assert set(search.plan.targets.values()) == {target}
            running = set(search.plan.targets)
            search.run_phase(loss_of)
            for place, bracket in enumerate(brackets):
                members = sorted(running & bracket)
                wanted = survivors(members, loss_of, target, 3) if place in cut else set(members)
                assert search.plan.targets.keys() & bracket == wanted
        assert set(search.plan.targets.values()) == {ITERATIONS}

    @EACH_FAMILY
    @pytest.mark.parametrize("seed", range(4))
    def test_asynchronous_halving_at_each_arrival(self, family, seed):
        arms, loss_of = arms_of([family])
        order = [arm.job_id for arm in arms]
        random.Random(seed).shuffle(order)
        tuner = make("asynchronous_halving", arms, eta=2, first_iterations=50)
        pruner = SuccessiveHalvingPruner(min_resource=50, reduction_factor=2)
        study = optuna.create_study(pruner=pruner)
        promoted = []
        for count, job_id in enumerate(order, start=1):
            tuner.observe(reached(job_id, 50, loss_of(job_id, 50)))
            trial = study.ask()
            trial.report(loss_of(job_id, 50), 50)
            passed = not trial.should_prune()
            if count >= 2:
                assert (tuner.plan().targets.get(job_id) == 100) == passed
                promoted.append(passed)
        assert True in promoted
        assert False in promoted


class TestMedian:
    @EACH_FAMILY
    def test_an_arm_after_the_others(self, family):
        """Each of the eight after the seven others, which nothing stops: seven others are asked for, they see six."""
        arms, loss_of = arms_of([family])
        stops = []
        for last in (arm.job_id for arm in arms):
            others = [arm.job_id for arm in arms if arm.job_id != last]
            tuner = make("median_stopping", arms, warmup=40, min_jobs=7)
            study = optuna.create_study(pruner=MedianPruner(n_startup_trials=7, n_warmup_steps=40))
            for job_id in others:
                trial = study.ask()
                for step in STEPS:
                    tuner.observe(progress(job_id, step, loss_of(job_id, step)))
                    trial.report(loss_of(job_id, step), step)
                tuner.observe(reached(job_id, ITERATIONS, loss_of(job_id, ITERATIONS)))
                study.tell(trial, loss_of(job_id, ITERATIONS))
            assert tuner.plan().targets.keys() == {last}
            stops.append((ours(tuner, last, loss_of), optunas(study, last, loss_of)))
        assert [mine for mine, _ in stops] == [theirs for _, theirs in stops]
        assert {mine is None for mine, _ in stops} == {True, False}


STEPS = range(10, ITERATIONS, 10)


def ours(tuner, job_id, loss_of):
    """Return the step at which our tuner stops the arm, or None if it does not."""
    for step in STEPS:
        tuner.observe(progress(job_id, step, loss_of(job_id, step)))
        if job_id in tuner.plan().stopped:
            return step
    return None


def optunas(study, job_id, loss_of):
    """Return the step at which Optuna prunes the arm, or None if it does not."""
    trial = study.ask()
    for step in STEPS:
        trial.report(loss_of(job_id, step), step)
        if trial.should_prune():
            return step
    return None


class TestStudyAsTuner:
    """An Optuna study decides; the app master sees a tuner like any other."""

    @pytest.mark.parametrize(
        ("chosen", "pruner"),
        [
            ({"pruner": "successive_halving"}, SuccessiveHalvingPruner(min_resource=4)),
            ({"pruner": "hyperband"}, HyperbandPruner(min_resource=4, max_resource=400)),
            ({"pruner": "median", "n_startup_trials": 2}, MedianPruner(n_startup_trials=2)),
        ],
        ids=lambda value: value.get("pruner") if isinstance(value, dict) else "",
    )
    @EACH_FAMILY
    def test_tuner_stops_jobs_that_study_prunes(self, chosen, pruner, family):
        """Against a loop over the study in Optuna's own way, one arm after the other; the leader is ours to keep."""
        arms, loss_of = arms_of([family])
        tuner = make("optuna", arms, **chosen)
        study = optuna.create_study(study_name="optuna", pruner=pruner)
        trials = [study.ask() for _ in arms]
        least = math.inf
        for arm, trial in zip(arms, trials, strict=True):
            for step in STEPS:
                loss = loss_of(arm.job_id, step)
                trial.report(loss, step)
                tuner.observe(progress(arm.job_id, step, loss))
                pruned = trial.should_prune() and loss > least
                assert (arm.job_id in tuner.plan().stopped) == pruned
                if pruned:
                    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                    break
            else:
                end = loss_of(arm.job_id, ITERATIONS)
                study.tell(trial, end)
                tuner.observe(reached(arm.job_id, ITERATIONS, end))
                least = min(least, end)
        assert tuner.plan().finished
        assert tuner.plan().stopped

    def test_trials_have_the_jobs_hyper_parameters(self):
        arms = jobs_of([30] * 3)
        seen = []

        class Looks(optuna.pruners.BasePruner):
            def prune(self, study, trial):
                seen.extend(each.params for each in study.trials)
                return False

        study_tuner(arms, Looks()).observe(progress("j00", 1, 0.5))
        assert seen == [dict(arm.hyper_parameters) for arm in arms]

    def test_custom_pruner(self):
        arms = jobs(4)
        search = Search(study_tuner(arms, PercentilePruner(25.0, n_startup_trials=1)), arms)
        for job_id in ("j00", "j01", "j02"):
            search.step(job_id, 50, lambda *_: 0.5)
            search.step(job_id, 50, lambda *_: 0.5)
        search.step("j03", 50, lambda *_: 0.9)
        assert search.plan.stopped == {"j03"}

    def test_study_logs_nothing(self, capfd):
        make("optuna", jobs(2)).observe(progress("j00", 1, 0.5))
        assert capfd.readouterr() == ("", "")

    @given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 2.0)), max_size=40))
    def test_study_is_rebuilt_from_observations(self, story):
        """Halfway a new study with the same observations takes over. Both decide the same from then on."""
        one = Search(make("optuna", jobs(4), pruner="successive_halving", min_resource=5, reduction_factor=2), jobs(4))
        two = None
        for place, (number, loss) in enumerate(story):
            if place == len(story) // 2:
                two = make("optuna", jobs(4), pruner="successive_halving", min_resource=5, reduction_factor=2)
                for old in one.seen:
                    two.observe(old)
            running = sorted(one.plan.targets)
            if not running:
                break
            one.step(running[number % len(running)], 10, lambda *_, loss=loss: loss)
            if two is not None:
                two.observe(one.seen[-1])
                assert facts(two) == facts(one.tuner)

    @pytest.mark.parametrize(
        ("chosen", "message"),
        [
            ({"pruner": "best"}, "known: hyperband, median"),
            ({"pruner": "median", "min_resource": 3}, "beside the pruner median"),
            ({"min_resource": 101}, "beyond the jobs' end"),
            ({"reduction_factor": 1}, "2 or more"),
        ],
    )
    def test_settings_that_cannot_be_used(self, chosen, message):
        with pytest.raises(InputError, match=message):
            make("optuna", jobs(4), **chosen)
