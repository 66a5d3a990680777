"""Limits on what an app passes to its programs: the kernel refuses to start a program whose texts are too large.

`submarine app validate` and the ResourceManager check the same limits, since not every client is ours.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sized

from themis.apps import AppSpec, JobSpec, MetricSpec, ProgramSpec
from themis.config.names import check_parameter_name
from themis.config.placeholders import substitute
from themis.errors import InputError

MAX_TEXT_BYTES = 100_000
"""Below the kernel's limit of 128 KiB for a single text (MAX_ARG_STRLEN): the name, and paths, are added to it."""

MAX_ENVIRONMENT_BYTES = 1_000_000
"""Below the kernel's limit for arguments and environment together, usually 2 MiB (execve(2))."""

MAX_VALUES = 1_000


def check_limits(spec: AppSpec, source: str) -> None:
    """Raise InputError if a text, or the sum of them, is too large for a program, or cannot be passed to one.

    Args:
        spec: The app.
        source: Where it was given, for errors.
    """
    check_metric(spec.metric, source)
    _check_values("setting", spec.tuner.settings, source)
    _check_values("argument", spec.program.arguments, source)
    _check_environment(spec.program.environment, source)
    _check_text("python", spec.program.python, source)
    for job in spec.jobs:
        _check_values("hyper-parameter", job.hyper_parameters, source)
        _check_command(spec.program, job, source)


def check_metric(metric: MetricSpec, source: str) -> None:
    """Raise InputError if the metric is malformed, for example a wrong pattern, or `mode: max` without a name."""
    if metric.mode not in ("min", "max"):
        raise InputError(f"{source}: metric.mode is min or max", value=metric.mode)
    if len(metric.name) > MAX_VALUES or len(metric.regex) > MAX_VALUES:
        raise InputError(f"{source}: metric has a text of more than {MAX_VALUES} characters", value=metric.name[:40])
    if metric.mode == "max" and not metric.declared:
        remedy = "give metric.name too, as in {name: val_accuracy, mode: max}"
        raise InputError(f"{source}: metric.mode max needs a metric", value=metric.mode, remedy=remedy)
    if not metric.regex:
        return
    try:
        groups = re.compile(metric.regex).groups
    except re.error as error:
        remedy = "write a regular expression of Python, in single quotes"
        raise InputError(f"{source}: metric.regex is malformed: {error}", value=metric.regex, remedy=remedy) from error
    if not groups:
        remedy = "put parentheses around the value, as in 'val: ([0-9.]+)'"
        raise InputError(f"{source}: metric.regex has no group", value=metric.regex, remedy=remedy)


def _check_command(program: ProgramSpec, job: JobSpec, source: str) -> None:
    given = {**program.arguments, **job.hyper_parameters}
    # Filled in by the app master; paths of checkpoints come on top.
    filled = substitute(program.command, {name: shlex.quote(str(value)) for name, value in given.items()})
    size = _bytes(filled) if program.command else sum(_bytes(f"--{name}={value}") for name, value in given.items())
    most = MAX_TEXT_BYTES if program.command else MAX_ENVIRONMENT_BYTES
    if size > most or "\0" in filled:
        remedy = f"at most {most} bytes with all values, no NUL; put it into a script or a file"
        raise InputError(f"{source}: the command of {job.job_id} cannot be run", value=f"{size} bytes", remedy=remedy)


def _check_environment(environment: Mapping[str, str], source: str) -> None:
    check_few("variables of the environment", environment, source)
    for name, value in environment.items():
        check_parameter_name(name, f"{source}: environment")
        _check_text(f"environment.{name}", value, source)
    size = sum(_bytes(name) + _bytes(value) + 2 for name, value in environment.items())
    if size > MAX_ENVIRONMENT_BYTES:
        remedy = f"at most {MAX_ENVIRONMENT_BYTES} bytes in all; put long values into files"
        raise InputError(f"{source}: the environment is too large", value=f"{size} bytes", remedy=remedy)


def _check_values(what: str, values: Mapping[str, object], source: str) -> None:
    check_few(f"{what}s", values, source)
    for name, value in values.items():
        check_parameter_name(name, f"{source}: {what}")
        if isinstance(value, str):
            _check_text(f"{what} {name}", value, source)
        elif isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{source}: {what} {name} is no finite number", value=value)


def _check_text(what: str, text: str, source: str) -> None:
    size = _bytes(text)
    if size > MAX_TEXT_BYTES or "\0" in text:
        remedy = f"at most {MAX_TEXT_BYTES} bytes, no NUL"
        raise InputError(f"{source}: {what} cannot be passed on", value=f"{size} bytes", remedy=remedy)


def check_few(what: str, items: Sized, source: str, most: int = MAX_VALUES) -> None:
    """Raise InputError if there are more than `most` items."""
    if len(items) > most:
        raise InputError(f"{source}: too many {what}", value=len(items), remedy=f"at most {most}")


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
