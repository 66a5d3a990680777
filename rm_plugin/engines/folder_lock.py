"""A lock in a shared folder: at most one ResourceManager at a time uses it, and with it its YARN cluster or its state.

The lock is the file `lock-N` of the highest number. The holder sets the file's time every `RENEW_S` seconds. A file
whose time does not change for `EXPIRY_S` seconds is of a dead holder, and any process may claim the next number. A file
is created in one step, so only one process gets each number. Waiting processes compare the file's times with each
other, never with their own clock.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import psutil
from msgspec import convert, to_builtins

from rm_plugin.engines.shared_folder import SharedFile, SharedFolder
from themis.clock import boot_id
from themis.errors import InputError, InvariantError, ThemisError
from themis.values import Value

LOG = logging.getLogger("themis.rm.lock")

RENEW_S = 5.0
EXPIRY_S = 30.0
FRESH_S = 20.0
"""Seconds after a renewal in which no other process can have taken the lock; less than `EXPIRY_S`, by a margin."""
LOOK_S = 1.0
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


class LockLostError(ThemisError):
    """Another ResourceManager has taken the lock, because this one did not renew it in time."""


class FolderLock:
    """The lock of one shared folder. Its methods block.

    Args:
        folder: May have other files, too.
        holder: This process.
        sleep: Waits that many seconds.
        now_s: A clock that also counts while the machine is suspended, in seconds.
    """

    def __init__(
        self,
        folder: SharedFolder,
        holder: LockHolder,
        *,
        sleep: Callable[[float], None] = time.sleep,
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

    def acquire(self) -> None:
        """Take the lock; waits up to `EXPIRY_S` to see whether a former holder lives.

        Raises:
            InputError: Another process holds it.
            UnreachableError: The folder is away.
        """
        watched = None
        while (other := self.try_acquire()) is not None:
            if watched is not None and watched != self._watched:
                raise InputError(
                    "another ResourceManager uses the same shared folder",
                    value=f"{self._folder.place}: {other}",
                    remedy="stop it there with `themis rm stop`, set another folder, or wait for its end with --standby",
                )
            if watched is None:
                LOG.info("waiting up to %g s to see whether %s lives", EXPIRY_S, other)
            watched = self._watched
            self._sleep(LOOK_S)

    def try_acquire(self) -> LockHolder | str | None:
        """Look once, and take the lock if it is free; to be called every `LOOK_S` seconds.

        Returns None if this process has the lock now, else its holder, or the lock's name if that is unreadable.

        Raises:
            UnreachableError: The folder is away.
        """
        while not self._number:
            newest = self._newest()
            if newest is not None:
                holder = self._read(newest)
                # Count successful looks, not time: while the folder is away, the holder cannot renew its lock.
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
            UnreachableError: The folder is away.
        """
        now_s = self._now_s()
        newest = self._newest()
        if newest is None or _number(newest) != self._number:
            by = "unknown" if newest is None else str(self._read(newest) or newest.name)
            raise LockLostError("another ResourceManager has taken the lock", value=by)
        self._folder.touch(newest.name)
        self._renewed_s = now_s

    def is_fresh(self) -> bool:
        """Whether the lock was renewed so recently that no other process can have taken it.

        Example: a machine was suspended for a minute. The first question after it returns False.
        """
        return self._now_s() - self._renewed_s < FRESH_S

    def release(self) -> None:
        """Give the lock back, if this process holds it."""
        if self._number:
            self._folder.delete(_name(self._number))
            self._number = 0

    # ---- inside ----

    def _newest(self) -> SharedFile | None:
        locks = [file for file in self._folder.list() if _NAME.fullmatch(file.name)]
        return max(locks, key=_number, default=None)

    def _claim(self, number: int) -> None:
        """Take this number if no other process does, and remove lower ones."""
        now_s = self._now_s()
        self._folder.create(_name(number), json.dumps(to_builtins(self._holder)).encode())
        newest = self._newest()
        if newest is None or _number(newest) != number or self._read(newest) != self._holder:
            # Another process was faster, or the number was free only because that process has a higher one by now.
            return
        self._number, self._renewed_s = number, now_s
        for file in self._folder.list():
            if _NAME.fullmatch(file.name) and _number(file) < number:
                self._folder.delete(file.name)

    def _read(self, lock: SharedFile) -> LockHolder | None:
        """Return the holder of a lock. None if its file is gone or damaged."""
        try:
            return convert(json.loads(self._folder.read(lock.name) or b""), LockHolder)
        except ValueError:
            return None


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
