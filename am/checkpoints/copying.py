"""Copy checkpoints from one store to another. Each copy is complete or absent, and existing ones are skipped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from am.checkpoints.store import (
    BrokenCheckpointError,
    Checkpoint,
    CheckpointArchive,
    CheckpointError,
    MissingCheckpointError,
)
from themis.errors import InputError, UnknownNameError
from themis.values import Value


class Outcome(StrEnum):
    """The result for one checkpoint."""

    COPIED = "copied"
    THERE = "there already"
    BROKEN = "broken at the source"
    GONE = "gone from the source"


class Copied(Value, frozen=True, kw_only=True):
    """One checkpoint of the source, and the result for it."""

    checkpoint: Checkpoint
    outcome: Outcome


def chosen(source: CheckpointArchive, shown: str, job_id: str | None, last: int | None) -> tuple[Checkpoint, ...]:
    """Return the checkpoints to copy, by job and iteration.

    Args:
        source: The source store.
        shown: The name of the source in messages.
        job_id: Only this job. None: all jobs.
        last: Only the newest `last` checkpoints of each job. None: all.

    Raises:
        InputError: The source has no checkpoints.
        UnknownNameError: The source has no such job.
    """
    known = source.jobs()
    if not known:
        raise InputError("no job has checkpoints here", value=shown, remedy="name the folder above those of the jobs")
    if job_id is not None and job_id not in known:
        raise UnknownNameError("job", job_id, known)
    jobs = known if job_id is None else (job_id,)
    return tuple(checkpoint for job in jobs for checkpoint in source.checkpoints(job)[-(last or 0) :])


def copy(
    source: CheckpointArchive, target: CheckpointArchive, checkpoints: Sequence[Checkpoint], *, verify: bool = False
) -> Iterator[Copied]:
    """Copy checkpoints in order, and verify the checksums of the source.

    Args:
        source: The source store.
        target: The target store.
        checkpoints: The checkpoints to copy; see `chosen`.
        verify: Whether to read existing and written checkpoints back from the target.

    Raises:
        CheckpointError: The target cannot be written, has a different checkpoint at that iteration, or fails to verify.
    """
    there = {job: {c.iteration: c for c in target.checkpoints(job)} for job in {c.job_id for c in checkpoints}}
    for checkpoint in checkpoints:
        existing = there[checkpoint.job_id].get(checkpoint.iteration)
        if existing is not None and (not verify or target.is_whole(existing)):
            _same(checkpoint, existing)
            yield Copied(checkpoint=checkpoint, outcome=Outcome.THERE)
        else:
            yield Copied(checkpoint=checkpoint, outcome=_copy_one(source, target, checkpoint, verify))


def _copy_one(source: CheckpointArchive, target: CheckpointArchive, checkpoint: Checkpoint, verify: bool) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="themis-checkpoint-") as folder:
        try:
            source.fetch(checkpoint, Path(folder))
        except BrokenCheckpointError:
            return Outcome.BROKEN
        except MissingCheckpointError:
            return Outcome.GONE
        files = {record.name: Path(folder) / record.name for record in checkpoint.files}
        written = target.save(checkpoint.job_id, checkpoint.iteration, files, checkpoint.meta)
    _same(checkpoint, written)
    if verify and not target.is_whole(written):
        raise BrokenCheckpointError(
            "a checkpoint differs from what was written", value=written.location, remedy="copy it again"
        )
    return Outcome.COPIED


def _same(checkpoint: Checkpoint, existing: Checkpoint) -> None:
    """Raise CheckpointError unless both have the same files, byte for byte by their checksums."""
    if existing.files != checkpoint.files:
        raise CheckpointError(
            f"another checkpoint than {checkpoint.location} is there",
            value=existing.location,
            remedy="copy to another place, or remove one of the two",
        )
