"""The command line of a job: a program of the catalogue, or the user's shell command with placeholders filled in."""

from __future__ import annotations

import posixpath
import re
import shlex
import sys
from collections.abc import Mapping

from msgspec import field

from am.jobs.requirements import with_requirements
from themis.apps import HyperParameter, JobSpec, ProgramSpec
from themis.config.placeholders import substitute
from themis.errors import InputError
from themis.python_programs import module_command
from themis.values import Value

CATALOGUE_PACKAGE = "tf_jobs"
EXIT_USAGE = 2
"""A program's word for: called wrongly."""

RESERVED = ("iterations", "checkpoint_every", "keep_checkpoints", "seed")
_MODULE = re.compile(r"[a-z][a-z0-9_]*")
_FLAG = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class RunValues(Value, frozen=True, kw_only=True):
    """The values that the app master itself passes to a job.

    Attributes:
        iterations: Cumulative iteration at which the program ends.
        checkpoint_every: Iterations between two checkpoints.
        keep_checkpoints: How many of the newest checkpoints stay.
        seed: Seed of the job's data order, initial state and noise.
        paths: More names for placeholders of shell commands, such as `checkpoint_path`.
    """

    iterations: int
    checkpoint_every: int
    keep_checkpoints: int = 3
    seed: int = 0
    paths: Mapping[str, str] = field(default_factory=dict)


def job_command(
    program: ProgramSpec, job: JobSpec, run: RunValues, *, python: str = sys.executable
) -> tuple[str, ...] | str:
    """What each task of the job runs: program and arguments, or text for the shell.

    A catalogue program gets every value as a flag `--name=value`. In a shell command `%name%` stands for the value of
    that name, quoted for the shell (write placeholders outside of quotes); a `%word%` that is no known name stays.

    Args:
        program: The app's program.
        job: The job; its hyper-parameters win over the program's arguments.
        run: What the app master adds.
        python: Interpreter of catalogue programs.

    Raises:
        InputError: A program or parameter name that cannot be used, or one that the app master gives itself.
    """
    ours = (run.iterations, run.checkpoint_every, run.keep_checkpoints, run.seed)
    values = {**dict(zip(RESERVED, ours, strict=True)), **_given(program, job)}
    if program.command:
        known = {**run.paths, **{name: value_text(value) for name, value in values.items()}}
        text = substitute(program.command, {name: shlex.quote(value) for name, value in known.items()})
        if program.requirements:
            text = with_requirements(program.requirements, program.python, text)
        return _with_interpreter(program.python, text) if program.python else text
    if not _MODULE.fullmatch(program.name):
        raise InputError("unusable program name", value=program.name, remedy="use a-z, 0-9 and '_'")
    flags = (f"--{name}={value_text(value)}" for name, value in values.items())
    return module_command(f"{CATALOGUE_PACKAGE}.{program.name}", *flags, python=python)


def _with_interpreter(path: str, command: str) -> str:
    """Put the folder of an interpreter first in PATH. On a machine without it the task ends as for wrong usage."""
    missing = shlex.quote(f"themis: no interpreter here: {path}")
    return (
        f"[ -x {shlex.quote(path)} ] || {{ echo {missing} >&2; exit {EXIT_USAGE}; }}\n"
        f'export PATH={shlex.quote(posixpath.dirname(path))}:"$PATH"\n{command}'
    )


def value_text(value: HyperParameter) -> str:
    """A value as it stands on a command line: `true`, `false`, and numbers so that they read back equal."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _given(program: ProgramSpec, job: JobSpec) -> dict[str, HyperParameter]:
    """Arguments and hyper-parameters by name, sorted: mappings off the wire come in no order."""
    given = {**program.arguments, **job.hyper_parameters}
    for name in given:
        if name in RESERVED:
            raise InputError("the app master gives this value itself", value=name, remedy="set it in the app's file")
        if not _FLAG.fullmatch(name):
            raise InputError("unusable parameter name", value=name, remedy="use letters, digits and '_'")
    return dict(sorted(given.items()))
