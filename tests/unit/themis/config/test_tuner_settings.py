"""The table of tuners and their settings, and tuners that other packages bring by entry points."""

import sys

import pytest

from am.tuners.registry import TUNERS as MADE
from am.tuners.registry import make_tuner
from themis.apps import AppSpec, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.config.tuner_settings import (
    PLUGIN_GROUP,
    TUNERS,
    check_acts,
    check_tuner,
    find_plugin,
    gpus_at_once,
    plugins,
)
from themis.errors import InputError, UnknownNameError

JOBS = [JobSpec(job_id=f"j{index}", iterations_total=100) for index in range(4)]

MODULE = """
from am.tuners.stopping import StoppingTuner
from themis.config.tuner_settings import SettingEntry, TunerEntry, TunerPlugin


class Patience:
    def __init__(self, patience):
        self.patience = patience

    def stops(self, job_id, curves):
        losses = curves[job_id].losses
        return len(losses) > self.patience and min(losses[-self.patience :]) >= min(losses)

    def ended(self, job_id, curve):
        pass


TUNER = TunerPlugin(
    entry=TunerEntry(
        summary="a job ends when its loss stands still",
        settings={"patience": SettingEntry(kind=int, low=1, help="losses without a new least")},
    ),
    make=lambda jobs, patience=5: StoppingTuner("patient", jobs, Patience(patience)),
)
SOMETHING = 42
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that brings tuners."""
    (tmp_path / "patient_tuner.py").write_text(MODULE)
    info = tmp_path / "patient_tuner-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: patient-tuner\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{PLUGIN_GROUP}]\npatient = patient_tuner:TUNER\nbroken = patient_tuner:NOTHING\n"
        "odd = patient_tuner:SOMETHING\ngone = no_such_module:TUNER\nsingle = patient_tuner:TUNER\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("patient_tuner", None)


def check(name, **settings):
    check_tuner(TunerSpec(name=name, settings=settings), jobs=4, iterations=100, source="the file")


class TestPlugins:
    def test_it_is_found_by_its_name(self, package):
        check("patient", patience=3)
        tuner = make_tuner(TunerSpec(name="patient", settings={"patience": 3}), JOBS)
        assert tuner.plan().targets == dict.fromkeys(("j0", "j1", "j2", "j3"), 100)

    def test_its_settings_are_checked(self, package):
        with pytest.raises(InputError, match="a whole number of 1 or more"):
            check("patient", patience=0)
        with pytest.raises(UnknownNameError, match="did you mean 'patience'"):
            check("patient", patienc=3)

    def test_unknown_names_are_refused_with_the_nearest_name(self, package):
        with pytest.raises(UnknownNameError, match="did you mean 'patient'"):
            check("patien")
        with pytest.raises(UnknownNameError, match=r"known: asynchronous_halving, broken, .*patient.*single"):
            make_tuner(TunerSpec(name="xyz"), JOBS)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("broken", "patient_tuner:NOTHING: AttributeError"),
            ("gone", "no_such_module:TUNER: ModuleNotFoundError"),
            ("odd", "must name a themis.config.tuner_settings.TunerPlugin"),
        ],
    )
    def test_a_broken_tuner_is_refused_and_others_work(self, package, name, message):
        with pytest.raises(InputError, match=message):
            check(name)
        check("single")

    def test_ours_cannot_be_replaced(self, package):
        assert "single" not in plugins()
        with pytest.raises(UnknownNameError):
            find_plugin("single")
        with pytest.raises(UnknownNameError, match="setting of tuner single"):
            check("single", patience=3)

    def test_tuners_of_a_missing_package_are_unknown(self):
        with pytest.raises(UnknownNameError):
            check("patient")


class TestSettings:
    def test_every_listed_tuner_can_be_made(self):
        assert list(MADE) == list(TUNERS)

    @pytest.mark.parametrize(
        ("name", "settings"),
        [
            ("hyperband", {"eta": 3, "max_resource": 100}),
            ("asynchronous_halving", {"eta": 2, "first_iterations": 100}),
            ("median_stopping", {"warmup": 1, "min_jobs": 1}),
            ("performance_curve", {"threshold": 0.1, "warmup": 1, "interval": 1}),
            ("median_stopping", {"warmup": 100}),
            ("optuna", {"sampler": "random", "seed": 3, "trials": 2, "parallel": 1}),
            ("optuna", {"sampler": "tpe", "startup_trials": 0, "pruner": "hyperband", "min_resource": 3}),
            ("optuna", {"min_resource": 3, "reduction_factor": 2}),
            ("optuna", {"pruner": "median", "n_startup_trials": 0, "n_warmup_steps": 0, "interval_steps": 1}),
        ],
    )
    def test_valid_settings_are_accepted(self, name, settings):
        check(name, **settings)
        make_tuner(TunerSpec(name=name, settings=settings), JOBS)

    @pytest.mark.parametrize(
        ("name", "settings", "message"),
        [
            ("hyperband", {"max_resource": 101}, "tuner.max_resource is beyond the jobs' end: 101; use at most .* 100"),
            ("asynchronous_halving", {"first_iterations": 101}, "tuner.first_iterations is beyond"),
            ("optuna", {"min_resource": 101}, "tuner.min_resource is beyond"),
            ("hyperband", {"eta": 1}, "tuner.eta must be a whole number of 2 or more: 1"),
            ("hyperband", {"eta": 2.5}, "a whole number"),
            ("hyperband", {"eta": True}, "a whole number"),
            ("performance_curve", {"threshold": 0.5}, "a number from 0.0001 to 0.49: 0.5"),
            ("performance_curve", {"threshold": "0.1"}, "a number from"),
            ("performance_curve", {"threshold": float("nan")}, "a number from"),
            ("median_stopping", {"warmup": 101}, "tuner.warmup is beyond"),
            ("performance_curve", {"warmup": 101}, "tuner.warmup is beyond"),
            ("performance_curve", {"interval": 101}, "tuner.interval is beyond"),
            ("optuna", {"pruner": "median", "n_warmup_steps": 101}, "tuner.n_warmup_steps is beyond"),
            ("optuna", {"pruner": "median", "interval_steps": 101}, "tuner.interval_steps is beyond"),
            ("optuna", {"pruner": "best"}, "'best'; known: hyperband, median, successive_halving"),
            ("optuna", {"pruner": "medain"}, "unknown tuner.pruner in the file: 'medain'; did you mean 'median'"),
            ("optuna", {"sampler": "tpee"}, "unknown tuner.sampler in the file: 'tpee'; did you mean 'tpe'"),
            (
                "optuna",
                {"pruner": "median", "min_resource": 3},
                "tuner.min_resource beside the pruner median: 3; it is one of tuner.pruner hyperband or successive_",
            ),
            ("optuna", {"n_warmup_steps": 3}, "tuner.n_warmup_steps beside the pruner hyperband"),
            ("optuna", {"sampler": "tpe", "min_resource": 3}, "tuner.min_resource beside no pruner: 3"),
            (
                "optuna",
                {"sampler": "random", "startup_trials": 3},
                "beside the sampler random: 3; it is one of .* tpe;",
            ),
            ("optuna", {"pruner": "median", "seed": 3}, "tuner.seed beside no sampler"),
            ("optuna", {"pruner": 1}, "one of"),
            ("successive_halving", {"phases": 1}, "text"),
        ],
    )
    def test_invalid_settings_are_refused(self, name, settings, message):
        with pytest.raises(InputError, match=message):
            check(name, **settings)

    @pytest.mark.parametrize(
        ("name", "settings", "message"),
        [
            (
                "median_stopping",
                {"min_jobs": 4},
                "tuner.min_jobs so high it can never act: 4; use at most 3: a job has",
            ),
            (
                "hyperband",
                {"eta": 101},
                "tuner.eta so high it can never act: 101; use at most 100: a job's first rung",
            ),
            (
                "median_stopping",
                {"warmup": 100},
                "tuner.warmup so .*: 100; use at most 99: it must be below job.iterat",
            ),
            ("performance_curve", {"warmup": 100}, "tuner.warmup so high"),
            ("successive_halving", {"first_iterations": 100}, "tuner.first_iterations so high"),
            ("asynchronous_halving", {"first_iterations": 100}, "tuner.first_iterations so high .* at most 99"),
            ("asynchronous_halving", {"eta": 5}, "tuner.eta so high it can never act: 5; use at most 4: a job goes on"),
            ("optuna", {"min_resource": 100}, "tuner.min_resource so high"),
            ("optuna", {"pruner": "median", "n_warmup_steps": 100}, "tuner.n_warmup_steps so high"),
            ("optuna", {"pruner": "median", "n_startup_trials": 4}, "tuner.n_startup_trials so high .* at most 3"),
            ("optuna", {"sampler": "random", "trials": 5}, "tuner.trials so high .* at most 4: there are no more jobs"),
            ("optuna", {"sampler": "tpe", "startup_trials": 4}, "tuner.startup_trials so high .* at most 3"),
            ("optuna", {"sampler": "tpe", "trials": 2, "startup_trials": 2}, "tuner.startup_trials so .* at most 1"),
        ],
    )
    def test_settings_without_effect_are_refused_at_submission(self, name, settings, message):
        """One less is taken; and an app that runs already goes on."""
        check(name, **settings)
        with pytest.raises(InputError, match=message):
            check_acts(TunerSpec(name=name, settings=settings), jobs=4, iterations=100, source="the file")
        last = list(settings)[-1]
        acting = {**settings, last: settings[last] - 1}
        check_acts(TunerSpec(name=name, settings=acting), jobs=4, iterations=100, source="the file")

    @pytest.mark.parametrize(
        ("name", "settings"),
        [
            ("median_stopping", {"min_jobs": 3, "warmup": 100}),
            ("successive_halving", {"first_iterations": 100}),
            ("asynchronous_halving", {"first_iterations": 100, "eta": 1000000}),
            ("performance_curve", {"warmup": 100}),
            ("optuna", {"sampler": "tpe", "startup_trials": 9, "trials": 3}),
        ],
    )
    def test_of_a_lone_job_nothing_is_asked(self, name, settings):
        check_acts(TunerSpec(name=name, settings=settings), jobs=1, iterations=100, source="the file")

    def test_a_lone_iteration_or_trial_has_no_condition(self):
        for name, settings in (
            ("median_stopping", {"warmup": 1}),
            ("optuna", {"sampler": "tpe", "trials": 1, "startup_trials": 1}),
        ):
            check_acts(TunerSpec(name=name, settings=settings), jobs=4, iterations=1, source="the file")

    @pytest.mark.parametrize(
        ("name", "settings", "jobs", "helps"),
        [
            ("median_stopping", {"min_jobs": 2}, 2, True),
            ("median_stopping", {"warmup": 100}, 2, True),
            ("optuna", {"sampler": "tpe", "trials": 99}, 2, True),
            ("optuna", {"sampler": "tpe", "startup_trials": 99}, 10, False),
            ("optuna", {"sampler": "tpe", "startup_trials": 99}, 11, True),
            ("optuna", {"sampler": "tpe", "startup_trials": 99, "trials": 10}, 11, False),
            ("optuna", {"pruner": "median", "n_startup_trials": 99}, 5, False),
            ("optuna", {"pruner": "median", "n_startup_trials": 99}, 6, True),
        ],
    )
    def test_leaving_a_setting_out_is_the_remedy_where_its_default_acts(self, name, settings, jobs, helps):
        with pytest.raises(InputError, match="can never act") as caught:
            check_acts(TunerSpec(name=name, settings=settings), jobs=jobs, iterations=100, source="the file")
        assert ("or leave it out" in str(caught.value)) is helps

    def test_a_missing_extra_is_reported(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "optuna", None)
        for module in ("optuna_tuner", "optuna_search", "optuna_trials"):
            monkeypatch.delitem(sys.modules, f"am.tuners.{module}", raising=False)
        # Which module of it is missed depends on what an earlier test loaded.
        with pytest.raises(InputError, match=r"not installed: 'optuna[.\w]*'.*themis-scheduler\[optuna\]"):
            make_tuner(TunerSpec(name="optuna"), JOBS)


@pytest.mark.parametrize(
    ("name", "settings", "gpus"),
    [
        ("successive_halving", {"eta": 2}, 20),
        ("optuna", {}, 20),
        ("optuna", {"sampler": "tpe"}, 8),
        ("optuna", {"sampler": "random", "parallel": 3}, 6),
        ("optuna", {"sampler": "tpe", "parallel": 30}, 20),
        ("optuna", {"sampler": "tpe", "trials": 2}, 4),
    ],
)
def test_sampler_runs_only_some_jobs_at_once(name, settings, gpus):
    jobs = tuple(JobSpec(job_id=f"j{index}", iterations_total=9, shape=JobShape(tasks=2)) for index in range(10))
    assert (
        gpus_at_once(
            AppSpec(name="a", tuner=TunerSpec(name=name, settings=settings), program=ProgramSpec(name="p"), jobs=jobs)
        )
        == gpus
    )
