"""Runs a command that dies with its parent.

    python -I -S process_guard.py PARENT_PID SIGNAL [--control-group=FOLDER] [--cores=0,1] COMMAND..

Linux only. The kernel is asked to send SIGNAL to this process when its parent ends, however it ends, and then this
process becomes the command: the request survives `exec`. Two limits of the kernel's mechanism matter to callers. It is
bound to the *thread* that forked, so fork from one that lives as long as the parent. And children of the command do not
inherit it: a process that outlives the parent must end those by their mark (`themis.processes.kill_marked`).

With `--control-group` the command and all its descendants are in this control group (see `themis.control_groups`).
With `--cores` the command and its children run on these cores only, unless they change that themselves.

Standard library only and few imports, since every task pays for the start of this interpreter (about 15 ms).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_CONTROL_GROUP = "--control-group="
_CORES = "--cores="


def main(arguments: list[str]) -> int:
    """Become the command; returns only when that fails, with the shell's exit code for it."""
    parent_pid, death_signal, command = int(arguments[0]), int(arguments[1]), arguments[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        sys.stderr.write(f"themis: prctl failed: {os.strerror(ctypes.get_errno())}\n")
        return 126
    if os.getppid() != parent_pid:
        # The parent died before the request above took effect, so the signal will not come.
        return 128 + death_signal
    if command and command[0].startswith(_CONTROL_GROUP):
        _enter(command.pop(0).removeprefix(_CONTROL_GROUP))
    if command and command[0].startswith(_CORES):
        _pin(command.pop(0).removeprefix(_CORES))
    # Python ignores these at its start and an ignored signal stays ignored across exec: the command gets the defaults.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"themis: cannot run {command[0]!r}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _enter(control_group: str) -> None:
    try:
        with open(f"{control_group}/cgroup.procs", "w", encoding="ascii") as members:  # noqa: PTH123 - pathlib is slow
            members.write("0")
    except OSError as error:
        # The command is then found by its marks, as on a machine without control groups.
        sys.stderr.write(f"themis: cannot enter the control group {control_group}: {error.strerror}\n")


def _pin(cores: str) -> None:
    try:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    except OSError as error:
        # A core that went offline, or was taken from this control group, is no reason to lose a job.
        sys.stderr.write(f"themis: cannot pin to cores {cores}: {error.strerror}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
