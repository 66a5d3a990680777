"""Check an app's program on this machine before the app is submitted."""

from __future__ import annotations

import posixpath
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

from tf_jobs.catalog import Program, check_values, program
from tf_jobs.dealing import check_batch_size, check_parts
from tf_jobs.tables_reader import model_speed, nearest_curve, parse_slowdown
from themis.apps import AppSpec, CodeArchive, HyperParameter, JobSpec, ProgramSpec
from themis.code_archive import files_in
from themis.errors import FoundErrors, InputError

_SHELL_WORDS = frozenset(
    (
        *("!", ".", ":", "[", "[[", "case", "cd", "eval", "exec", "export", "for", "function", "if", "set", "source"),
        *("test", "time", "trap", "ulimit", "umask", "unset", "until", "while"),
        *("alias", "command", "exit", "hash", "read", "readonly", "return", "shift", "type", "unalias", "wait"),
    )
)
"""Words that the shell itself implements; a search of PATH does not find them."""


class ProgramApp(Protocol):
    """The parts of an app that its program depends on: those of an AppSpec."""

    @property
    def program(self) -> ProgramSpec: ...  # noqa: D102

    @property
    def jobs(self) -> Sequence[JobSpec]: ...  # noqa: D102


def check_program(app: AppSpec, source: str) -> AppSpec:
    """Return the app with parameters of its program's types, and `replay` set if its program is a replay.

    Args:
        app: The app as its file describes it.
        source: The file, for errors.

    Raises:
        InputError: See `typed_program`.
    """
    return replace(app, **typed_program(app, source))


def typed_program(app: ProgramApp, source: str, searched: Sequence[str] = ()) -> dict[str, Any]:
    """Check an app's program, and return what changes in the app for the types of the program's parameters.

    Args:
        app: The app, or its parts that can be read.
        source: The file, for errors.
        searched: Hyper-parameters that the jobs lack, since their values cannot be read.

    Raises:
        InputError: The catalogue lacks the program, the program lacks a parameter or refuses its value, a batch is too
            small for the most tasks that a job may get, or the command's first word cannot be run.
    """
    if app.program.command:
        own_path = bool(app.program.python or app.program.requirements)
        check_command(app.program.command, source, app.program.code, own_path=own_path)
        return {}
    entry, found = program(app.program.name), FoundErrors()
    arguments: Mapping[str, HyperParameter] = found.run(check_values, entry.name, app.program.arguments) or {}
    if entry.kind == "replay":
        found.run(_check_replayed, arguments)
    # All jobs, though those of a search usually share their errors: each is shown once.
    jobs = [typed for job in found.run(lambda: app.jobs) or () if (typed := found.run(_typed_job, entry, job, source))]
    for name in searched:
        found.run(_check_searched, entry, name, source)
    found.raise_all()
    if entry.kind == "real":
        for job in jobs:
            _check_dealing(entry, {**arguments, **job.hyper_parameters}, job, source)
    return {
        "program": replace(app.program, arguments=dict(arguments)),
        "jobs": tuple(jobs),
        "replay": entry.kind == "replay",
    }


def _check_replayed(arguments: Mapping[str, HyperParameter]) -> None:
    """Check that the speeds and the loss curve of a replay exist."""
    found = FoundErrors()
    if "model" in arguments:
        found.run(model_speed, str(arguments["model"]))
    if arguments.get("slowdown"):
        found.run(parse_slowdown, str(arguments["slowdown"]))
    if arguments.get("curve"):
        found.run(nearest_curve, str(arguments["curve"]), 1.0)
    found.raise_all()


def check_command(command: str, source: str, code: CodeArchive | None = None, *, own_path: bool = False) -> None:
    """Check that a shell command begins with something that can be run.

    Args:
        command: The command.
        source: Where it was given, for errors.
        code: The code that travels with the app. The command starts in its folder.
        own_path: Whether the folder of another interpreter comes first in PATH, so that this machine does not know all
            commands.

    Raises:
        InputError: The command is empty, or has an open quote, or its first word is no executable,
            file or shell builtin.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        if "#" in command or "<<" in command:
            return  # A quote in a comment or in a here-document opens nothing.
        raise InputError(f"{source}: the command is not a shell command", value=str(error)) from None
    place = next((place for place, word in enumerate(words) if not _is_assignment(word)), len(words))
    if any(opening in word for word in words[:place] for opening in ("$(", "${", "`")):
        return  # Only the shell knows where such a value ends: `n=$(cat n 2>/dev/null); sh x`.
    first = words[place] if place < len(words) else ""
    if not first:
        raise InputError(f"{source}: the command is empty", value=command, remedy="write what each task is to run")
    if first in _SHELL_WORDS or any(character in first for character in "$`(){};&|<>%*?~#"):
        return  # Only the shell can expand this.
    exists, runs = _is_file(first), shutil.which(first) is not None
    if code is not None and "/" in first and not first.startswith("/"):
        runs = files_in(code).get(posixpath.normpath(first), False)
        exists = posixpath.normpath(first) in files_in(code)
    if not runs and ("/" in first or not own_path):
        what = "is not executable" if exists else "is not a command on PATH, nor a file"
        remedy = "chmod +x makes it so" if exists else "check its spelling, or give its whole path"
        raise InputError(f"{source}: the command's first word {what}", value=first, remedy=remedy)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:
        # Longer than any file name.
        return False


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _check_dealing(entry: Program, given: Mapping[str, HyperParameter], job: JobSpec, source: str) -> None:
    """Check that a batch can be split over the most tasks that the job may get. Otherwise it would fail later."""
    values = {name: int(given.get(name, entry.flag(name).default or 0)) for name in ("batch_size", "ordered_parts")}
    try:
        check_batch_size(values["batch_size"], job.shape.tasks)
        check_parts(values["ordered_parts"], values["batch_size"], job.shape.tasks)
    except InputError as error:
        raise InputError(f"{source}: {job.job_id}: {error.what}", value=error.value, remedy=error.remedy) from None


def _check_searched(entry: Program, name: str, source: str) -> None:
    """Check that a hyper-parameter is a flag of the program, and one that may differ between jobs."""
    if not entry.flag(name).hyper_parameter:
        searchable = ", ".join(flag.name for flag in entry.flags if flag.hyper_parameter)
        remedy = f"set it under arguments, for every job alike; a search may vary {searchable}"
        raise InputError(f"{source}: {entry.name} does not let a search vary", value=name, remedy=remedy)


def _typed_job(entry: Program, job: JobSpec, source: str) -> JobSpec:
    """Raises InputError with all errors of this job."""
    found, typed = FoundErrors(), {}
    for name, value in job.hyper_parameters.items():
        values = found.run(check_values, entry.name, {name: value})
        if values is None:
            continue
        found.run(_check_searched, entry, name, source)
        typed.update(values)
    found.raise_all()
    return replace(job, hyper_parameters=typed)
