"""Notes on apps that are valid."""

from importlib.util import find_spec

import pytest

from submarine_client import advice as advice_module
from submarine_client.advice import advice
from themis.apps import AppSpec, Estimate, JobSpec, ProgramSpec, TunerSpec


def app(tuner="single", program=None, **more):
    return AppSpec(
        name="a",
        tuner=TunerSpec(name=tuner),
        program=program or ProgramSpec(command="sleep 1"),
        jobs=(JobSpec(job_id="j0", iterations_total=1),),
        **more,
    )


def test_command_without_an_estimate_has_an_unknown_pace():
    [note] = advice(app())
    assert note.startswith("pace unknown")
    assert "estimate.serial_iteration_s" in note


def test_command_with_an_estimate_needs_no_note():
    assert list(advice(app(estimate=Estimate(serial_iteration_s=0.1)))) == []


@pytest.mark.parametrize(
    ("spec", "package", "extra"),
    [
        (app(tuner="optuna", estimate=Estimate(serial_iteration_s=1.0)), "optuna", "optuna"),
        (app(program=ProgramSpec(name="digits_cnn")), "tensorflow", "tf"),
        (app(checkpoint_uri="webhdfs://h/x", estimate=Estimate(serial_iteration_s=1.0)), "hdfs", "hdfs"),
    ],
)
def test_missing_extra_is_named_with_its_command(monkeypatch, spec, package, extra):
    monkeypatch.setattr(advice_module, "find_spec", lambda name: None if name == package else find_spec(name))
    [note] = advice(spec)
    assert f"pip install 'themis-scheduler[{extra}]'" in note
