"""Tuners by hand: phases, survivors, failures, settings, and the paper's example."""

import math
import re

import pytest

from am.tuners.asynchronous_halving import asynchronous_halving
from am.tuners.hyperband import hyperband
from am.tuners.median_stopping import median_stopping
from am.tuners.optuna_tuner import optuna_tuner
from am.tuners.performance_curve import performance_curve
from am.tuners.port import Observation, ObservationKind, Phase
from am.tuners.registry import TUNERS, make_tuner
from am.tuners.single import single
from am.tuners.successive_halving import successive_halving
from themis.apps import JobSpec, TunerSpec
from themis.config.tuner_settings import TUNERS as KNOWN_TUNERS
from themis.errors import InputError, UnknownNameError


def jobs(count, total=100):
    return [JobSpec(job_id=f"j{index}", iterations_total=total) for index in range(count)]


def reached(job_id, iteration, loss):
    return Observation(kind=ObservationKind.TARGET_REACHED, job_id=job_id, iteration=iteration, loss=loss)


def progress(job_id, iteration, loss):
    return Observation(kind=ObservationKind.PROGRESS, job_id=job_id, iteration=iteration, loss=loss)


def failed(job_id):
    return Observation(kind=ObservationKind.FAILED, job_id=job_id, iteration=0, loss=math.nan)


def feed(tuner, *observations):
    for observation in observations:
        tuner.observe(observation)
    return tuner.plan()


def run_phase(tuner, losses):
    """Every running job reaches its target with the loss given for it."""
    for job_id, target in sorted(tuner.plan().targets.items()):
        tuner.observe(reached(job_id, target, losses[job_id]))
    return tuner.plan()


LOSSES = {"j0": 0.4, "j1": 0.1, "j2": 0.3, "j3": 0.2}


class TestSingle:
    def test_all_jobs_run_to_their_own_end(self):
        mixed = [JobSpec(job_id="a", iterations_total=10), JobSpec(job_id="b", iterations_total=30)]
        tuner = single(mixed)
        plan = tuner.plan()
        assert plan.targets == {"a": 10, "b": 30}
        assert plan.phases == (Phase(jobs=2, iterations=30),)
        assert (plan.phase, plan.finished, plan.best, plan.stopped) == (0, False, None, frozenset())
        plan = feed(tuner, reached("a", 10, 0.5))
        assert plan.targets == {"b": 30}
        assert plan.best == "a"
        plan = feed(tuner, reached("b", 30, 0.4))
        assert plan.finished
        assert plan.targets == {}
        assert plan.phases == ()
        assert plan.best == "b"
        assert plan.stopped == frozenset()

    def test_single_job_without_loss_is_best(self):
        plan = feed(single(jobs(1)), reached("j0", 100, math.nan))
        assert (plan.finished, plan.best) == (True, "j0")

    def test_no_jobs_are_refused(self):
        with pytest.raises(InputError):
            single([])


class TestHalving:
    def test_defaults_end_at_iterations_total(self):
        tuner = successive_halving(jobs(4, total=100))
        assert tuner.plan().phases == (
            Phase(jobs=4, iterations=25),
            Phase(jobs=2, iterations=25),
            Phase(jobs=1, iterations=50),
        )
        assert tuner.plan().targets == dict.fromkeys(("j0", "j1", "j2", "j3"), 25)
        plan = run_phase(tuner, LOSSES)
        assert plan.targets == {"j1": 50, "j3": 50}
        assert plan.stopped == {"j0", "j2"}
        assert plan.phase == 1
        plan = run_phase(tuner, LOSSES)
        assert plan.targets == {"j1": 100}
        assert plan.phases == (Phase(jobs=1, iterations=50),)
        plan = run_phase(tuner, LOSSES)
        assert plan.finished
        assert plan.best == "j1"
        assert plan.stopped == {"j0", "j2", "j3"}

    def test_the_papers_example(self):
        tuner = successive_halving(jobs(4, total=60), phases="4x8, 2x16,1x36")
        assert tuner.plan().phases == (
            Phase(jobs=4, iterations=8),
            Phase(jobs=2, iterations=16),
            Phase(jobs=1, iterations=36),
        )
        targets = [tuner.plan().targets, *(run_phase(tuner, LOSSES).targets for _ in range(2))]
        assert targets == [dict.fromkeys(("j0", "j1", "j2", "j3"), 8), {"j1": 24, "j3": 24}, {"j1": 60}]

    @pytest.mark.parametrize(
        ("count", "settings", "expected"),
        [
            (9, {"eta": 3}, [(9, 11), (3, 22), (1, 67)]),
            (8, {"eta": 3}, [(8, 11), (2, 22), (1, 67)]),
            (5, {}, [(5, 25), (2, 25), (1, 50)]),
            (1, {}, [(1, 100)]),
            (3, {"eta": 4}, [(3, 25), (1, 75)]),
            (4, {"first_iterations": 10}, [(4, 10), (2, 10), (1, 20)]),
            (4, {"first_iterations": 60}, [(4, 60), (2, 40)]),
            (4, {"first_iterations": 100}, [(4, 100)]),
        ],
    )
    def test_sizes_and_budgets(self, count, settings, expected):
        phases = successive_halving(jobs(count), **settings).plan().phases
        assert [(phase.jobs, phase.iterations) for phase in phases] == expected

    def test_number_of_phases_stays_to_the_end(self):
        tuner, counts = make_tuner(TunerSpec(name="successive_halving", settings={"eta": 2}), jobs(4)), []
        while not tuner.plan().finished:
            counts.append(tuner.plan().phase_count)
            run_phase(tuner, {job: float(job[-1]) for job in tuner.plan().targets})
        assert [*counts, tuner.plan().phase_count] == [3, 3, 3, 3]

    def test_phases_without_iterations_are_merged(self):
        tuner = successive_halving(jobs(8, total=3))
        assert [(phase.jobs, phase.iterations) for phase in tuner.plan().phases] == [(8, 1), (1, 2)]
        losses = {f"j{index}": float(index) for index in range(8)}
        assert run_phase(tuner, losses).targets == {"j0": 3}

    def test_nan_is_worst_and_ties_go_by_id(self):
        tuner = successive_halving(jobs(4))
        plan = run_phase(tuner, {"j0": math.nan, "j1": math.inf, "j2": 0.5, "j3": 0.5})
        assert set(plan.targets) == {"j2", "j3"}
        assert plan.best == "j2"
        tuner = successive_halving(jobs(4))
        assert set(run_phase(tuner, {"j0": math.nan, "j1": math.nan, "j2": math.inf, "j3": math.nan}).targets) == {
            "j2",
            "j0",
        }

    def test_a_failure_takes_the_place_of_a_loser(self):
        tuner = successive_halving(jobs(4))
        plan = feed(tuner, failed("j1"))
        assert plan.phases[0] == Phase(jobs=3, iterations=25)
        assert set(plan.targets) == {"j0", "j2", "j3"}
        plan = run_phase(tuner, LOSSES)
        assert set(plan.targets) == {"j2", "j3"}
        assert plan.stopped == {"j0"}

    def test_a_failure_can_end_a_phase(self):
        tuner = successive_halving(jobs(2))
        feed(tuner, reached("j0", 50, 9.0))
        plan = feed(tuner, failed("j1"))
        assert plan.targets == {"j0": 100}
        assert plan.phases == (Phase(jobs=1, iterations=50),)

    def test_few_survivors_shrink_later_phases(self):
        tuner = successive_halving(jobs(4))
        feed(tuner, failed("j0"), failed("j1"), failed("j2"))
        assert [phase.jobs for phase in tuner.plan().phases] == [1, 1, 1]

    def test_a_job_that_fails_after_its_target_is_out(self):
        tuner = successive_halving(jobs(4))
        plan = feed(tuner, reached("j1", 25, 0.0), failed("j1"))
        assert plan.phases[0].jobs == 3
        assert set(run_phase(tuner, LOSSES).targets) == {"j2", "j3"}

    def test_best_loser_is_reinstated_if_last_survivor_fails(self):
        tuner = successive_halving(jobs(4))
        run_phase(tuner, LOSSES)
        run_phase(tuner, {**LOSSES, "j0": 0.0})
        plan = feed(tuner, failed("j1"))
        assert (plan.targets, plan.best, plan.stopped) == ({"j3": 100}, "j3", {"j0", "j2"})
        assert plan.phases == (Phase(jobs=1, iterations=50),)
        # No job of its phase is left: the best of the previous phase continues to the end.
        plan = feed(tuner, failed("j3"))
        assert (plan.targets, plan.best, plan.stopped) == ({"j2": 100}, "j2", {"j0"})
        assert plan.phases == (Phase(jobs=1, iterations=75),)
        plan = feed(tuner, progress("j2", 60, 0.9), reached("j2", 100, 0.8))
        assert (plan.finished, plan.best, plan.stopped) == (True, "j2", {"j0"})

    def test_loser_reinstated_in_early_phase_runs_alone(self):
        tuner = successive_halving(jobs(4))
        run_phase(tuner, LOSSES)
        plan = feed(tuner, failed("j1"), failed("j3"))
        assert (plan.phase, plan.targets, plan.stopped) == (1, {"j2": 50}, {"j0"})
        assert [phase.jobs for phase in plan.phases] == [1, 1]
        assert feed(tuner, reached("j2", 50, 0.1)).targets == {"j2": 100}

    def test_failed_loser_is_not_reinstated(self):
        tuner = successive_halving(jobs(4))
        run_phase(tuner, LOSSES)
        plan = feed(tuner, failed("j2"), failed("j1"), failed("j3"))
        assert plan.targets == {"j0": 50}
        assert feed(tuner, failed("j0")).best is None
        assert tuner.plan().finished

    def test_all_jobs_failed_finishes_without_best(self):
        plan = feed(successive_halving(jobs(4)), *(failed(f"j{index}") for index in range(4)))
        assert plan.finished
        assert plan.best is None
        assert plan.targets == {}
        assert plan.stopped == frozenset()

    def test_repeated_and_stale_observations_change_nothing(self):
        tuner = successive_halving(jobs(4))
        run_phase(tuner, LOSSES)
        before = tuner.plan()
        stale = [
            reached("j1", 25, 7.0),
            reached("j0", 25, 0.0),
            progress("j0", 99, 0.0),
            failed("j0"),
            reached("j1", 49, 0.0),
        ]
        assert feed(tuner, *stale) == before
        plan = feed(tuner, reached("j1", 50, 0.1))
        assert feed(tuner, reached("j1", 50, 5.0), progress("j1", 90, 5.0), reached("j1", 60, 5.0)) == plan

    def test_losses_are_compared_at_the_target(self):
        tuner = successive_halving(jobs(2))
        feed(tuner, reached("j0", 50, 0.5), progress("j0", 55, 0.01))
        assert feed(tuner, reached("j1", 50, 0.3)).targets == {"j1": 100}

    def test_the_leader_follows_progress(self):
        tuner = successive_halving(jobs(4))
        assert feed(tuner, progress("j2", 5, 1.0)).best == "j2"
        assert feed(tuner, progress("j3", 5, 0.9)).best == "j3"
        assert feed(tuner, progress("j3", 6, math.nan)).best == "j2"
        assert feed(tuner, progress("j2", 4, math.nan)).best == "j2", "older than what is known"

    def test_shorter_jobs_are_capped_at_their_end(self):
        mixed = [JobSpec(job_id="a", iterations_total=30), JobSpec(job_id="b", iterations_total=100)]
        tuner = successive_halving(mixed)
        assert tuner.plan().targets == {"a": 30, "b": 50}
        feed(tuner, reached("a", 30, 0.1))
        plan = feed(tuner, reached("b", 50, 0.2))
        assert plan.finished, "a has nothing left to run in the last phase"
        assert plan.best == "a"

    def test_unknown_jobs_are_refused(self):
        with pytest.raises(UnknownNameError):
            successive_halving(jobs(2)).observe(progress("j9", 1, 1.0))

    @pytest.mark.parametrize(
        "settings",
        [
            {"eta": 1},
            {"first_iterations": 0},
            {"phases": "4x8", "eta": 2},
            {"phases": "4x8;2x16"},
            {"phases": "4x8,,2x16"},
            {"phases": "0x8"},
            {"phases": "4x0"},
            {"phases": "2x8,1x4"},
            {"phases": "4x8,2x8,3x8"},
            {"phases": "4x60,2x60"},
        ],
    )
    def test_settings_that_cannot_be_used(self, settings):
        with pytest.raises(InputError):
            successive_halving(jobs(4), **settings)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (successive_halving, {"eta": 1}, "tuner.eta must be a whole number of 2 or more: 1"),
        (successive_halving, {"first_iterations": 0}, "tuner.first_iterations must be a whole number of 1 or more: 0"),
        (successive_halving, {"phases": "4x8", "eta": 2}, "leave tuner.eta and tuner.first_iterations out"),
        (successive_halving, {"phases": "4x8,2x200"}, "'4x8,2x200'; raise job.iterations to 208"),
        (successive_halving, {"phases": "4x8,2x"}, "tuner.phases is malformed: '2x'; write JOBSxITERATIONS"),
        (successive_halving, {"phases": "4x8,1x8,2x8"}, "'4x8,1x8,2x8'; order them by falling jobs"),
        (successive_halving, {"phases": "3x8"}, "tuner.phases does not begin with all jobs: '3x8'; start with 4x"),
        (asynchronous_halving, {"eta": 0}, "tuner.eta must be a whole number of 2 or more: 0"),
        (hyperband, {"eta": 1}, "tuner.eta must be a whole number of 2 or more: 1"),
        (
            hyperband,
            {"max_resource": 101},
            "tuner.max_resource is beyond the jobs' end: 101; use at most job.iterations, 100",
        ),
        (median_stopping, {"warmup": 0}, "tuner.warmup must be a whole number of 1 or more: 0"),
        (median_stopping, {"min_jobs": -1}, "tuner.min_jobs must be a whole number of 1 or more: -1"),
        (performance_curve, {"threshold": 0.5}, "tuner.threshold must be a number from 0.0001 to 0.49: 0.5"),
        (performance_curve, {"interval": 0}, "tuner.interval must be a whole number of 1 or more: 0"),
        (optuna_tuner, {"min_resource": 101}, "beyond the jobs' end: 101; use at most job.iterations, 100"),
        (optuna_tuner, {"pruner": "medain"}, "unknown tuner.pruner in tuner optuna: 'medain'; did you mean 'median'?"),
        (optuna_tuner, {"trials": 3}, "tuner.trials beside no sampler: 3; it is one of tuner.sampler tpe or random"),
    ],
)
def test_setting_out_of_range_error_has_key_and_bound(make, settings, message):
    """As makers of plug-ins meet it, who call these themselves: group files are checked before."""
    with pytest.raises(InputError, match=re.escape(message)):
        make(jobs(4, total=100), **settings)


class TestRegistry:
    def test_all_tuners_of_the_settings_table_can_be_made(self):
        assert set(TUNERS) == set(KNOWN_TUNERS)

    @pytest.mark.parametrize("name", sorted(TUNERS))
    def test_each_tuner_knows_its_name(self, name):
        assert make_tuner(TunerSpec(name=name), jobs(4)).name == name

    def test_settings_reach_the_tuner(self):
        tuner = make_tuner(TunerSpec(name="successive_halving", settings={"eta": 4}), jobs(4))
        assert [phase.jobs for phase in tuner.plan().phases] == [4, 1]

    def test_unknown_name_error_has_nearest_name(self):
        with pytest.raises(UnknownNameError, match="did you mean 'single'"):
            make_tuner(TunerSpec(name="singel"), jobs(1))
        with pytest.raises(UnknownNameError, match=r"known: asynchronous_halving, .*single, successive_halving"):
            make_tuner(TunerSpec(name="zzz"), jobs(1))
        with pytest.raises(UnknownNameError, match="did you mean 'first_iterations'"):
            make_tuner(TunerSpec(name="successive_halving", settings={"first_iteration": 4}), jobs(1))

    @pytest.mark.parametrize("settings", [{"eta": "2"}, {"eta": True}, {"eta": 2.5}, {"phases": 3}])
    def test_wrong_types_are_refused(self, settings):
        with pytest.raises(InputError):
            make_tuner(TunerSpec(name="successive_halving", settings=settings), jobs(4))
