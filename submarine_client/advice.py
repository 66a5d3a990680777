"""Notes for the user of a valid app that may behave unexpectedly. The command prints them to standard error."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from tf_jobs.catalog import program
from themis.apps import AppSpec
from themis.config.tuner_settings import OPTUNA


def advice(app: AppSpec) -> Iterator[str]:
    """Yield notes on an app before it runs: an unknown pace, and extras that this machine lacks."""
    if app.program.command and app.estimate.serial_iteration_s is None:
        yield (
            "pace unknown: a job that has run for half a lease, at most 45 s, without a step in its log is assumed to "
            "run for a day; set estimate.serial_iteration_s if you know its pace"
        )
    for what, package, extra in _extras(app):
        if find_spec(package) is None:
            yield (
                f"{what} needs the package {package}, which this machine lacks; where its app master or tasks run:"
                f" pip install 'themis-scheduler[{extra}]'"
            )


def _extras(app: AppSpec) -> Iterator[tuple[str, str, str]]:
    """Yield (feature, package, extra) for each feature of the app that needs an optional package."""
    if app.tuner.name == OPTUNA:
        yield "tuner optuna", "optuna", "optuna"
    if app.program.name and program(app.program.name).kind == "real":
        yield f"program {app.program.name}", "tensorflow", "tf"
    if app.checkpoint_uri.startswith(("hdfs://", "webhdfs://")):
        yield f"checkpoint_uri {app.checkpoint_uri}", "hdfs", "hdfs"
