"""A checkpoint store in the memory of one process, for tests and the simulator."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path

from am.checkpoints.store import (
    DEFAULT_KEEP_LAST,
    BrokenCheckpointError,
    Checkpoint,
    FileRecord,
    Meta,
    MissingCheckpointError,
    check_keep_last,
    check_save,
)
from themis.config.names import check_job_id


class MemoryStore:
    """Keeps checkpoints in dictionaries. It behaves like the folder store, but ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, dict[int, tuple[Checkpoint, dict[str, bytes]]]] = {}

    def save(self, job_id: str, iteration: int, files: Mapping[str, Path], meta: Meta) -> Checkpoint:
        """Save copies of `files` as the checkpoint at `iteration`. See the port."""
        check_save(job_id, iteration, files)
        contents = {name: files[name].read_bytes() for name in sorted(files)}
        records = tuple(
            FileRecord(name=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            for name, content in contents.items()
        )
        checkpoint = Checkpoint(
            job_id=job_id,
            iteration=iteration,
            files=records,
            meta=dict(meta),
            location=f"memory://{job_id}/{iteration}",
        )
        with self._lock:
            of_job = self._kept.setdefault(job_id, {})
            existing = of_job.get(iteration)
            if existing is not None and _whole(*existing):
                return existing[0]
            of_job[iteration] = (checkpoint, contents)
        return checkpoint

    def latest(self, job_id: str) -> Checkpoint | None:
        """Return the newest complete checkpoint. Verifies all checksums."""
        check_job_id(job_id)
        with self._lock:
            newest_first = sorted(self._kept.get(job_id, {}).items(), reverse=True)
        return next((checkpoint for _, (checkpoint, contents) in newest_first if _whole(checkpoint, contents)), None)

    def latest_iteration(self, job_id: str) -> int | None:
        """Return the iteration of the newest checkpoint without reading contents."""
        check_job_id(job_id)
        with self._lock:
            return max(self._kept.get(job_id, {}), default=None)

    def fetch_latest(self, job_id: str, into: Path) -> Checkpoint | None:
        """Write the files of the newest complete checkpoint into `into`."""
        found = self.latest(job_id)
        if found is not None:
            self.fetch(found, into)
        return found

    def fetch(self, checkpoint: Checkpoint, into: Path) -> None:
        """Write the files of `checkpoint` into `into`. Writes none if a checksum differs."""
        with self._lock:
            found = self._kept.get(checkpoint.job_id, {}).get(checkpoint.iteration)
        if found is None:
            raise MissingCheckpointError(
                "a checkpoint is no longer there",
                value=checkpoint.location,
                remedy="ask the store for the latest again",
            )
        if not _whole(checkpoint, found[1]):
            raise BrokenCheckpointError(
                "a checkpoint's file differs from its record",
                value=checkpoint.location,
                remedy="use an older checkpoint",
            )
        into.mkdir(parents=True, exist_ok=True)
        for name, content in found[1].items():
            (into / name).write_bytes(content)

    def prune(self, job_id: str, keep_last: int = DEFAULT_KEEP_LAST) -> None:
        """Delete all but the newest `keep_last` complete checkpoints."""
        check_job_id(job_id)
        check_keep_last(keep_last)
        with self._lock:
            of_job = self._kept.get(job_id, {})
            whole = [i for i in sorted(of_job, reverse=True) if _whole(*of_job[i])]
            oldest_kept = whole[min(keep_last, len(whole)) - 1] if whole else 0
            for iteration in [i for i in of_job if i < oldest_kept]:
                del of_job[iteration]

    def jobs(self) -> tuple[str, ...]:
        """Return the jobs with checkpoints, sorted."""
        with self._lock:
            return tuple(sorted(job_id for job_id, of_job in self._kept.items() if of_job))

    def checkpoints(self, job_id: str) -> tuple[Checkpoint, ...]:
        """Return all checkpoints of a job, oldest first."""
        check_job_id(job_id)
        with self._lock:
            return tuple(kept[0] for _, kept in sorted(self._kept.get(job_id, {}).items()))

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        """Whether every file of a checkpoint still has its recorded content."""
        with self._lock:
            found = self._kept.get(checkpoint.job_id, {}).get(checkpoint.iteration)
        return found is not None and found[0] == checkpoint and _whole(*found)

    def corrupt(self, job_id: str, iteration: int, name: str, content: bytes) -> None:
        """Overwrite one stored file without changing its record, to test readers."""
        with self._lock:
            self._kept[job_id][iteration][1][name] = content


def _whole(checkpoint: Checkpoint, contents: Mapping[str, bytes]) -> bool:
    """Whether every file exists with the recorded checksum."""
    return all(
        record.name in contents and hashlib.sha256(contents[record.name]).hexdigest() == record.sha256
        for record in checkpoint.files
    )
