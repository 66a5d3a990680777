"""Advice on an app that is valid, but whose user may be surprised: notes on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from tf_jobs.catalog import program
from themis.apps import AppSpec
from themis.config.tuner_settings import OPTUNA


def advice(app: AppSpec) -> Iterator[str]:
    """Yield what to know before the app runs: a pace that nothing says, and extras that are not installed here."""
    if app.program.command and app.estimate.serial_iteration_s is None:
        yield (
            "pace unknown: until the log of a job shows steps, the job is assumed to run for a day; the key"
            " estimate.serial_iteration_s says better"
        )
    for what, package, extra in _extras(app):
        if find_spec(package) is None:
            yield (
                f"{what} needs the package {package}, which this machine lacks; where its app master or tasks run:"
                f" pip install 'themis-scheduler[{extra}]'"
            )


def _extras(app: AppSpec) -> Iterator[tuple[str, str, str]]:
    """Yield what needs which package of which extra."""
    if app.tuner.name == OPTUNA:
        yield "tuner optuna", "optuna", "optuna"
    if app.program.name and program(app.program.name).kind == "real":
        yield f"program {app.program.name}", "tensorflow", "tf"
    if app.checkpoint_uri.startswith(("hdfs://", "webhdfs://")):
        yield f"checkpoint_uri {app.checkpoint_uri}", "hdfs", "hdfs"
