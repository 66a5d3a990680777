"""Limits on what an app passes to its programs: the kernel refuses to start a program whose texts are too large.

`submarine app validate` and the ResourceManager check the same limits, since not every client is ours.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence, Sized
from typing import Protocol

from themis.apps import JobSpec, MetricSpec, ProgramSpec, TunerSpec
from themis.config.names import check_parameter_name
from themis.config.placeholders import placeholders
from themis.errors import FoundErrors, InputError

MAX_TEXT_BYTES = 100_000
"""Below the kernel's limit of 128 KiB for a single text (MAX_ARG_STRLEN): the name, and paths, are added to it."""

MAX_ENVIRONMENT_BYTES = 1_000_000
"""Below the kernel's limit for arguments and environment together, usually 2 MiB (execve(2))."""

MAX_VALUES = 1_000

HIDDEN = "(hidden)"
"""The value of each variable in a specification whose reader did not ask for the environment."""


class LimitedApp(Protocol):
    """The parts of an app that have limits: those of an AppSpec."""

    @property
    def metric(self) -> MetricSpec: ...  # noqa: D102

    @property
    def tuner(self) -> TunerSpec: ...  # noqa: D102

    @property
    def program(self) -> ProgramSpec: ...  # noqa: D102

    @property
    def jobs(self) -> Sequence[JobSpec]: ...  # noqa: D102


def check_limits(spec: LimitedApp, source: str) -> None:
    """Raise InputError if a text, or the sum of them, is too large for a program, or cannot be passed to one.

    Args:
        spec: The app.
        source: Where it was given, for errors.
    """
    found = FoundErrors()
    for check in (_check_metric, _check_settings, _check_program, _check_sets, _check_commands):
        found.run(check, spec, source)
    found.raise_all()


def check_pattern(metric: MetricSpec, source: str) -> None:
    """Raise InputError if the metric's regular expression is malformed, or has no group for the value.

    This is for the client and the app master, not for the ResourceManager: a user's expression may take minutes to
    compile.
    """
    if not metric.regex:
        return
    try:
        groups = re.compile(metric.regex).groups
    except (re.error, OverflowError, RecursionError) as error:
        remedy = "write a regular expression of Python, in single quotes"
        raise InputError(f"{source}: metric.regex is malformed: {error}", value=metric.regex, remedy=remedy) from error
    if not groups:
        remedy = "put parentheses around the value, as in 'val: ([0-9.]+)'"
        raise InputError(f"{source}: metric.regex has no group", value=metric.regex, remedy=remedy)


def _check_metric(spec: LimitedApp, source: str) -> None:
    metric = spec.metric
    if metric.mode not in ("min", "max"):
        raise InputError(f"{source}: metric.mode is min or max", value=metric.mode)
    if len(metric.name) > MAX_VALUES or len(metric.regex) > MAX_VALUES:
        raise InputError(f"{source}: metric has a text of more than {MAX_VALUES} characters", value=metric.name)
    if metric.mode == "max" and not metric.declared:
        remedy = "give metric.name too, as in {name: val_accuracy, mode: max}"
        raise InputError(f"{source}: metric.mode max needs a metric", value=metric.mode, remedy=remedy)


def _check_settings(spec: LimitedApp, source: str) -> None:
    _check_values("setting", spec.tuner.settings, source)


def _check_program(spec: LimitedApp, source: str) -> None:
    program, found = spec.program, FoundErrors()
    found.run(_check_values, "argument", program.arguments, source)
    found.run(_check_environment, program.environment, source)
    found.run(_check_text, "python", program.python, source)
    found.run(_check_text, "requirements", program.requirements, source)
    found.run(_check_text, "command", program.command, source)
    found.raise_all()


def _check_sets(spec: LimitedApp, source: str) -> None:
    found = FoundErrors()
    for job in spec.jobs:
        found.run(_check_values, "hyper-parameter", job.hyper_parameters, source)
    found.raise_all()


def _check_commands(spec: LimitedApp, source: str) -> None:
    """Check the size of each job's command as the app master fills it in; paths of checkpoints come on top.

    It is not filled in here: with its values it may have any size.
    """
    command = spec.program.command
    uses = placeholders(command)

    def size(name: str, value: object) -> int:
        if not command:
            return _bytes(f"--{name}={value}")
        return uses[name] * (_bytes(shlex.quote(str(value))) - len(f"%{name}%"))

    most = MAX_TEXT_BYTES if command else MAX_ENVIRONMENT_BYTES
    sizes = {name: size(name, value) for name, value in spec.program.arguments.items()}
    common = _bytes(command) + sum(sizes.values())
    for job in spec.jobs:
        whole = common + sum(size(name, value) - sizes.get(name, 0) for name, value in job.hyper_parameters.items())
        if whole > most:
            remedy = f"at most {most} bytes with all values; put it into a script or a file"
            raise InputError(
                f"{source}: the command of {job.job_id} cannot be run", value=f"{whole} bytes", remedy=remedy
            )


def _check_environment(environment: Mapping[str, str], source: str) -> None:
    check_few("variables of the environment", environment, source)
    found = FoundErrors()
    for name, value in environment.items():
        found.run(check_parameter_name, name, f"{source}: environment")
        found.run(_check_variable, name, value, source)
    found.raise_all()
    size = sum(_bytes(name) + _bytes(value) + 2 for name, value in environment.items())
    if size > MAX_ENVIRONMENT_BYTES:
        remedy = f"at most {MAX_ENVIRONMENT_BYTES} bytes in all; put long values into files"
        raise InputError(f"{source}: the environment is too large", value=f"{size} bytes", remedy=remedy)


def _check_variable(name: str, value: str, source: str) -> None:
    _check_text(f"environment.{name}", value, source)
    if value == HIDDEN:
        remedy = "ask for the app with its environment (`ShowRequest.environment`), or update this client"
        raise InputError(f"{source}: environment.{name} was hidden when it was read", value=value, remedy=remedy)


def _check_values(what: str, values: Mapping[str, object], source: str) -> None:
    check_few(f"{what}s", values, source)
    found = FoundErrors()
    for name, value in values.items():
        found.run(check_parameter_name, name, f"{source}: {what}")
        if isinstance(value, str):
            found.run(_check_text, f"{what} {name}", value, source)
        elif isinstance(value, float) and not math.isfinite(value):
            found.add(InputError(f"{source}: {what} {name} is no finite number", value=value))
    found.raise_all()


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
