"""The ResourceManager of a run as a process: start it, wait for it, and stop it with everything it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from themis.errors import ThemisError
from themis.processes import GUARD, kill_marked
from themis.python_programs import module_command
from themis_lab.testbed.reaper import RUN_MARK

START_LIMIT_S = 30.0
STOP_GRACE_S = 10.0
_POLL_S = 0.05
_LOG_LINES = 15


class RmFailedError(ThemisError):
    """The ResourceManager ended, or did not become ready."""


def rm_command(settings: Path) -> tuple[str, ...]:
    """The command that starts a ResourceManager with these settings."""
    return module_command("themis_cli.main", "rm", "start", "-c", str(settings))


class RmProcess:
    """A ResourceManager and all its descendants, identified by their mark.

    Two mechanisms end it if this process dies. The guard lets the kernel send SIGTERM to the ResourceManager, so that
    it stops in order. The reaper kills the remaining processes of the run.

    Args:
        command: The command to run.
        run_id: The mark of all processes of this run.
        log: File for its output.
        environment: Variables in addition to those of this process.
    """

    def __init__(
        self, command: Sequence[str], run_id: str, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._marks = {RUN_MARK: run_id}
        self._log = log
        plain = {name: value for name, value in os.environ.items() if name != RUN_MARK}
        self._reaper = subprocess.Popen(
            module_command("themis_lab.testbed.reaper", run_id),
            env=plain,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        guard = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(int(signal.SIGTERM))]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*guard, *command],
                env={**plain, **(environment or {}), **self._marks},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Id of the ResourceManager's process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the ResourceManager itself runs."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raise RmFailedError with the end of the log if the ResourceManager has ended."""
        if not self.running:
            code = self._process.returncode
            raise RmFailedError(
                f"the ResourceManager ended with code {code}", remedy=f"its log ends with:\n{self._tail()}"
            )

    def wait_for_address(
        self, path: Path, cancelled: Callable[[], bool] = lambda: False, *, limit_s: float = START_LIMIT_S
    ) -> str:
        """Return the address that it writes to `path` when it listens. Empty if `cancelled` returns True first.

        Raises:
            RmFailedError: It ended, or wrote no address within `limit_s` seconds.
        """
        deadline_s = time.monotonic() + limit_s
        while not cancelled():
            self.check()
            if path.is_file():
                return path.read_text(encoding="utf-8").strip()
            if time.monotonic() > deadline_s:
                remedy = f"its log ends with:\n{self._tail()}"
                raise RmFailedError(f"the ResourceManager was not ready within {limit_s:g} s", remedy=remedy)
            time.sleep(_POLL_S)
        return ""

    def stop(self, hurry: Callable[[], bool] = lambda: False) -> tuple[int, ...]:
        """Stop it and all its descendants: SIGTERM, SIGKILL after a grace, then SIGKILL to all marked processes.

        Args:
            hurry: Returns True to end the grace.

        Returns:
            Ids of processes that did not die, normally none.
        """
        deadline_s = time.monotonic() + STOP_GRACE_S
        if self.running:
            self._process.terminate()
        while self.running and time.monotonic() < deadline_s and not hurry():
            time.sleep(_POLL_S)
        if self.running:
            self._process.kill()
        self._process.wait()
        left = kill_marked(self._marks)
        if self._reaper.stdin is not None:
            self._reaper.stdin.close()
        self._reaper.wait()
        return left

    def _tail(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-_LOG_LINES:]) or "(nothing)"
