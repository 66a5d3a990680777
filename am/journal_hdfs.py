"""A journal on HDFS, which survives the node of the app master that writes it.

Each epoch is a folder `<journal>/<epoch, 6 digits>` with a file `base` and one file per batch of lines, numbered with 8
digits. Opening the journal creates the next epoch: it writes all lines so far to `base`, renames the folder into place,
and deletes earlier epochs. Each later batch becomes a new file. If the reply to a write is lost, the batch is written
again; appending to one file would not allow that.

An app master that was replaced but still runs writes to an old epoch, which no one reads. It finds out when it begins
its next epoch.

A thread collects the lines and writes them, so `append` never waits for HDFS. If the process dies, only the last batch
may be torn or missing. So a reader always gets the first lines that were appended, without a gap.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid

from am.journal_store import JournalError, whole_lines
from themis.errors import ThemisError
from themis.hadoop.webhdfs import WebHdfs, open_webhdfs
from themis.hadoop.webhdfs_errors import HdfsExistsError, HdfsMissingError, HdfsRefusedError, HdfsUnreachableError
from themis.hadoop.webhdfs_retry import ONCE, RetryRule

LOG = logging.getLogger("themis.am")

FLUSH_EVERY_S = 0.2
CLOSE_WITHIN_S = 30.0
BATCHES_PER_EPOCH = 256
"""Number of batches after which all lines become the base of a new epoch, because many small files burden HDFS."""

_BASE = "base"
_OPEN_ATTEMPTS = 5


def open_hdfs_journal(uri: str) -> HdfsJournal:
    """The journal in the folder that `uri` names."""
    try:
        hdfs, folder = open_webhdfs(uri, rule=RetryRule())
        return HdfsJournal(hdfs, folder)
    except (HdfsUnreachableError, HdfsRefusedError) as error:
        raise JournalError(f"cannot open the journal: {error.what}", value=uri, remedy=error.remedy) from error


class HdfsJournal:
    """A journal below one folder of an HDFS, open for appending.

    Args:
        hdfs: The HDFS; its retry rule is how long opening waits, and the waits between attempts to write.
        folder: The journal's own folder; created if missing, for its owner only.
        flush_every_s: Lines are written at most this often.
        batches_per_epoch: Number of batches after which all lines become the base of a new epoch.
        close_within_s: How long closing waits for an HDFS that does not answer.
    """

    def __init__(
        self,
        hdfs: WebHdfs,
        folder: str,
        *,
        flush_every_s: float = FLUSH_EVERY_S,
        batches_per_epoch: int = BATCHES_PER_EPOCH,
        close_within_s: float = CLOSE_WITHIN_S,
    ) -> None:
        self.place = folder
        self._hdfs = hdfs
        self._flush_every_s = flush_every_s
        self._batches_per_epoch = batches_per_epoch
        self._close_within_s = close_within_s
        self._batches = 0
        self._open()
        self._changed = threading.Condition()
        self._pending: list[bytes] = []
        self._closes_by_s: float | None = None
        self._closing = threading.Event()
        self._failure: JournalError | None = None
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def content(self) -> bytes:
        """The whole lines that were there."""
        return self._content

    def append(self, line: bytes) -> None:
        """Hand a line to the thread that writes; raises JournalError once that has failed for good."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            self._pending.append(line)
            self._changed.notify()

    def close(self) -> None:
        """Write the remaining lines if HDFS is reachable in time. Lines that cannot be written are lost and logged."""
        with self._changed:
            self._closes_by_s = time.monotonic() + self._close_within_s
            self._closing.set()
            self._changed.notify()
        self._thread.join()
        if self._failure is not None:
            LOG.error("the end of the journal is lost: %s", self._failure)

    def _open(self) -> None:
        """Read what the journal has and begin an epoch, again where a master that still lives began one meanwhile."""
        for last in (*[False] * (_OPEN_ATTEMPTS - 1), True):
            try:
                # A journal names hyper-parameters and errors of programs.
                self._hdfs.make_private_folder(self.place)
                self._epoch, self._content = _read_newest(self._hdfs, self.place)
                self._written = bytearray(self._content)
                self._begin_epoch(self._hdfs)
            except (HdfsExistsError, HdfsMissingError):
                if last:
                    raise
            else:
                return

    def _run(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                self._write(batch)
                self._closing.wait(self._flush_every_s)
        except Exception as error:
            with self._changed:
                self._failure = _failure(error, self.place)

    def _next_batch(self) -> bytes | None:
        """All lines that wait, as soon as there are any; None when the journal is closed and there are none."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closing.is_set())
            batch = b"".join(self._pending)
            self._pending.clear()
        return batch or None

    def _write(self, batch: bytes) -> None:
        """Write a batch, however long HDFS is unavailable while the process lives."""
        path = f"{self.place}/{self._epoch:06d}/{self._batches:08d}"
        once = self._hdfs.with_rule(ONCE)
        for wait_s in RetryRule().waits_s():
            try:
                once.create(path, lambda: batch)
                break
            except HdfsUnreachableError:
                left_s = math.inf if self._closes_by_s is None else self._closes_by_s - time.monotonic()
                if left_s <= 0.0:
                    raise
            time.sleep(min(wait_s, left_s))
        self._batches += 1
        self._written += batch
        if self._batches >= self._batches_per_epoch:
            self._roll(once)

    def _roll(self, hdfs: WebHdfs) -> None:
        """Begin a new epoch if HDFS is available; if not, after a later batch."""
        try:
            self._begin_epoch(hdfs)
        except HdfsUnreachableError:
            LOG.info("the journal on HDFS could not be joined now: it will be tried again")
        except HdfsExistsError as error:
            raise JournalError(
                "another app master has taken the journal over",
                value=self.place,
                remedy="a later attempt of this app runs: this one has to end",
            ) from error

    def _begin_epoch(self, hdfs: WebHdfs) -> None:
        """Write all lines so far as the base of the next epoch, and delete earlier epochs."""
        base = bytes(self._written)
        staged = f"{self.place}/.new-{uuid.uuid4().hex}"
        epoch = self._epoch + 1
        hdfs.create(f"{staged}/{_BASE}", lambda: base)
        hdfs.rename(staged, f"{self.place}/{epoch:06d}")
        self._epoch, self._batches = epoch, 0
        for entry in hdfs.list(self.place):
            if entry.name.startswith(".") or _number(entry.name) < epoch:
                hdfs.delete(f"{self.place}/{entry.name}")


def _read_newest(hdfs: WebHdfs, folder: str) -> tuple[int, bytes]:
    """The newest epoch (0: none yet) and its whole lines."""
    try:
        entries = hdfs.list(folder)
    except HdfsMissingError:
        return 0, b""
    for epoch in sorted((_number(entry.name) for entry in entries), reverse=True):
        if epoch > 0:
            path = f"{folder}/{epoch:06d}"
            # By name: a batch is a number, and `base` sorts after all of them though it comes first.
            files = sorted(hdfs.list(path), key=lambda entry: (entry.name != _BASE, entry.name))
            if files and files[0].name == _BASE:
                data = b"".join(piece for file in files for piece in hdfs.read(f"{path}/{file.name}", file.size_bytes))
                return epoch, whole_lines(data)
    return 0, b""


def _failure(error: Exception, place: str) -> JournalError:
    if isinstance(error, JournalError):
        return error
    reason = str(error) if isinstance(error, ThemisError) else repr(error)
    failure = JournalError("cannot write the journal", value=place, remedy=reason)
    failure.__cause__ = error
    return failure


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else 0
