"""Run `themis simulate` in a new process and measure it from outside: wall and CPU seconds, peak memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import themis.process_guard as process_guard
from themis.errors import ThemisError
from themis.python_programs import module_command
from themis.values import Value
from themis_lab.bench import simulator_starter


class Usage(Value, frozen=True, kw_only=True):
    """Resources of a process from start to end, including the interpreter's start, and its output.

    Attributes:
        cpu_s: CPU seconds, in user and kernel mode.
        peak_mib: Peak memory in MiB.
        document: The document of the run.
    """

    wall_s: float
    cpu_s: float
    peak_mib: float
    document: Mapping[str, Any]


def simulate_apart(arguments: Sequence[str], folder: Path, limit_s: float) -> Usage | None:
    """Run `themis simulate` with these arguments and `--json`.

    Args:
        arguments: Arguments of the command, without `--json`.
        folder: Folder for the output.
        limit_s: Seconds after which the process is killed.

    Returns:
        None when it took longer than the limit.

    Raises:
        ThemisError: The run failed.
    """
    printed, progress_path = folder / "document.json", folder / "progress.txt"
    with progress_path.open("wb") as progress:
        started = subprocess.Popen(
            [*_guarded(), str(limit_s), str(printed), *_command(arguments)], stdout=subprocess.PIPE, stderr=progress
        )
        try:
            out, _ = started.communicate()
        finally:
            # However this ends, even with Ctrl-C, the kernel ends the run with its starter.
            started.kill()
            started.wait()
    taken = json.loads(out) if out else {"exit_code": started.returncode}
    if taken["exit_code"] == -signal.SIGKILL and taken["wall_s"] >= limit_s:
        return None
    if taken.pop("exit_code") != 0:
        raise ThemisError(
            "a simulation failed", value=_last_line(progress_path), remedy=f"themis {' '.join(arguments)}"
        )
    return Usage(**taken, document=json.loads(printed.read_text(encoding="utf-8")))


def _guarded() -> list[str]:
    """The starter's command, as a process that dies with this one."""
    alone = [sys.executable, "-I", "-S"]
    guard = [str(process_guard.__file__), str(os.getpid()), str(int(signal.SIGKILL))]
    return [*alone, *guard, *alone, str(simulator_starter.__file__)]


def _command(arguments: Sequence[str]) -> tuple[str, ...]:
    return module_command("themis_cli.main", *arguments, "--json")


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1].removeprefix("themis: ") if lines else "it said nothing"
