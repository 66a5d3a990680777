"""Processes: started in a group of their own, ended whole, found again by a mark in their environment.

The one exception to "no I/O in the kernel" beside configuration and wire: the ResourceManager's engine and the app
master's runtime both start processes and may not import each other. Linux only (process groups, pidfd, /proc).

Only three kinds of process are ever signalled: a group whose leader we started and have not reaped yet (so that its id
cannot have passed to a stranger), such a group's leader, and processes that carry all the given marks and are of this
user, or of any user if we are root: a service of root starts processes of other users (`ProcessSpec.account`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, TypeVar

import psutil

from themis.accounts import Account
from themis.control_groups import NO_LIMITS, ControlGroup, Limits
from themis.errors import InputError, InvariantError, ThemisError
from themis.files import open_regular
from themis.sessions import Member, has_members, is_shortage, kill_sessions, raise_shortage, sessions_below
from themis.values import Value, repr_without

P = ParamSpec("P")
T = TypeVar("T")

_LOG = logging.getLogger(__name__)
PROC = Path("/proc")
GUARD = Path(__file__).with_name("process_guard.py")
_KILL_PASS_S = 0.02
_CLEAN_PASSES = 2
_EXEC_TRY_S = 0.001
_EXEC_TRIES = 2000
_READ_BYTES = 1 << 17
_MAX_ENVIRONMENT_BYTES = 8 << 20
"""`execve` allows 6 MiB of arguments and environment. But a process may later declare any of its memory to be it."""
_LOOK_AGAIN_S = 1.0
_GROUP_LOOK_S = 0.05
_GROUP_LOOKS = 100
"""Looks at a control group that was killed: 5 s, as long as `kill_marked` takes at most."""


class StartError(ThemisError, OSError):
    """A process could not be started."""


class ProcessSpec(Value, frozen=True, kw_only=True):
    """What to start.

    Attributes:
        command: Program and arguments; no shell.
        environment: The whole environment; nothing is inherited beside it.
        working_dir: Made when missing.
        stdout: File that standard output is appended to; its folder is made when missing.
        stderr: The same for standard error; None means the file of `stdout`.
        stdin: A secret that it reads from its standard input, which is empty after it. No other process can read it.
        dies_with_parent: The kernel kills it (SIGKILL) when this process, or the thread that started it, ends.
        cores: The cores on which it may run, by the system's numbers. Empty for all. Needs `dies_with_parent`.
        account: The user whose rights it has instead of ours. Needs root. The folders must exist; a new log is this
            user's.
        limits: What it and its descendants may use, where control groups can limit them (`themis.control_groups`).
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    working_dir: Path
    stdout: Path
    stderr: Path | None = None
    stdin: str = ""
    dies_with_parent: bool = False
    cores: tuple[int, ...] = ()
    account: Account | None = None
    limits: Limits = NO_LIMITS

    def __post_init__(self) -> None:
        if self.cores and not self.dies_with_parent:
            raise InvariantError("only a guarded process can be pinned to cores", value=self.cores)

    __repr__ = repr_without("environment", "stdin")


class RunningProcess:
    """A process that we started, leader of its own session and group.

    When the leader ends, whatever is left of its group is killed, unless `terminate` gives it time. So are all its
    other descendants where it has a control group. `ran_out_of_memory` then says whether the limit of that group ended
    it. Made by `start`; belongs to the event loop that ran then.
    """

    def __init__(self, popen: subprocess.Popen[bytes], control_group: ControlGroup | None = None) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._control_group = control_group
        self._ending = False
        self.ran_out_of_memory = False
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._leader_ended = asyncio.Event()
        self._graces = 0
        self._sessions: dict[int, frozenset[Member]] = {}
        # A pidfd turns readable when the process ends: no thread and no SIGCHLD handler is needed.
        self._pidfd = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._pidfd, self._on_exit)

    @property
    def exit_code(self) -> int | None:
        """None while it, or a group that has time to end, runs; minus the signal's number when a signal ended it."""
        return self._exited.result() if self._exited.done() else None

    async def wait(self) -> int:
        """The exit code, once there is one. Any number of callers may wait."""
        return await asyncio.shield(self._exited)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; nothing happens once it has ended."""
        if not self._exited.done():
            _signal_group(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL to the whole group.

        `wait` returns once the leader has ended. A member without a control group may take a moment longer.
        """
        self.note_sessions()
        self.signal_group(signal.SIGKILL)

    def note_sessions(self) -> None:
        """Remember descendants that are in other sessions: they are killed when the leader has ended.

        Once their parents are gone nothing shows whose they were. So `terminate` and `kill` call this, and callers that
        look at the process now and then may do so too.
        """
        # Without a file handle for this, they are found by their marks alone.
        with contextlib.suppress(OSError):
            if not self._exited.done():
                self._sessions.update(sessions_below(self.pid))

    async def terminate(self, grace_s: float) -> int:
        """SIGTERM to the group, SIGKILL to what is left of it after `grace_s` seconds; returns the leader's exit code.

        The whole group has this time, also when the leader ends first. Example: the leader is a shell that runs
        `train & wait`. SIGTERM ends the wait and the shell at once, while the program still saves.
        """
        if self._exited.done():
            return self._exited.result()
        self._graces += 1
        try:
            # In a thread, because this examines every process of the machine.
            with contextlib.suppress(OSError):
                self._sessions.update(await asyncio.to_thread(sessions_below, self.pid))
            self.signal_group(signal.SIGTERM)
            async with asyncio.timeout(grace_s):
                await self._leader_ended.wait()
                while await look_surely(has_members, self.pid):  # noqa: ASYNC110 - no event reports this
                    await asyncio.sleep(_GROUP_LOOK_S)
        except TimeoutError:
            self.kill()
        finally:
            self._graces -= 1
            if self._leader_ended.is_set():
                self._end()
        return await self.wait()

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._leader_ended.set()
        if not self._graces:
            self._end()

    def _end(self) -> None:
        if self._ending:
            return
        # The leader is a zombie until `wait` reaps it, so the group's id is still its own.
        _signal_group(self.pid, signal.SIGKILL)
        try:
            if self._sessions:
                kill_sessions(self._sessions)
            if self._control_group is not None:
                self._control_group.kill()
        except OSError as error:
            _LOG.warning("%s", error)
            self._loop.call_later(_LOOK_AGAIN_S, self._end)
            return
        self._ending = True
        self._report(_GROUP_LOOKS)

    def _report(self, looks: int) -> None:
        if self._control_group is not None:
            try:
                populated = self._control_group.populated
            except OSError as error:
                _LOG.warning("%s", error)
                self._loop.call_later(_LOOK_AGAIN_S, self._report, looks)
                return
            if looks and populated:
                self._loop.call_later(_GROUP_LOOK_S, self._report, looks - 1)
                return
            self.ran_out_of_memory = self._control_group.ran_out_of_memory
            self._control_group.remove()
        self._exited.set_result(self._popen.wait())


def start(spec: ProcessSpec) -> RunningProcess:
    """Start a process in its own session; call it on the event loop's thread.

    Raises:
        StartError: The program, its folder or its log file cannot be used. A guarded command (`dies_with_parent`) that
            does not exist ends with exit code 127 instead and says so in its stderr.
    """
    command = list(spec.command)
    # An app master, which is not guarded, makes groups for its tasks.
    control_group = ControlGroup.make(spec.limits, for_maker=not spec.dies_with_parent)
    if spec.dies_with_parent:
        guard = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(int(signal.SIGKILL))]
        cores = [f"--cores={','.join(map(str, spec.cores))}"] if spec.cores else []
        group = [f"--control-group={control_group.folder}"] if control_group else []
        command = [*guard, *group, *cores, *command]
    try:
        for folder in {spec.working_dir, spec.stdout.parent, (spec.stderr or spec.stdout).parent}:
            folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as files:
            stdin = _holding(spec.stdin)
            files.callback(os.close, stdin)
            stdout = files.enter_context(_appended(spec.stdout, spec.account))
            stderr = files.enter_context(_appended(spec.stderr, spec.account)) if spec.stderr else subprocess.STDOUT
            if control_group is not None and spec.account is not None:
                control_group.delegate(spec.account)
            popen = subprocess.Popen(
                command,
                env=dict(spec.environment),
                cwd=spec.working_dir,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                **_rights(spec.account),
            )
    except (OSError, ValueError) as error:
        # ValueError: a null byte in an argument.
        if control_group is not None:
            control_group.remove()
        raise StartError("cannot start a process", value=command[0], remedy=str(error)) from error
    if control_group is not None and not spec.dies_with_parent:
        # Children that it has by now stay outside. An app master has none: its interpreter still starts.
        control_group.add(popen.pid)
    try:
        return RunningProcess(popen, control_group)
    except OSError as error:
        # Without a file handle its end would not be noticed.
        _signal_group(popen.pid, signal.SIGKILL)
        popen.wait()
        if control_group is not None:
            with contextlib.suppress(OSError):
                control_group.kill()
            control_group.remove()
        raise StartError("cannot watch a process", value=command[0], remedy=str(error)) from error


def _rights(account: Account | None) -> dict[str, Any]:
    """The arguments of `Popen` for the rights of a user."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": account.groups}


def _holding(text: str) -> int:
    """A pipe that holds a short text and then ends; the null device for none."""
    if not text:
        return os.open(os.devnull, os.O_RDONLY)
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as file:
        file.write(text)
    return reader


def _appended(log: Path, account: Account | None) -> BinaryIO:
    """A log to add to. A task may have put a pipe in its place, of which the opening would wait for a reader.

    The folder of another user's log is that user's, who may have put a link to a third user's file there. So a log that
    exists must be that user's.
    """
    flags = os.O_WRONLY | os.O_APPEND
    if account is None:
        return os.fdopen(open_regular(log, flags | os.O_CREAT), "ab")
    try:
        file = os.fdopen(open_regular(log, flags | os.O_CREAT | os.O_EXCL), "ab")
        os.fchown(file.fileno(), account.uid, account.gid)
    except FileExistsError:
        file = os.fdopen(open_regular(log, flags), "ab")
        if os.fstat(file.fileno()).st_uid != account.uid:
            file.close()
            raise PermissionError(f"{log} is not a file of {account.name}") from None
    return file


async def wait_for_exit(pid: int) -> None:
    """Return when the process of this id, ours or not, has ended; at once when there is none."""
    try:
        pidfd = await look_surely(os.pidfd_open, pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


async def look_surely(look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that looks at the machine's processes in a thread; again while this process lacks file handles.

    A process that cannot be seen may run, and hold a GPU. All other errors of the function are raised.
    """
    while True:
        try:
            return await asyncio.to_thread(look, *args, **kwargs)
        except OSError as error:
            if not is_shortage(error):
                raise
            _LOG.warning("the processes of this machine cannot be looked at: %s", error)
            await asyncio.sleep(_LOOK_AGAIN_S)


def has_marks(pid: int, marks: Mapping[str, str], *, uid: int | None = None) -> bool:
    """Whether that process was started with all these environment variables, and is of the user `uid`, by default ours.

    Any user can start a process with any variables. So a process that shall be relied on must be of the right user.
    """
    process = _marked_process(pid, _checked(marks))
    return process is not None and _real_uid(process) == (os.getuid() if uid is None else uid)


def find_marked(marks: Mapping[str, str]) -> tuple[int, ...]:
    """Ids of living processes that were started with all these environment variables; never the caller's.

    They are this user's, or any user's if we are root.

    A program that empties its environment for its children (`env -i`) hides them from this.
    """
    return tuple(process.pid for process in _find_marked(_checked(marks)))


def kill_marked(
    marks: Mapping[str, str], *, wait_s: float = 5.0, may_kill: Callable[[], bool] = lambda: True
) -> tuple[int, ...]:
    """SIGKILL every process that `find_marked` finds, until none is left; blocks.

    Args:
        marks: Environment variables with their values, all of which a process must carry. At least one, none empty.
        wait_s: How long to go on, in seconds.
        may_kill: Asked before each kill. If it says no, nothing more is killed.

    Returns:
        Ids of those that still live after `wait_s`, or may not be killed; normally none.
    """
    wanted = _checked(marks)
    deadline_s = time.monotonic() + wait_s
    # More than one pass: a process may fork before it is killed, or fork and end before it is looked at.
    clean = 0
    while clean < _CLEAN_PASSES:
        found = _find_marked(wanted)
        clean = 0 if found else clean + 1
        for process in found:
            if not may_kill():
                return tuple(process.pid for process in found)
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.kill()
        if found and time.monotonic() >= deadline_s:
            return tuple(process.pid for process in found)
        if found:
            time.sleep(_KILL_PASS_S)
    return ()


def _signal_group(pid: int, number: signal.Signals) -> None:
    # The group is gone (nothing to do), or all that is left of it changed its user id (nothing we may do).
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _checked(marks: Mapping[str, str]) -> Mapping[str, str]:
    # An empty mark would match, and end, every process of the user.
    if not marks or not all(name and value for name, value in marks.items()):
        raise InputError("processes are found by marks with a name and a value", value=dict(marks))
    return marks


def _find_marked(marks: Mapping[str, str]) -> list[psutil.Process]:
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    pids = (int(name) for name in os.listdir(PROC) if name.isdigit())  # noqa: PTH208 - a Path each costs too much
    found = (_marked_process(pid, marks) for pid in pids if pid not in spared)
    return [process for process in found if process is not None]


def _marked_process(pid: int, marks: Mapping[str, str]) -> psutil.Process | None:
    """The process of this id if it is this user's, or we are root, and it is no zombie and carries the marks."""
    # The environment is read before psutil is asked: seven times cheaper, as nearly all processes end here.
    if not _environment_holds(pid, marks):
        return None
    try:
        process = psutil.Process(pid)
        ours = os.getuid() in (0, _real_uid(process)) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    # Read again: psutil refuses to signal an id that passed on after this object was made, but not one before.
    return process if ours and _environment_holds(pid, marks) else None


def _real_uid(process: psutil.Process) -> int | None:
    """The user of a process, or None if it has ended."""
    try:
        return int(process.uids().real)
    except psutil.NoSuchProcess:
        return None


def _environment_holds(pid: int, marks: Mapping[str, str]) -> bool:
    try:
        environment = _environment(f"{PROC}/{pid}")
    except OSError as error:
        raise_shortage(error)
        # It ended just now, is a zombie or a thread of the kernel, or is another user's.
        return False
    wanted = [os.fsencode(f"{name}={value}") for name, value in marks.items()]
    # Most processes can be excluded without parsing their environment.
    return all(mark in environment for mark in wanted) and set(wanted) <= set(environment.split(b"\0"))


def _environment(folder: str) -> bytes:
    """The environment that a process was started with; `folder` is its own in /proc.

    Amid `exec` it reads as empty, and `start` may return that early: on a busy machine one process in twenty would be
    overlooked for up to 0.3 s, as measured, and live on. The kernel has not said yet where it ends, there.
    """
    if environment := _read(f"{folder}/environ"):
        return environment
    for _ in range(_EXEC_TRIES):
        # A zombie and a thread of the kernel have no program: this raises.
        os.readlink(f"{folder}/exe")  # noqa: PTH115 - as above
        laid_out = _environment_end(folder) != 0
        environment = _read(f"{folder}/environ")
        if environment or laid_out:
            return environment
        time.sleep(_EXEC_TRY_S)
    return b""


def _environment_end(folder: str) -> int:
    """Address at which the environment ends (`env_end` in proc(5)), 0 amid `exec`."""
    # The second field is the program's name in parentheses, with anything in it.
    return int(_read(f"{folder}/stat").rpartition(b")")[2].split()[48])


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        parts, left = [], _MAX_ENVIRONMENT_BYTES
        while left > 0 and (part := os.read(descriptor, min(left, _READ_BYTES))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
