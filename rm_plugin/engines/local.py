"""App masters as processes of this machine. Linux only.

App masters outlive the ResourceManager. After a restart, it finds and adopts them, and they register again. Tasks do
not outlive their app master.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rm_plugin.engines.port import AmExit, AmLaunch, EngineAttempts, HeldLock, NoLock, OnAmExit
from rm_plugin.engines.submitters import Submitters, submitter_environment
from themis.accounts import Account
from themis.control_groups import ControlGroup, Limits
from themis.errors import InputError, UnreachableError
from themis.files import last_line
from themis.processes import (
    ProcessSpec,
    RunningProcess,
    StartError,
    has_marks,
    kill_marked,
    look_surely,
    start,
    wait_for_exit,
)
from themis.python_programs import module_command
from themis.sessions import (
    Member,
    adopts_orphans,
    children_in_other_sessions,
    kill_sessions,
    reap,
    sessions_below,
)

_LOG = logging.getLogger(__name__)
AM_COMMAND = module_command("am.main")
AM_MEMORY_MB = 2048
"""What an app may use in addition to its tasks, where control groups limit it: for the app master and its tuner."""
APP_MARK = "THEMIS_APP_ID"
RUN_MARK = "THEMIS_RUN_ID"
_AGAIN_S = 1.0
STOP_LIMIT_S = 60.0
"""Killing takes seconds, unless the kernel does not let go of a process, as on a file server that hangs."""
_PASSES, _PASS_S = 50, 0.02
"""How often at most, and how many seconds apart, orphans are looked for: one that is killed may leave others."""


class LocalAppLauncher:
    """Starts `am.main` in a session of its own, its output in `am-ATTEMPT.log` of the app's folder.

    Args:
        run_id: Marks all processes of this ResourceManager's run, across its restarts.
        on_exit: Called for each app master that ended, after its tasks have ended.
        lock: Confirmed before each start and each kill.
        submitters: Decides as which user an app runs; by default all run as this process's.
        command: A command to start instead of the app master, for tests.
    """

    def __init__(
        self,
        run_id: str,
        on_exit: OnAmExit,
        lock: HeldLock | None = None,
        *,
        submitters: Submitters | None = None,
        command: Sequence[str] = AM_COMMAND,
    ) -> None:
        if not run_id:
            raise InputError("a run needs an id", value=run_id)
        self._run_id = run_id
        self._on_exit = on_exit
        self._lock = lock or NoLock()
        self._submitters = submitters or Submitters()
        self._command = tuple(command)
        self._watchers: set[asyncio.Task[None]] = set()
        self._gone: dict[str, asyncio.Event] = {}
        self._pids: dict[str, int] = {}
        self._closed = False

    async def launch(self, launch: AmLaunch) -> int:
        """Start an attempt; returns its process id.

        Raises:
            StartError: It cannot be started.
            InputError: No app of its user can run here.
        """
        await self.kill(launch.app_id)
        account = await asyncio.to_thread(self._prepare, launch)
        inherited = os.environ if account is None else submitter_environment(os.environ, account, launch.working_dir)
        ours = {**self._marks(launch.app_id), "THEMIS_ATTEMPT": str(launch.attempt)}
        await self._lock.confirm()
        process = start(
            ProcessSpec(
                command=self._command,
                environment={**inherited, **launch.environment, **ours},
                working_dir=launch.working_dir,
                stdout=launch.working_dir / _log_name(launch.attempt),
                stdin=launch.token,
                account=account,
                limits=Limits(memory_mb=launch.tasks_memory_mb and launch.tasks_memory_mb + AM_MEMORY_MB),
            )
        )
        self._watch(launch.app_id, launch.attempt, process.pid, process, launch.working_dir)
        return process.pid

    async def adopt(self, app_id: str, attempt: int, pid: int) -> bool:
        """Watch an app master that an earlier ResourceManager of this run started."""
        # Another process may have the id now, so check the marks. Another user's process may carry them too.
        if not await look_surely(has_marks, pid, self._marks(app_id), uid=self._submitters.uid_of(app_id)):
            return False
        self._watch(app_id, attempt, pid, None)
        return True

    def waiting(self, app_id: str) -> str:
        """Return nothing: an app master that is launched runs."""
        return ""

    def queue(self, app_id: str) -> str:
        """Return nothing: this engine has no queues."""
        return ""

    async def attempts(self, app_id: str, attempt: int) -> EngineAttempts:
        """Return the known attempt: this engine starts none by itself."""
        return EngineAttempts(newest=attempt)

    async def kill(self, app_id: str) -> None:
        """Send SIGKILL to every process of the app. Its exit is reported later."""
        await self._sweep(self._marks(app_id), below=[self._pids[app_id]] if app_id in self._pids else [])
        # Until its watcher has swept too: that sweep must not meet the app's next attempt.
        if gone := self._gone.get(app_id):
            await gone.wait()

    async def shutdown(self) -> None:
        """SIGKILL every process of this run, but wait for at most `STOP_LIMIT_S`."""
        self._closed = True
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await self._sweep({RUN_MARK: self._run_id}, below=list(self._pids.values()))
                # The watchers go on after the limit: another call waits for them again.
                await asyncio.shield(asyncio.gather(*self._watchers))
        except TimeoutError:
            left = ", ".join(sorted(self._gone)) or "what is left of apps that have ended"
            raise UnreachableError("not all processes could be killed", value=left) from None

    def _prepare(self, launch: AmLaunch) -> Account | None:
        try:
            return self._submitters.prepare(launch.user, launch.working_dir)
        except OSError as error:
            raise StartError(
                "cannot prepare an app's folder", value=str(launch.working_dir), remedy=str(error)
            ) from error

    def _marks(self, app_id: str) -> dict[str, str]:
        return {APP_MARK: app_id, RUN_MARK: self._run_id}

    async def _sweep(self, marks: Mapping[str, str], *, below: Sequence[int] = ()) -> None:
        """Kill all processes with marks, and those without that are below these app masters, which adopt orphans."""
        left: Sequence[int] = ()
        sessions: dict[int, frozenset[Member]] = {}
        answers: list[bool] = []

        def may_kill() -> bool:
            answers.append(self._lock.is_fresh())
            return answers[-1]

        is_over = False
        while not is_over:
            answers.clear()
            await self._lock.confirm()
            # In threads, as they look at every process of the machine, and wait.
            if below:
                sessions.update(await look_surely(sessions_below, *below))
            left = await look_surely(kill_marked, marks, may_kill=may_kill)
            if sessions and may_kill():
                await look_surely(kill_sessions, sessions)
            is_over = not left or all(answers)
        if left:
            _LOG.warning("processes with %s cannot be killed: %s", marks, left)

    async def _sweep_surely(self, marks: Mapping[str, str]) -> None:
        """Sweep as soon as the lock is confirmed. If it is lost, this process ends meanwhile."""
        while True:
            try:
                return await self._sweep(marks)
            except UnreachableError as error:
                _LOG.warning("%s", error)
                if self._closed:
                    return None
                await asyncio.sleep(_AGAIN_S)

    async def _end_orphans(self) -> None:
        """Kill what a dead app master left to this process, if it adopts orphans.

        A task may end its own app master, and a program of that task may have no marks. App masters that live adopt
        their orphans themselves.
        """
        for _ in range(_PASSES if adopts_orphans() else 0):
            children = await look_surely(children_in_other_sessions)
            # An app master that was started meanwhile is known by now.
            masters = frozenset(self._pids.values())
            orphans = {session: members for session, members in children.items() if session not in masters}
            if not orphans or not self._lock.is_fresh():
                return
            found = [member for members in orphans.values() for member in members]
            below = await look_surely(sessions_below, *[member.pid for member in found])
            await look_surely(kill_sessions, {**below, **orphans})
            await asyncio.sleep(_PASS_S)
            reap(found)

    def _watch(
        self, app_id: str, attempt: int, pid: int, process: RunningProcess | None, folder: Path | None = None
    ) -> None:
        self._gone[app_id] = asyncio.Event()
        self._pids[app_id] = pid
        watcher = asyncio.get_running_loop().create_task(self._until_exit(app_id, attempt, pid, process, folder))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _until_exit(
        self, app_id: str, attempt: int, pid: int, process: RunningProcess | None, folder: Path | None
    ) -> None:
        exit_code: int | None = None
        if process is None:
            control_group = await look_surely(ControlGroup.of, pid)
            await wait_for_exit(pid)
            if control_group is not None:
                await look_surely(control_group.kill)
        else:
            exit_code = await process.wait()
        del self._pids[app_id]
        await self._end_orphans()
        # Tasks die with their master by themselves; what they started beside themselves does not.
        await self._sweep_surely(self._marks(app_id))
        self._gone.pop(app_id).set()
        if not self._closed:
            words = last_line(folder / _log_name(attempt)) if folder is not None and (exit_code or 0) > 0 else ""
            await self._on_exit(AmExit(app_id=app_id, attempt=attempt, pid=pid, exit_code=exit_code, last_words=words))


def _log_name(attempt: int) -> str:
    return f"am-{attempt}.log"
