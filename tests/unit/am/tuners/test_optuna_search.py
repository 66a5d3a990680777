"""An Optuna study's sampler as a tuner: what it would draw by itself, the nearest job is run."""

import inspect
import math
import random

import optuna
import pytest
from optuna.pruners import MedianPruner, SuccessiveHalvingPruner
from optuna.samplers import NSGAIISampler, RandomSampler, TPESampler
from tuner_cases import Search, facts, failed, jobs, jobs_of, make, progress, reached

from am.tuners.optuna_search import study_search
from themis.apps import JobSpec, TunerSpec
from themis.config.tuner_settings import OPTUNA_DEFAULTS, check_tuner
from themis.errors import InputError

TOTAL = 100


def arms_of(points):
    return [
        JobSpec(job_id=f"j{place:02d}", iterations_total=TOTAL, hyper_parameters=point)
        for place, point in enumerate(points)
    ]


def loss(point):
    """Least at x = 0.3 and the kind b."""
    return (point["x"] - 0.3) ** 2 + (0.0 if point["kind"] == "b" else 0.5)


def order(tuner, arms, loss_of=loss):
    """Jobs in the order in which they run, one after another."""
    points, ran = {arm.job_id: arm.hyper_parameters for arm in arms}, []
    while not tuner.plan().finished:
        (job_id,) = tuner.plan().targets
        ran.append(job_id)
        tuner.observe(reached(job_id, TOTAL, loss_of(points[job_id])))
    return ran


@pytest.mark.parametrize("sampler", [TPESampler, RandomSampler])
@pytest.mark.parametrize("seed", [0, 3])
def test_search_samples_same_points_as_optuna(sampler, seed):
    """Candidates are what a study of Optuna's own tries, and the ends of the range; the order must be the same."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    arguments = {"n_startup_trials": 4} if sampler is TPESampler else {}
    study = optuna.create_study(sampler=sampler(seed=seed, **arguments))
    study.optimize(
        lambda trial: loss({"x": trial.suggest_float("x", -2.0, 2.0), "kind": trial.suggest_categorical("kind", "ab")}),
        n_trials=15,
    )
    tried = [trial.params for trial in study.trials]
    arms = arms_of([*tried, {"x": -2.0, "kind": "a"}, {"x": 2.0, "kind": "b"}])
    random.Random(1).shuffle(arms)
    tuner = study_search(arms, sampler(seed=seed, **arguments), trials=15, parallel=1)
    assert order(tuner, arms) == [f"j{place:02d}" for place in range(15)]
    assert tuner.plan().best == f"j{study.best_trial.number:02d}"


def test_tpe_beats_random_search():
    rng = random.Random(5)
    arms = arms_of([{"x": rng.uniform(-2.0, 2.0), "kind": rng.choice("abcd")} for _ in range(80)])
    losses = {arm.job_id: loss(arm.hyper_parameters) for arm in arms}
    by_sampler = {}
    for sampler in ("tpe", "random"):
        ran = [order(make("optuna", arms, sampler=sampler, trials=24, parallel=1, seed=s), arms) for s in range(5)]
        by_sampler[sampler] = sum(losses[job_id] for each in ran for job_id in each[10:])
    assert by_sampler["tpe"] < 0.75 * by_sampler["random"]


def test_custom_sampler_with_pruner():
    grid = [{"x": x, "kind": kind} for x in (0.25, 0.5, 0.75) for kind in "ab"]
    arms = arms_of(grid)
    sampler = NSGAIISampler(seed=1, population_size=3)
    tuner = study_search(arms, sampler, SuccessiveHalvingPruner(10, 2), parallel=2)
    search = Search(tuner, arms)
    search.run_in_turns(5, lambda job_id, at: loss(arms[int(job_id[1:])].hyper_parameters) + 1.0 / at)
    assert tuner.plan().best in ("j01", "j03")
    assert tuner.plan().stopped
    assert all(search.at[job_id] < TOTAL for job_id in tuner.plan().stopped)


def test_ended_job_is_replaced():
    arms = jobs_of([TOTAL] * 5)
    tuner = make("optuna", arms, sampler="random", parallel=2, trials=4)
    first = set(tuner.plan().targets)
    assert [phase.jobs for phase in tuner.plan().phases] == [2, 2]
    job_id = min(first)
    tuner.observe(progress(job_id, 50, 0.4))
    assert set(tuner.plan().targets) == first
    tuner.observe(reached(job_id, TOTAL, 0.4))
    assert len(tuner.plan().targets) == 2
    assert tuner.plan().targets.keys() & first == first - {job_id}
    assert [phase.jobs for phase in tuner.plan().phases] == [2, 1]
    assert tuner.plan().best == job_id


def test_failed_job_is_no_trial():
    arms = jobs_of([TOTAL] * 4)
    tuner = make("optuna", arms, sampler="tpe", parallel=1, trials=2)
    ran = []
    for outcome in (failed, failed, lambda job_id: reached(job_id, TOTAL, math.nan)):
        ran += tuner.plan().targets
        tuner.observe(outcome(ran[-1]))
    assert not tuner.plan().finished
    ran += tuner.plan().targets
    tuner.observe(reached(ran[-1], TOTAL, 0.5))
    assert tuner.plan().finished
    assert sorted(ran) == ["j00", "j01", "j02", "j03"]
    assert tuner.plan().best == ran[-1]
    assert tuner.plan().stopped == frozenset()


def test_a_program_that_always_fails_does_not_try_all_candidates():
    arms = jobs_of([TOTAL] * 9)
    tuner = make("optuna", arms, sampler="random", parallel=1, trials=2)
    ran = []
    while not tuner.plan().finished:
        ran += tuner.plan().targets
        tuner.observe(failed(ran[-1]))
        tuner.observe(failed(ran[-1]))  # A repeated observation is not a second failure.
    assert len(set(ran)) == len(ran) == 4
    assert tuner.plan().stopped == {arm.job_id for arm in arms} - set(ran)


def test_unchosen_jobs_are_stopped_at_end():
    arms = jobs_of([TOTAL] * 4)
    tuner = make("optuna", arms, sampler="random", parallel=4, trials=1)
    (job_id,) = tuner.plan().targets
    assert tuner.plan().stopped == frozenset()
    tuner.observe(reached(job_id, TOTAL, 0.5))
    assert tuner.plan().stopped == {arm.job_id for arm in arms} - {job_id}


def test_jobs_without_hyper_parameters_run_in_their_order():
    arms = jobs(3, TOTAL)
    assert order(make("optuna", arms, sampler="tpe", parallel=1), arms, lambda _: 1.0) == ["j00", "j01", "j02"]


def test_values_of_different_magnitudes_use_logarithmic_scale():
    """Drawn on a linear one, nearly all points would be nearest to the largest values."""
    arms = arms_of([{"rate": 10.0**-power} for power in range(9)])
    first = [next(iter(make("optuna", arms, sampler="random", parallel=1, seed=s).plan().targets)) for s in range(60)]
    assert len(set(first)) >= 8


class LeastSampler(RandomSampler):
    """Draws the low end of each range."""

    def sample_independent(self, study, trial, param_name, param_distribution):
        return param_distribution.low


def test_nearest_job_by_euclidean_distance():
    """Half-way off in both directions is nearer than nine tenths in one; by the sum of both it would be farther."""
    arms = arms_of([{"x": 0.9, "y": 0.0}, {"x": 0.5, "y": 0.5}, {"x": 0.0, "y": 1.0}, {"x": 1.0, "y": 0.9}])
    assert set(study_search(arms, LeastSampler(), parallel=1).plan().targets) == {"j01"}


def test_other_seed_samples_other_points():
    arms = jobs_of([TOTAL] * 12)
    plans = [facts(make("optuna", arms, sampler="random", parallel=3, seed=seed)) for seed in (0, 0, 1)]
    assert plans[0] == plans[1] != plans[2]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"trials": 3}, "trials"),
        ({"parallel": 3}, "parallel"),
        ({"seed": 3, "pruner": "median"}, "seed"),
        ({"sampler": "annealing"}, "sampler"),
        ({"sampler": "tpe", "trials": 0}, "trials"),
    ],
)
def test_bad_settings_are_refused_by_the_client(settings, word):
    with pytest.raises(InputError, match=word):
        check_tuner(TunerSpec(name="optuna", settings=settings), jobs=4, iterations=50, source="x")


def test_pruner_settings_with_sampler_need_pruner():
    with pytest.raises(InputError, match="pruner"):
        make("optuna", jobs(4), sampler="tpe", min_resource=5)


def test_documented_defaults_equal_optunas():
    takers = {"startup_trials": TPESampler, "n_startup_trials": MedianPruner}
    found = {name: inspect.signature(made).parameters["n_startup_trials"].default for name, made in takers.items()}
    assert found == OPTUNA_DEFAULTS
