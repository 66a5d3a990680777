"""A lock in a shared folder: at most one ResourceManager at a time uses it, and with it its YARN cluster or its state.

The lock is the file `lock-N` of the highest number. The holder sets the file's time every `RENEW_S` seconds. A file
whose time does not change for `EXPIRY_S` seconds belongs to a dead holder, and any process may claim the next number.
A file is created in one step, so only one process gets each number. Waiting processes compare the file's times with
each other, never with their own clock.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
import re
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from pathlib import Path

import psutil
from msgspec import convert, to_builtins

from rm_plugin.engines.shared_folder import SharedFile, SharedFolder
from themis.clock import boot_id
from themis.errors import InputError, InvariantError, ThemisError, UnreachableError
from themis.threads import Threads
from themis.values import Value

LOG = logging.getLogger("themis.rm.lock")

RENEW_S = 5.0
EXPIRY_S = 30.0
FRESH_S = 20.0
"""Seconds after a renewal in which no other process can have taken the lock; less than `EXPIRY_S`, by a margin."""
LOOK_S = 1.0
GIVE_BACK_S = 10.0
"""Seconds that a stop waits for the folder. After that the lock expires."""
_REPORT_S = 60.0
"""Seconds between two log lines about a folder that is still unreachable."""
_YEAR_9999_S = 253_000_000_000.0
_STANDBY = "standby-"
_NAME = re.compile(r"lock-(\d{8,})")


class LockHolder(Value, frozen=True, kw_only=True):
    """The process that holds, or held, a lock.

    Attributes:
        token: Differs between all holders.
        machine: The boot of the machine and the namespace in which `pid` counts.
        started_s: When the process started. It distinguishes the process from a later one of the same id.
        since_s: When it got the lock, in seconds since the epoch.
    """

    token: str
    host: str
    pid: int
    machine: str
    started_s: float
    user: str
    state_dir: str
    since_s: float

    def __post_init__(self) -> None:
        # A damaged file: the operating system knows no such process, or no calendar such a time.
        if not (0 < self.pid < 2**31 and 0.0 <= self.since_s < _YEAR_9999_S and math.isfinite(self.started_s)):
            raise ValueError("no process holds a lock like this")

    @classmethod
    def this_process(cls, state_dir: Path) -> LockHolder:
        """Return the holder that stands for this process."""
        pid = os.getpid()
        return cls(
            token=uuid.uuid4().hex,
            host=socket.gethostname(),
            pid=pid,
            machine=_machine(),
            started_s=psutil.Process(pid).create_time(),
            user=psutil.Process(pid).username(),
            state_dir=str(state_dir.absolute()),
            since_s=time.time(),
        )

    def is_known_dead(self) -> bool:
        """Whether the process ran on this boot of this machine and has ended."""
        if not self.machine or self.machine != _machine():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started_s) > 1.0
        except psutil.NoSuchProcess:
            return True

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_s).astimezone().isoformat(sep=" ", timespec="seconds")
        return f"process {self.pid} of {self.user} on {self.host}, state_dir {self.state_dir}, since {since}"


class LockLostError(UnreachableError):
    """Another ResourceManager has taken the lock, because this one did not renew it in time: the engine is its own."""


class FolderLock:
    """The lock of one shared folder. Methods that are not asynchronous block.

    Args:
        folder: May have other files, too.
        holder: This process.
        sleep: Waits for a number of seconds.
        now_s: A clock that also counts while the machine is suspended, in seconds.
    """

    def __init__(
        self,
        folder: SharedFolder,
        holder: LockHolder,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_s: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._folder = folder
        self._holder = holder
        self._sleep = sleep
        self._now_s = now_s
        self._number = 0
        self._renewed_s = -math.inf
        self._watched: SharedFile | None = None
        self._looks = 0
        self._reported_s = -math.inf
        self._waiting: dict[str, tuple[SharedFile, float]] = {}
        # Nothing else may hold up a renewal, and one thread makes one look at a time.
        self._threads = Threads("lock", 1)
        self._look: asyncio.Task[None] | None = None
        self.standbys: tuple[str, ...] = ()
        """The processes that wait for this one's end, as text."""

    async def acquire(self, *, wait: bool = False, on_wait: Callable[[str], None] = lambda _holder: None) -> None:
        """Take the lock; watches up to `EXPIRY_S` whether a former holder lives.

        Args:
            wait: Wait for the holder's end, as a standby.
            on_wait: Called with the text of each new holder that is waited for.

        Raises:
            InputError: Another process holds the lock, and `wait` is not set.
        """
        try:
            await self._acquire(wait, on_wait)
        finally:
            if wait:
                await self._threads.run(self._leave_the_waiting)

    async def _acquire(self, wait: bool, on_wait: Callable[[str], None]) -> None:
        shown, first = "", None
        for look in itertools.count():
            try:
                other = await self._threads.run(self.try_acquire)
                if other is None:
                    return
                if wait and look % int(RENEW_S / LOOK_S) == 0:
                    await self._threads.run(self._join_the_waiting)
            except UnreachableError as error:
                self._report_unreachable(error)
                await self._sleep(LOOK_S)
                continue
            first = first or self._watched
            if not wait and first != self._watched:
                raise InputError(
                    "another ResourceManager uses the same shared folder",
                    value=f"{self._folder.place}: {other}",
                    remedy="stop it there with `themis rm stop`, set another folder, or wait for its end: --standby",
                )
            if str(other) != shown:
                shown = str(other)
                on_wait(shown)
                if not wait:
                    LOG.info("waiting up to %g s to see whether %s lives", EXPIRY_S, shown)
            await self._sleep(LOOK_S)

    async def keep(self) -> None:
        """Renew the lock until it is lost. While the folder is unavailable, no other process can take the lock either.

        Raises:
            LockLostError: Another process has the lock.
        """
        while True:
            await self._sleep(RENEW_S)
            try:
                await self._threads.run(self.renew)
            except LockLostError:
                raise
            except ThemisError as error:
                self._report_unreachable(error)

    def try_acquire(self) -> LockHolder | str | None:
        """Look once, and take the lock if it is free; to be called every `LOOK_S` seconds.

        Returns None if this process has the lock now, else its holder, or the lock's name if that is unreadable.

        Raises:
            UnreachableError: The folder is unavailable.
        """
        while not self._number:
            newest = self._newest()
            if newest is not None:
                holder = self._read(newest)
                # Count successful looks, not time: while the folder is unavailable, the holder cannot renew its lock.
                self._looks = self._looks + 1 if newest == self._watched else 0
                self._watched = newest
                is_dead = holder is not None and holder.is_known_dead()
                if not is_dead and self._looks < EXPIRY_S / LOOK_S:
                    return holder or newest.name
            self._claim(1 if newest is None else _number(newest) + 1)
        return None

    def renew(self) -> None:
        """Show that this process lives.

        Raises:
            LockLostError: Another process has the lock.
            UnreachableError: The folder is unavailable.
        """
        now_s = self._now_s()
        files = self._folder.list()
        newest = _newest(files)
        if newest is None or _number(newest) != self._number:
            by = "unknown" if newest is None else str(self._read(newest) or newest.name)
            raise LockLostError("another ResourceManager has taken the lock", value=by)
        self._folder.touch(newest.name)
        self._renewed_s = now_s
        self._look_at_the_waiting(files)

    def is_fresh(self) -> bool:
        """Whether the lock was renewed so recently that no other process can have taken it.

        Example: a machine was suspended for a minute. The first question after it returns False.
        """
        return self._now_s() - self._renewed_s < FRESH_S

    async def confirm(self) -> None:
        """Return if this process has the lock. If it is not fresh, renew it.

        Raises:
            LockLostError: Another process has the lock.
            UnreachableError: The folder is unavailable.
        """
        # A look that took long proves nothing any more: another process may have taken the lock meanwhile.
        while not self.is_fresh():
            # One look for all who ask: a folder that is unavailable answers late.
            if self._look is None or self._look.done():
                self._look = asyncio.get_running_loop().create_task(self._threads.run(self.renew))
            await asyncio.shield(self._look)

    async def give_back(self) -> None:
        """Give the lock back, if this process holds it, after a renewal that is under way. Nothing else may follow.

        Raises:
            UnreachableError: The folder is unavailable, or did not answer within `GIVE_BACK_S`.
        """
        try:
            async with asyncio.timeout(GIVE_BACK_S):
                await self._threads.run(self.release)
        except TimeoutError as error:
            raise UnreachableError("the shared folder does not answer", value=self._folder.place) from error
        finally:
            self._threads.close()

    def release(self) -> None:
        """Give the lock back, if this process holds it."""
        if self._number:
            self._folder.delete(_name(self._number))
            self._number = 0

    # ---- inside ----

    def _report_unreachable(self, error: ThemisError) -> None:
        if self._now_s() - self._reported_s >= _REPORT_S:
            LOG.warning("the lock cannot be looked at: %s", error)
            self._reported_s = self._now_s()

    def _newest(self) -> SharedFile | None:
        return _newest(self._folder.list())

    def _join_the_waiting(self) -> None:
        """Show that this process waits."""
        name = _STANDBY + self._holder.token
        if not self._folder.create(name, self._encoded()):
            self._folder.touch(name)

    def _leave_the_waiting(self) -> None:
        try:
            self._folder.delete(_STANDBY + self._holder.token)
        except ThemisError as error:
            # The active one removes it when it is old.
            LOG.info("the file of this standby stays: %s", error)

    def _look_at_the_waiting(self, files: Iterable[SharedFile]) -> None:
        now_s = self._now_s()
        waiting = {}
        for file in files:
            if file.name.startswith(_STANDBY):
                seen, since_s = self._waiting.get(file.name, (file, now_s))
                waiting[file.name] = (file, now_s if seen != file else since_s)
        for name, (_, since_s) in list(waiting.items()):
            if now_s - since_s > EXPIRY_S:
                self._folder.delete(name)
                del waiting[name]
        if waiting.keys() != self._waiting.keys():
            holders = [self._read(file) for file, _ in waiting.values()]
            self.standbys = tuple(str(holder) for holder in holders if holder is not None)
        self._waiting = waiting

    def _encoded(self) -> bytes:
        return json.dumps(to_builtins(self._holder)).encode()

    def _claim(self, number: int) -> None:
        """Take this number if no other process does, and remove lower ones."""
        now_s = self._now_s()
        self._folder.create(_name(number), self._encoded())
        newest = self._newest()
        if newest is None or _number(newest) != number or self._read(newest) != self._holder:
            # Another process was faster, or the number was free only because that process has a higher one by now.
            return
        self._number, self._renewed_s = number, now_s
        for file in self._folder.list():
            if _NAME.fullmatch(file.name) and _number(file) < number:
                self._folder.delete(file.name)

    def _read(self, file: SharedFile) -> LockHolder | None:
        """Return the process in a file. None if the file is gone or damaged."""
        try:
            return convert(json.loads(self._folder.read(file.name) or b""), LockHolder)
        except (ValueError, RecursionError):
            # Such as lists without end.
            return None


def _newest(files: Iterable[SharedFile]) -> SharedFile | None:
    """Return the lock of the highest number, None if there is none."""
    locks = [file for file in files if _NAME.fullmatch(file.name)]
    return max(locks, key=_number, default=None)


def _name(number: int) -> str:
    return f"lock-{number:08d}"


def _number(lock: SharedFile) -> int:
    match = _NAME.fullmatch(lock.name)
    if match is None:
        raise InvariantError("not a lock", value=lock.name)
    return int(match[1])


def _machine() -> str:
    """The boot of this machine and the namespace of process ids, as two containers of a machine have the same ids."""
    try:
        return f"{boot_id()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
