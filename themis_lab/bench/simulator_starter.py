"""Run a command and print its resources. Started as `python -I -S simulator_starter.py LIMIT_S OUT_FILE COMMAND..`.

Linux only. The kernel keeps the peak memory of a process over `exec`, that of its parent before it included: so what is
to be measured starts from this small process, not from the one that draws workloads. One line of JSON goes to standard
output: exit code (negative: the signal), wall and CPU seconds, peak memory in MiB. Past LIMIT_S seconds the command is
killed; it is also killed when this process dies. The command's standard output goes to OUT_FILE.

Standard library only and few imports: its own memory is the least that can be measured.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_KIB = 1024.0
_CANNOT_RUN = 127


def main(arguments: list[str]) -> int:
    """Run the command to its end or to the limit."""
    limit_s, out_path, command = float(arguments[0]), arguments[1], arguments[2:]
    kernel, own_pid = ctypes.CDLL(None, use_errno=True), os.getpid()
    # Ctrl-C is for the process that started this one: it kills this one, and the kernel kills the command.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begun_s = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        _become(command, out_path, kernel, own_pid)
    signal.signal(signal.SIGALRM, lambda *_: _kill(pid))
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    _, status, usage = os.wait4(pid, 0)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    wall_s = time.perf_counter() - begun_s
    code, cpu_s = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
    peak_mib = usage.ru_maxrss / _KIB
    sys.stdout.write(f'{{"exit_code": {code}, "wall_s": {wall_s!r}, "cpu_s": {cpu_s!r}, "peak_mib": {peak_mib!r}}}\n')
    return 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # It ended by itself at the very moment when its time was up.


def _become(command: list[str], out_path: str, kernel: ctypes.CDLL, parent_pid: int) -> None:
    """In the child: become the command, which dies with its parent."""
    try:
        if kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != parent_pid:
            os._exit(_CANNOT_RUN)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.dup2(os.open(out_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"themis: cannot run {command[0]!r}: {error.strerror}\n")
    finally:
        os._exit(_CANNOT_RUN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
