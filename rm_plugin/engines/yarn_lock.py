"""A lock in a folder on HDFS: at most one ResourceManager at a time uses it, and so its YARN cluster.

The lock is the file `lock-N` of the highest number. The holder sets the file's time every `RENEW_S` seconds. A file
whose time does not change for `EXPIRY_S` seconds is of a dead holder, and any process may claim the next number. HDFS
renames a file onto a new name in one step, so only one process gets each number. Waiting processes compare the file's
times with each other, never with their own clock.
"""

from __future__ import annotations

import json
import logging
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

from themis.clock import boot_id
from themis.errors import InputError, InvariantError, ThemisError
from themis.hadoop.webhdfs import HdfsStatus, WebHdfs
from themis.hadoop.webhdfs_errors import HdfsExistsError, HdfsMissingError
from themis.values import Value

LOG = logging.getLogger("themis.rm.yarn")

RENEW_S = 5.0
EXPIRY_S = 30.0
_LOOK_S = 1.0
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


class StorageLock:
    """The lock of one folder. Its methods block.

    Args:
        hdfs: The connection.
        folder: Folder of the lock's files, and of nothing else.
        holder: This process.
        sleep: Waits that many seconds.
    """

    def __init__(
        self, hdfs: WebHdfs, folder: str, holder: LockHolder, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._hdfs = hdfs
        self._folder = folder
        self._holder = holder
        self._sleep = sleep
        self._number = 0

    def acquire(self) -> None:
        """Take the lock; waits up to `EXPIRY_S` to see whether a former holder lives.

        Raises:
            InputError: Another process holds it.
            UnreachableError: HDFS is away.
        """
        self._hdfs.make_folders(self._folder)
        while not self._number:
            newest = self._newest()
            if newest is not None:
                self._check_dead(newest)
            self._claim(1 if newest is None else _number(newest) + 1)

    def renew(self) -> None:
        """Show that this process lives.

        Raises:
            LockLostError: Another process has the lock.
            UnreachableError: HDFS is away.
        """
        newest = self._newest()
        if newest is None or _number(newest) != self._number:
            by = "unknown" if newest is None else str(self._read(newest) or newest.name)
            raise LockLostError("another ResourceManager has taken the lock of yarn.storage", value=by)
        self._hdfs.touch(self._path(self._number), int(1000 * time.time()))

    def release(self) -> None:
        """Give the lock back, if this process holds it."""
        if self._number:
            self._hdfs.delete(self._path(self._number))
            self._number = 0

    # ---- inside ----

    def _newest(self) -> HdfsStatus | None:
        locks = [status for status in self._hdfs.list(self._folder) if _NAME.fullmatch(status.name)]
        return max(locks, key=_number, default=None)

    def _check_dead(self, lock: HdfsStatus) -> None:
        """Return once the lock's holder counts as dead. Raises InputError if it lives."""
        holder = self._read(lock)
        if holder is not None and holder.is_known_dead():
            return
        LOG.info("waiting up to %g s to see whether %s lives", EXPIRY_S, holder or lock.name)
        # Count successful reads, not time: while HDFS does not answer, the holder cannot renew its lock.
        for _ in range(int(EXPIRY_S / _LOOK_S)):
            self._sleep(_LOOK_S)
            now = self._newest()
            if now is None:
                return
            if (now.name, now.modified_ms) != (lock.name, lock.modified_ms):
                raise InputError(
                    "another ResourceManager uses this yarn.storage",
                    value=f"{self._folder}: {self._read(now) or now.name}",
                    remedy="stop it there with `themis rm stop`, or set another yarn.storage",
                )

    def _claim(self, number: int) -> None:
        """Take this number if no other process does, and remove lower ones."""
        mine = f"{self._folder}/.{self._holder.token}"
        self._hdfs.create(mine, lambda: json.dumps(to_builtins(self._holder)).encode())
        try:
            self._hdfs.rename(mine, self._path(number))
        except HdfsExistsError:
            self._hdfs.delete(mine)
            return
        newest = self._newest()
        if newest is None or _number(newest) != number or self._read(newest) != self._holder:
            # The number was free only because another process has moved on to a higher one.
            return
        self._number = number
        for status in self._hdfs.list(self._folder):
            if _NAME.fullmatch(status.name) and _number(status) < number:
                self._hdfs.delete(f"{self._folder}/{status.name}")

    def _read(self, lock: HdfsStatus) -> LockHolder | None:
        """Return the holder of a lock. None if its file is gone or damaged."""
        try:
            return convert(json.loads(self._hdfs.read_whole(f"{self._folder}/{lock.name}")), LockHolder)
        except (HdfsMissingError, ValueError):
            return None

    def _path(self, number: int) -> str:
        return f"{self._folder}/lock-{number:08d}"


def _number(lock: HdfsStatus) -> int:
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
