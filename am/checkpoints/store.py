"""The checkpoint port: how jobs save and fetch checkpoints.

This module imports no package but msgspec, because the replay job imports it and must start within milliseconds.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from themis.config.names import check_job_id
from themis.errors import InputError, ThemisError, UnreachableError
from themis.values import Value

Meta = Mapping[str, str | int | float]

MANIFEST_NAME = "manifest.json"
MAX_ITERATION = 10**12 - 1
DEFAULT_KEEP_LAST = 3


class CheckpointError(ThemisError):
    """A checkpoint could not be written or read."""


class BrokenCheckpointError(CheckpointError, ValueError):
    """The content of a checkpoint differs from its manifest."""


class FullStoreError(CheckpointError):
    """The store has no room: a disk is full, or a quota is used up. It may have room later."""


FULL_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Errors of the system that say so."""


def write_error(error: OSError, what: str, value: str) -> CheckpointError:
    """Return the error of the port for a file that could not be written."""
    kind = FullStoreError if error.errno in FULL_ERRNOS else CheckpointError
    return kind(what, value=value, remedy=str(error))


class UnreachableStoreError(CheckpointError, UnreachableError):
    """The store stayed unreachable for longer than the limit."""

    exit_code = UnreachableError.exit_code


class MissingCheckpointError(CheckpointError, LookupError):
    """A checkpoint no longer exists, for example because it was pruned."""


class FileRecord(Value, frozen=True, kw_only=True):
    """One file of a checkpoint: its name, its size in bytes and the hex SHA-256 of its content."""

    name: str
    size_bytes: int
    sha256: str


class Checkpoint(Value, frozen=True, kw_only=True):
    """One complete checkpoint of a job.

    Attributes:
        job_id: The job that wrote it.
        iteration: Iterations that the job had done when it was saved.
        files: Its files, sorted by name.
        meta: The writer's notes.
        location: Its place in the store, for messages.
    """

    job_id: str
    iteration: int
    files: tuple[FileRecord, ...]
    meta: Meta
    location: str

    @property
    def size_bytes(self) -> int:
        """Total size of its files, in bytes."""
        return sum(record.size_bytes for record in self.files)


class CheckpointStore(Protocol):
    """Stores checkpoints atomically: each is complete or absent."""

    def save(self, job_id: str, iteration: int, files: Mapping[str, Path], meta: Meta) -> Checkpoint:
        """Save copies of `files` (name in the checkpoint to path) as the checkpoint at `iteration`.

        Readers see the complete checkpoint or none of it. If a complete checkpoint exists at that iteration, it stays
        and is returned. A broken one is replaced.

        Raises:
            InputError: A job id, iteration or file name is not allowed.
            CheckpointError: The store cannot be written.
        """
        ...

    def latest(self, job_id: str) -> Checkpoint | None:
        """Return the newest complete checkpoint. Verifies all checksums, and skips broken checkpoints."""
        ...

    def latest_iteration(self, job_id: str) -> int | None:
        """Return the iteration of the newest checkpoint, from manifest and file sizes. Cheap enough for polling."""
        ...

    def fetch_latest(self, job_id: str, into: Path) -> Checkpoint | None:
        """Copy the files of the newest complete checkpoint into the folder `into`. Returns None if there is none.

        This equals `latest` and `fetch`, but reads the content once. A checkpoint that turns out to be broken leaves no
        file in `into`, and the previous one is tried.
        """
        ...

    def fetch(self, checkpoint: Checkpoint, into: Path) -> None:
        """Copy all files of `checkpoint` into the folder `into`, or none. Verifies all checksums.

        Raises:
            MissingCheckpointError: It no longer exists.
            BrokenCheckpointError: A file differs from its record.
        """
        ...

    def prune(self, job_id: str, keep_last: int = DEFAULT_KEEP_LAST) -> None:
        """Delete all but the newest `keep_last` complete checkpoints. Newer broken ones stay for inspection."""
        ...


class CheckpointArchive(CheckpointStore, Protocol):
    """A store that can list its content, which copying between stores needs."""

    def jobs(self) -> tuple[str, ...]:
        """Return the jobs with anything in the store, sorted."""
        ...

    def checkpoints(self, job_id: str) -> tuple[Checkpoint, ...]:
        """Return all checkpoints of a job, from manifests and file sizes, oldest first. Reads no contents."""
        ...

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint still exists with correct checksums."""
        ...


def check_save(job_id: str, iteration: int, files: Mapping[str, Path]) -> None:
    """Raise InputError unless a checkpoint can be saved under these names."""
    check_job_id(job_id)
    if not 0 <= iteration <= MAX_ITERATION:
        raise InputError("unusable iteration", value=iteration, remedy=f"use 0 to {MAX_ITERATION}")
    if not files:
        raise InputError("a checkpoint has no files", value=job_id, remedy="give at least one file")
    for name in files:
        if not name or name.startswith(".") or "/" in name or "\0" in name or name == MANIFEST_NAME:
            raise InputError(
                "unusable file name in a checkpoint",
                value=name,
                remedy=f"use a plain name, no '/', no leading '.', not {MANIFEST_NAME!r}",
            )


def check_keep_last(keep_last: int) -> None:
    """Raise InputError unless at least one checkpoint is to be kept."""
    if keep_last < 1:
        raise InputError("unusable number of checkpoints to keep", value=keep_last, remedy="keep 1 or more")
