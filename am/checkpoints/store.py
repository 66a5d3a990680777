"""The checkpoint port: what a job may ask of the place where its checkpoints lie.

Standard library only, as the replay job imports it and has to start within milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from themis.config.names import check_job_id
from themis.errors import InputError, ThemisError, UnreachableError

Meta = Mapping[str, str | int | float]

MANIFEST_NAME = "manifest.json"
MAX_ITERATION = 10**12 - 1
DEFAULT_KEEP_LAST = 3


class CheckpointError(ThemisError):
    """A checkpoint could not be written or read."""


class BrokenCheckpointError(CheckpointError, ValueError):
    """A checkpoint whose content differs from what its manifest promises."""


class UnreachableStoreError(CheckpointError, UnreachableError):
    """The place where checkpoints lie stayed away for longer than we wait."""

    exit_code = UnreachableError.exit_code


class MissingCheckpointError(CheckpointError, LookupError):
    """A checkpoint that is no longer there, for instance because it has been pruned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One file of a checkpoint: its name, its size in bytes and the hex SHA-256 of its content."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One whole checkpoint of a job.

    Attributes:
        job_id: The job that wrote it.
        iteration: Iterations done when it was taken.
        files: Its files, sorted by name.
        meta: What the writer noted beside the files.
        location: Where it lies, in the store's own terms; for messages.
    """

    job_id: str
    iteration: int
    files: tuple[FileRecord, ...]
    meta: Meta
    location: str

    @property
    def size_bytes(self) -> int:
        """Size of all its files together, in bytes."""
        return sum(record.size_bytes for record in self.files)


class CheckpointStore(Protocol):
    """Keeps checkpoints whole or not at all."""

    def save(self, job_id: str, iteration: int, files: Mapping[str, Path], meta: Meta) -> Checkpoint:
        """Keep copies of `files` (name in the checkpoint to path) as the checkpoint at `iteration`.

        Atomic: readers see all of it or none of it. Where a whole checkpoint at that iteration exists, it stays
        and is returned; a broken one is replaced.

        Raises:
            InputError: A job id, iteration or file name that cannot be used.
            CheckpointError: The store cannot be written.
        """
        ...

    def latest(self, job_id: str) -> Checkpoint | None:
        """The newest whole checkpoint: every checksum is verified and broken ones are passed over."""
        ...

    def latest_iteration(self, job_id: str) -> int | None:
        """Iteration of the newest checkpoint by manifest and file sizes alone: cheap, meant for polling."""
        ...

    def fetch_latest(self, job_id: str, into: Path) -> Checkpoint | None:
        """Copy the files of the newest whole checkpoint into the folder `into`; None where there is none.

        As `latest` and `fetch` together, but what is read is read once: a checkpoint that turns out broken on the way
        is passed over for the one before, and leaves nothing in `into`.
        """
        ...

    def fetch(self, checkpoint: Checkpoint, into: Path) -> None:
        """Copy the files of `checkpoint` into the folder `into`, all or none, verifying each checksum on the way.

        Raises:
            MissingCheckpointError: It is no longer there.
            BrokenCheckpointError: A file differs from its record.
        """
        ...

    def prune(self, job_id: str, keep_last: int = DEFAULT_KEEP_LAST) -> None:
        """Drop all but the newest `keep_last` whole checkpoints; broken ones newer than those stay for inspection."""
        ...


class CheckpointArchive(CheckpointStore, Protocol):
    """A store that can also be looked through: what moving checkpoints between stores needs."""

    def jobs(self) -> tuple[str, ...]:
        """Jobs that have something here, sorted."""
        ...

    def checkpoints(self, job_id: str) -> tuple[Checkpoint, ...]:
        """All of a job's checkpoints by manifest and file sizes, oldest first; contents unread."""
        ...

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        """Whether it is still there and every checksum is right."""
        ...


def check_save(job_id: str, iteration: int, files: Mapping[str, Path]) -> None:
    """Raise InputError unless a checkpoint can be saved under these names."""
    check_job_id(job_id)
    if not 0 <= iteration <= MAX_ITERATION:
        raise InputError("unusable iteration", value=iteration, remedy=f"use 0 to {MAX_ITERATION}")
    if not files:
        raise InputError("a checkpoint without files", value=job_id, remedy="give at least one file")
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
