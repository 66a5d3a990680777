"""Processes that outlive their starter: started detached, identified by id and start time, ended completely.

A signal needs more than the id, because a later process may have the same one. Linux only (/proc, pidfd).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from themis.processes import PROC
from themis.values import Value
from themis_lab.devcluster.errors import DevClusterError

_POLL_S = 0.05
_KILL_LIMIT_S = 10.0
_SPAWN = Path(__file__).with_name("spawn.py")


class KnownProcess(Value, frozen=True, kw_only=True):
    """A process, identified also after it was started by another program.

    Attributes:
        pid: Its id.
        started: When it started, in clock ticks after the start of the machine (`starttime` in proc(5)).
        boot: Which start of the machine that was.
    """

    pid: int
    started: int
    boot: str

    def is_running(self) -> bool:
        """Whether this very process runs; a zombie does not."""
        return self.boot == _boot() and _status(self.pid) == (self.started, True)

    def send(self, number: signal.Signals) -> None:
        """Send a signal. Does nothing if the process is gone."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # Checked after the pidfd was opened: from then on the signal cannot reach another process.
            if self.is_running():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)


def spawn(command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> KnownProcess:
    """Start a process detached from this one: in a session of its own, adopted by init, with output appended to `log`.

    Raises:
        DevClusterError: It cannot be started.
    """
    starter = [sys.executable, "-I", "-S", str(_SPAWN), str(log), *command]
    # Only the output of this child is awaited; Ctrl-C at the terminal must not reach what it starts.
    done = subprocess.run(
        starter, env=dict(environment), cwd=folder, capture_output=True, text=True, check=False, start_new_session=True
    )
    if done.returncode != 0:
        raise DevClusterError("cannot start a daemon", value=command[0], remedy=done.stderr.strip())
    pid = int(done.stdout)
    status = _status(pid)
    # None: it has already ended, which the caller will notice.
    return KnownProcess(pid=pid, started=status[0] if status else -1, boot=_boot())


def end(processes: Iterable[KnownProcess], grace_s: float) -> None:
    """Send SIGTERM to all, and SIGKILL after `grace_s` seconds to the remaining ones. Returns when all are gone.

    Raises:
        DevClusterError: A process outlives even that.
    """
    running = [process for process in processes if process.is_running()]
    for process in running:
        process.send(signal.SIGTERM)
    kill(_wait(running, grace_s))


def kill(processes: Iterable[KnownProcess]) -> None:
    """Send SIGKILL to all. Returns when they are gone.

    Raises:
        DevClusterError: A process outlives even that.
    """
    running = list(processes)
    for process in running:
        process.send(signal.SIGKILL)
    if left := _wait(running, _KILL_LIMIT_S):
        pids = [process.pid for process in left]
        raise DevClusterError("processes do not end, even when killed", value=pids, remedy="look at their disks")


def known(pid: int) -> KnownProcess | None:
    """The process with this id now. Returns None if there is none or it is a zombie."""
    status = _status(pid)
    return KnownProcess(pid=pid, started=status[0], boot=_boot()) if status and status[1] else None


def working_below(folder: Path) -> tuple[KnownProcess, ...]:
    """This user's processes whose working folder is this folder or below it, even after it was removed."""
    found = []
    for pid in (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()):
        process = known(pid)
        if process is not None and pid != os.getpid() and _works_below(pid, folder):
            found.append(process)
    return tuple(found)


def _works_below(pid: int, folder: Path) -> bool:
    try:
        # A folder that is gone reads as `/its/path (deleted)`.
        return (PROC / str(pid) / "cwd").readlink().is_relative_to(folder)
    except OSError:
        return False


def _wait(processes: Sequence[KnownProcess], limit_s: float) -> list[KnownProcess]:
    """The processes that still run after `limit_s` seconds."""
    deadline_s = time.monotonic() + limit_s
    left = list(processes)
    while (left := [process for process in left if process.is_running()]) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    return left


def _status(pid: int) -> tuple[int, bool] | None:
    """Start time in ticks, and whether it is alive rather than a zombie; None without such a process."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, with anything in it; then come state and others.
    fields = text.rpartition(")")[2].split()
    return int(fields[19]), fields[0] not in "ZXx"


def _boot() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
