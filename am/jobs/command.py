"""The command line of a job: a program of the catalogue, or the user's shell command with placeholders filled in."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping

from themis.apps import HyperParameter, JobSpec, ProgramSpec
from themis.errors import InputError, UnknownNameError, nearest

CATALOGUE_PACKAGE = "tf_jobs"
RESERVED = ("iterations", "checkpoint_every")
_MODULE = re.compile(r"[a-z][a-z0-9_]*")
_FLAG = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = re.compile(r"%([A-Za-z_][A-Za-z0-9_]*)%")


def job_command(
    program: ProgramSpec,
    job: JobSpec,
    *,
    iterations: int,
    checkpoint_every: int,
    seed: int,
    paths: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> tuple[str, ...] | str:
    """What each task of the job runs: program and arguments, or text for the shell.

    A catalogue program gets every value as a flag `--name=value`. In a shell command `%name%` stands for the value of
    that name, quoted for the shell (write placeholders outside of quotes). A `%word%` that resembles no known name stays
    as it is, since `date +%Y%m%d` is no placeholder; one that does is refused as a slip of the pen.

    Args:
        program: The app's program.
        job: The job; its hyper-parameters win over the program's arguments.
        iterations: Cumulative iteration at which the program ends.
        checkpoint_every: Iterations between two checkpoints.
        seed: Seed of the job, unless its hyper-parameters or the arguments give one.
        paths: More names for placeholders, such as `checkpoint_path`; not given to catalogue programs.
        python: Interpreter of catalogue programs.

    Raises:
        InputError: A program or parameter name that cannot be used, or one that is reserved.
        UnknownNameError: A placeholder that nearly is a known name.
    """
    values = _values(program, job, iterations, checkpoint_every, seed)
    if program.name:
        if not _MODULE.fullmatch(program.name):
            raise InputError("unusable program name", value=program.name, remedy="use a-z, 0-9 and '_'")
        module = f"{CATALOGUE_PACKAGE}.{program.name}"
        return (python, "-m", module, *(f"--{name}={value_text(value)}" for name, value in values.items()))
    return _fill(program.command, {**(paths or {}), **values})


def value_text(value: HyperParameter) -> str:
    """A value as it stands on a command line: `true`, `false`, and numbers so that they read back equal."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(
    program: ProgramSpec, job: JobSpec, iterations: int, checkpoint_every: int, seed: int
) -> dict[str, HyperParameter]:
    """All values by name: ours first, the others by name, as mappings off the wire come in no order."""
    given = {**program.arguments, **job.hyper_parameters}
    for name in given:
        if name in RESERVED:
            raise InputError("a reserved name among the parameters", value=name, remedy="the app master sets it itself")
        if not _FLAG.fullmatch(name):
            raise InputError("unusable parameter name", value=name, remedy="use letters, digits and '_'")
    ours: dict[str, HyperParameter] = {
        "iterations": iterations,
        "checkpoint_every": checkpoint_every,
        "seed": given.pop("seed", seed),
    }
    return {**ours, **dict(sorted(given.items()))}


def _fill(command: str, values: Mapping[str, HyperParameter]) -> str:
    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        if name in values:
            return shlex.quote(value_text(values[name]))
        if nearest(name, values):
            raise UnknownNameError("placeholder", name, values)
        return match[0]

    return _PLACEHOLDER.sub(replacement, command)
