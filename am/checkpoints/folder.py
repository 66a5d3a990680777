"""Checkpoints in a folder: `<root>/<job_id>/<iteration, 12 digits>/{files, manifest.json}`.

A writer writes a checkpoint into a hidden folder next to its final place, syncs it to disk and renames it. So a writer
killed at any instruction leaves the old state or the new one. Writers of one job hold a file lock, which the system
releases if they die. So the holder of the lock knows that any other hidden folder is a dead writer's, and removes it.

Example: process 41 saves iteration 120 of job j0.

    j0/.writing-000000000120-41/model.keras      written and synced, then manifest.json
    j0/000000000120/                             the same folder after the rename
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from am.checkpoints.manifest import chunks, encode, read_folder, verified_folder
from am.checkpoints.newest import is_fetched, newest_whole
from am.checkpoints.staging import staged_files
from am.checkpoints.store import (
    DEFAULT_KEEP_LAST,
    MANIFEST_NAME,
    BrokenCheckpointError,
    Checkpoint,
    CheckpointError,
    FileRecord,
    Meta,
    MissingCheckpointError,
    check_keep_last,
    check_save,
    write_error,
)
from themis.config.names import check_job_id
from themis.files import sync_folder

LOCK_NAME = ".lock"
WRITING_PREFIX = ".writing-"
TRASH_PREFIX = ".trash-"
LOCK_POLL_S = 0.02


class FolderStore:
    """Stores checkpoints below one root folder, which several machines may share.

    Args:
        root: The folder. The first save creates it.
        lock_timeout_s: Seconds that a writer waits for another writer of the same job.
    """

    def __init__(self, root: Path, *, lock_timeout_s: float = 30.0) -> None:
        self._root = root
        self._lock_timeout_s = lock_timeout_s

    def save(self, job_id: str, iteration: int, files: Mapping[str, Path], meta: Meta) -> Checkpoint:
        """Save copies of `files` as the checkpoint at `iteration`. See the port."""
        check_save(job_id, iteration, files)
        job_folder = self._root / job_id
        final = job_folder / f"{iteration:012d}"
        try:
            with self._writing(job_folder):
                existing = verified_folder(final)
                if existing is not None:
                    return existing
                staged = job_folder / f"{WRITING_PREFIX}{final.name}-{os.getpid()}"
                staged.mkdir()
                records = tuple(_copy_in(files[name], staged / name) for name in sorted(files))
                _write_synced(staged / MANIFEST_NAME, encode(job_id, iteration, records, meta))
                sync_folder(staged)
                _discard(final)
                staged.rename(final)
                sync_folder(job_folder)
        except OSError as error:
            raise write_error(error, "cannot save the checkpoint", str(final)) from error
        return Checkpoint(job_id=job_id, iteration=iteration, files=records, meta=dict(meta), location=str(final))

    def latest(self, job_id: str) -> Checkpoint | None:
        """Return the newest complete checkpoint. Verifies all checksums."""
        check_job_id(job_id)
        return newest_whole(lambda: self._newest_first(job_id), verified_folder, Path.exists)

    def latest_iteration(self, job_id: str) -> int | None:
        """Return the iteration of the newest checkpoint, from manifest and file sizes."""
        check_job_id(job_id)
        for folder in self._newest_first(job_id):
            checkpoint = read_folder(folder)
            if checkpoint is not None:
                return checkpoint.iteration
        return None

    def fetch_latest(self, job_id: str, into: Path) -> Checkpoint | None:
        """Copy the files of the newest complete checkpoint into `into`. Reads them once."""
        check_job_id(job_id)

        def fetched(folder: Path) -> Checkpoint | None:
            found = read_folder(folder)
            return found if found is not None and is_fetched(self, found, into) else None

        return newest_whole(lambda: self._newest_first(job_id), fetched, Path.exists)

    def fetch(self, checkpoint: Checkpoint, into: Path) -> None:
        """Copy the files of `checkpoint` into `into`. A file gets its final name only after all are verified."""
        source = self._root / checkpoint.job_id / f"{checkpoint.iteration:012d}"
        with _port_errors(source), staged_files(checkpoint, into) as files:
            for record, partial in files:
                _copy_out(source / record.name, partial, record)

    def prune(self, job_id: str, keep_last: int = DEFAULT_KEEP_LAST) -> None:
        """Delete all but the newest `keep_last` complete checkpoints."""
        check_job_id(job_id)
        check_keep_last(keep_last)
        job_folder = self._root / job_id
        if not job_folder.is_dir():
            return
        try:
            with self._writing(job_folder):
                kept = 0
                for folder in self._newest_first(job_id):
                    if kept >= keep_last:
                        _discard(folder)
                    elif read_folder(folder) is not None:
                        kept += 1
        except OSError as error:
            raise CheckpointError("cannot prune checkpoints", value=str(job_folder), remedy=str(error)) from error

    def jobs(self) -> tuple[str, ...]:
        """Return the jobs with a folder, sorted."""
        try:
            return tuple(sorted(p.name for p in self._root.iterdir() if p.is_dir() and not p.name.startswith(".")))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise CheckpointError("cannot list checkpoints", value=str(self._root), remedy=str(error)) from error

    def checkpoints(self, job_id: str) -> tuple[Checkpoint, ...]:
        """Return all checkpoints of a job, from manifests and file sizes, oldest first."""
        check_job_id(job_id)
        found = map(read_folder, reversed(self._newest_first(job_id)))
        return tuple(checkpoint for checkpoint in found if checkpoint is not None)

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        """Whether every file of a checkpoint still has its recorded content."""
        return verified_folder(self._root / checkpoint.job_id / f"{checkpoint.iteration:012d}") == checkpoint

    def _newest_first(self, job_id: str) -> list[Path]:
        """Return the folders with a checkpoint's name, newest first."""
        job_folder = self._root / job_id
        try:
            names = [name for name in os.listdir(job_folder) if len(name) == 12 and name.isdecimal()]  # noqa: PTH208
        except OSError:
            return []
        return [job_folder / name for name in sorted(names, reverse=True)]

    @contextmanager
    def _writing(self, job_folder: Path) -> Iterator[None]:
        """Hold the job's writer lock. Removes leftovers of dead writers first, and those of this writer at the end."""
        job_folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(job_folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(descriptor, self._lock_timeout_s, job_folder)
            _sweep(job_folder)
            try:
                yield
            finally:
                _sweep(job_folder)
        finally:
            os.close(descriptor)


def _lock(descriptor: int, timeout_s: float, job_folder: Path) -> None:
    """Take the exclusive lock. Raises CheckpointError after `timeout_s` seconds."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                raise CheckpointError(
                    f"another process has been writing checkpoints of this job for {timeout_s:g} s",
                    value=str(job_folder),
                    remedy="stop the other incarnation of the job",
                ) from None
            time.sleep(LOCK_POLL_S)
        else:
            return


def _sweep(job_folder: Path) -> None:
    """Remove hidden leftovers. The caller holds the lock, so their writers are dead."""
    for entry in job_folder.iterdir():
        if entry.name.startswith((WRITING_PREFIX, TRASH_PREFIX)):
            _remove_flat(entry)


def _discard(folder: Path) -> None:
    """Remove a checkpoint atomically: readers see all of it or none of it."""
    if folder.exists():
        trash = folder.with_name(f"{TRASH_PREFIX}{folder.name}-{os.getpid()}")
        folder.rename(trash)
        _remove_flat(trash)


def _remove_flat(folder: Path) -> None:
    """Remove a folder without subfolders. Importing shutil would double the start-up time of the replay job."""
    for entry in folder.iterdir():
        entry.unlink()
    folder.rmdir()


def _copy_in(source: Path, target: Path) -> FileRecord:
    """Copy a file to `target`, sync it to disk, and return its record."""
    with target.open("wb") as stream:
        record = _copy(source, stream, target.name)
        stream.flush()
        os.fsync(stream.fileno())
    return record


def _copy_out(source: Path, target: Path, record: FileRecord) -> None:
    """Copy a file of a checkpoint to `target`. Does not sync, because the copy is needed only until it is read.

    Raises:
        BrokenCheckpointError: Its content differs from its record.
    """
    with target.open("wb") as stream:
        copied = _copy(source, stream, record.name)
    if copied.sha256 != record.sha256:
        raise BrokenCheckpointError(
            "a checkpoint's file differs from its record", value=str(source), remedy="use an older checkpoint"
        )


def _copy(source: Path, stream: BinaryIO, name: str) -> FileRecord:
    digest = hashlib.sha256()
    size_bytes = 0
    for chunk in chunks(source):
        digest.update(chunk)
        size_bytes += stream.write(chunk)
    return FileRecord(name=name, size_bytes=size_bytes, sha256=digest.hexdigest())


@contextmanager
def _port_errors(source: Path) -> Iterator[None]:
    """Convert file errors while copying from a checkpoint's folder to errors of the port."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingCheckpointError(
            "a checkpoint is no longer there", value=str(source), remedy="ask the store for the latest again"
        ) from error
    except OSError as error:
        raise CheckpointError("cannot fetch the checkpoint", value=str(source), remedy=str(error)) from error


def _write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on disk."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
