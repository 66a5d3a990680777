"""Apps as submitted to the testbed, as a workload: pace, S, and the losses that decide who goes on."""

import pytest
from documents import ROOT
from msgspec.structs import replace

from tf_jobs.catalog import program
from tf_jobs.flags import parse
from tf_jobs.replay_job import curve_of, speed_of
from themis.apps import AppSpec, Estimate, JobSpec, ProgramSpec, Slowdown, TunerSpec
from themis.errors import InputError
from themis_lab.simulator.workloads import mix as sim_mix
from themis_lab.simulator.workloads.mix import from_specs
from themis_lab.testbed.mix import arrivals, load_mix

NO_ESTIMATE = Estimate()
MAIN = ROOT / "conf/testbed/main.yaml"


def spec(program_spec, estimate=NO_ESTIMATE, **hyper_parameters):
    job = JobSpec(job_id="j", iterations_total=100, hyper_parameters=hyper_parameters)
    return AppSpec(name="a", tuner=TunerSpec(name="single"), program=program_spec, jobs=(job,), estimate=estimate)


def test_the_testbed_s_own_mix():
    mix = load_mix(MAIN)
    arriving = arrivals(mix)
    workload = from_specs(((each.at_s, each.spec) for each in arriving), name="main", time_scale=mix.time_scale)
    assert [app.name for app in workload.apps] == [each.spec.name for each in arriving]
    for app, each in zip(workload.apps, arriving, strict=True):
        assert (app.arrival_s, app.tuner) == (each.at_s, each.spec.tuner)
        replayed = each.spec.program.name == "replay"
        for job, spec_job in zip(app.jobs, each.spec.jobs, strict=True):
            assert (job.job_id, job.iterations_total, job.shape) == (
                spec_job.job_id,
                spec_job.iterations_total,
                spec_job.shape,
            )
            pace = mix.time_scale if replayed else 1.0
            assert job.serial_iteration_s * pace == pytest.approx(each.spec.estimate.serial_iteration_s)


def test_a_replayed_job_runs_at_its_true_speeds_where_it_has_some():
    stated = spec(ProgramSpec(name="replay", arguments={"speeds": "v100=3,k80=0.5"}))
    jobs = tuple(replace(job, speed_by_device={"v100": 9.0, "cpu": 0.2}) for job in stated.jobs)
    (app,) = from_specs([(0.0, replace(stated, jobs=jobs))], name="m", time_scale=10.0).apps
    assert app.jobs[0].speed_by_device == {"v100": 3.0, "cpu": 0.2, "k80": 0.5}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"model": "bert", "learning_rate": 0.003, "curve_iterations": 200, "log_every": 7},
        {"model": "lm", "curve": "digits_cnn", "serial_iteration_s": 9.0, "slowdown": "1,1.5,2,3"},
    ],
)
def test_a_replayed_job_runs_and_learns_as_the_replay_job_does(arguments):
    (app,) = from_specs([(0.0, spec(ProgramSpec(name="replay", arguments=arguments)))], name="m", time_scale=10.0).apps
    (job,) = app.jobs
    flags = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    values = parse(program("replay"), [*flags, "--iterations", "100"])
    speed, curve = speed_of(values), curve_of(values)
    assert job.serial_iteration_s * 10.0 == pytest.approx(speed.serial_iteration_time_s)
    assert job.slowdown == Slowdown(**speed.slowdown)
    every, end = values.whole("log_every"), values.whole("curve_iterations")
    for iteration in (1, every, 3 * every, end):
        assert job.curve.at(iteration) == curve.loss(
            iteration // every * every / end if iteration >= every else 1 / end
        )
    assert job.curve.at(3 * every - 1) == job.curve.at(2 * every), "the newest log line"


def test_defaults_are_the_catalogue_s():
    defaults = {flag.name: flag.default for flag in program("replay").flags}
    ours = {
        "model": sim_mix.DEFAULT_MODEL,
        "learning_rate": sim_mix.DEFAULT_LEARNING_RATE,
        "log_every": sim_mix.DEFAULT_LOG_EVERY,
        "curve_iterations": sim_mix.DEFAULT_CURVE_ITERATIONS,
    }
    assert {name: defaults[name] for name in ours} == ours


def test_a_job_s_own_hyper_parameters_go_before_the_app_s_arguments():
    arguments = {"model": "bert", "learning_rate": 0.1}
    rates = (0.1, 0.0003)
    curves = [
        from_specs([(0.0, spec(ProgramSpec(name="replay", arguments=arguments), learning_rate=rate))], name="m")
        .apps[0]
        .jobs[0]
        .curve.recorded.learning_rate
        for rate in rates
    ]
    assert tuple(curves) == rates


def test_an_app_that_trains_uses_its_estimate():
    estimate = Estimate(serial_iteration_s=0.5, slowdown=Slowdown(1.0, 1.0, 2.0, 3.0))
    trained = spec(ProgramSpec(name="digits_dense"), estimate)
    (app,) = from_specs([(3.0, trained)], name="m", time_scale=10.0).apps
    assert (app.jobs[0].serial_iteration_s, app.jobs[0].slowdown) == (0.5, estimate.slowdown)
    assert (app.model, app.arrival_s) == ("digits_dense", 3.0)
    assert from_specs([(3.0, trained)], name="m", seed=1) != from_specs([(3.0, trained)], name="m", seed=2)


def test_an_app_without_an_estimate_is_refused():
    with pytest.raises(InputError, match="serial_iteration_s"):
        from_specs([(0.0, spec(ProgramSpec(command="python train.py")))], name="m")


def test_arguments_that_are_no_numbers():
    with pytest.raises(InputError, match="log_every must be a number"):
        from_specs([(0.0, spec(ProgramSpec(name="replay", arguments={"log_every": "often"})))], name="m")
