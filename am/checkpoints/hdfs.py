"""Checkpoints on HDFS, laid out as in a folder: `<root>/<job_id>/<iteration, 12 digits>/{files, manifest.json}`.

A writer writes a checkpoint into a hidden folder next to its final place, the manifest last, and renames it in one
step. HDFS has no locks. So each writer has its own hidden folder, and the rename lets one of several writers of an
iteration win. A hidden folder that has not changed for longer than any live writer waits is a dead writer's, and is
removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from am.checkpoints.digest import ConcurrentDigest
from am.checkpoints.hdfs_upload import PART_BYTES, upload
from am.checkpoints.manifest import decode, encode
from am.checkpoints.newest import is_fetched, newest_whole
from am.checkpoints.staging import staged_files
from am.checkpoints.store import (
    DEFAULT_KEEP_LAST,
    MANIFEST_NAME,
    BrokenCheckpointError,
    Checkpoint,
    CheckpointError,
    FileRecord,
    FullStoreError,
    Meta,
    MissingCheckpointError,
    UnreachableStoreError,
    check_keep_last,
    check_save,
    write_error,
)
from themis.config.names import check_job_id
from themis.errors import ThemisError
from themis.hadoop.webhdfs import HdfsStatus, WebHdfs, open_webhdfs
from themis.hadoop.webhdfs_errors import (
    HdfsExistsError,
    HdfsFullError,
    HdfsMissingError,
    HdfsRefusedError,
    HdfsUnreachableError,
)
from themis.hadoop.webhdfs_retry import ONCE, RetryRule

WRITING_PREFIX = ".writing-"
LEFTOVER_AGE_S = 900.0
"""A hidden folder without changes for this time has no live writer. A writer without connection gives up earlier."""


class HdfsStore:
    """Stores checkpoints below one folder of an HDFS.

    Args:
        hdfs: The HDFS. Its retry rule limits the waits for an unreachable NameNode.
        root: The folder. The first save creates it.
        shown_as: Prefix of locations in messages: `hdfs://authority`.
        part_bytes: Larger files are uploaded in parts of this size.
        leftover_age_s: Age at which a hidden folder counts as a dead writer's, in seconds of the NameNode's clock.
    """

    def __init__(
        self,
        hdfs: WebHdfs,
        root: str,
        *,
        shown_as: str = "",
        part_bytes: int = PART_BYTES,
        leftover_age_s: float = LEFTOVER_AGE_S,
    ) -> None:
        self._hdfs = hdfs
        self._root = root
        self._shown_as = shown_as
        self._part_bytes = part_bytes
        self._leftover_age_s = leftover_age_s
        self._verified: dict[str, tuple[HdfsStatus, ...]] = {}

    def save(self, job_id: str, iteration: int, files: Mapping[str, Path], meta: Meta) -> Checkpoint:
        """Save copies of `files` as the checkpoint at `iteration`. See the port."""
        check_save(job_id, iteration, files)
        final = self._folder(job_id, iteration)
        with _port_errors("cannot save the checkpoint", final):
            beside = self._entries(f"{self._root}/{job_id}")
            final_name = f"{iteration:012d}"
            existing = self._verified_folder(final) if final_name in {entry.name for entry in beside} else None
            if existing is not None:
                return existing
            staged = f"{self._root}/{job_id}/{WRITING_PREFIX}{final_name}-{uuid.uuid4().hex}"
            try:
                self._hdfs.make_folders(staged)
                self._sweep(job_id, staged, beside)
                records = tuple(
                    upload(self._hdfs, files[name], f"{staged}/{name}", part_bytes=self._part_bytes)
                    for name in sorted(files)
                )
                manifest = encode(job_id, iteration, records, meta)
                self._hdfs.create(f"{staged}/{MANIFEST_NAME}", lambda: manifest)
                return self._put_in_place(staged, final, manifest, self._checked(staged, records))
            except BaseException:
                self._drop(staged)
                raise

    def latest(self, job_id: str) -> Checkpoint | None:
        """Return the newest complete checkpoint. Verifies all checksums, once per process."""
        check_job_id(job_id)
        with _port_errors("cannot look for checkpoints", f"{self._root}/{job_id}"):
            return newest_whole(lambda: self._newest_first(job_id), self._verified_folder, self._is_there)

    def latest_iteration(self, job_id: str) -> int | None:
        """Return the iteration of the newest checkpoint, from manifest and file sizes."""
        check_job_id(job_id)
        with _port_errors("cannot look for checkpoints", f"{self._root}/{job_id}"):
            for folder in self._newest_first(job_id):
                found = self._read_folder(folder)
                if found is not None:
                    return found[0].iteration
        return None

    def fetch_latest(self, job_id: str, into: Path) -> Checkpoint | None:
        """Copy the files of the newest complete checkpoint into `into`. Reads them once, which also verifies it."""
        check_job_id(job_id)

        def fetched(folder: str) -> Checkpoint | None:
            found = self._read_folder(folder)
            if found is None or not is_fetched(self, found[0], into):
                return None
            self._verified[folder] = found[1]
            return found[0]

        with _port_errors("cannot look for checkpoints", f"{self._root}/{job_id}"):
            return newest_whole(lambda: self._newest_first(job_id), fetched, self._is_there)

    def fetch(self, checkpoint: Checkpoint, into: Path) -> None:
        """Copy the files of `checkpoint` into `into`. A file gets its final name only after all are verified."""
        folder = self._folder(checkpoint.job_id, checkpoint.iteration)
        with _port_errors("cannot fetch the checkpoint", folder), staged_files(checkpoint, into) as files:
            for record, partial in files:
                self._fetch_file(f"{folder}/{record.name}", partial, record)

    def prune(self, job_id: str, keep_last: int = DEFAULT_KEEP_LAST) -> None:
        """Delete all but the newest `keep_last` complete checkpoints."""
        check_job_id(job_id)
        check_keep_last(keep_last)
        with _port_errors("cannot prune checkpoints", f"{self._root}/{job_id}"):
            kept = 0
            for folder in self._newest_first(job_id):
                if kept >= keep_last:
                    self._hdfs.delete(folder)
                    self._verified.pop(folder, None)
                elif self._read_folder(folder) is not None:
                    kept += 1

    def jobs(self) -> tuple[str, ...]:
        """Return the jobs with a folder, sorted."""
        with _port_errors("cannot list checkpoints", self._root):
            found = (entry.name for entry in self._entries(self._root) if entry.folder)
            return tuple(sorted(name for name in found if not name.startswith(".")))

    def checkpoints(self, job_id: str) -> tuple[Checkpoint, ...]:
        """Return all checkpoints of a job, from manifests and file sizes, oldest first."""
        check_job_id(job_id)
        with _port_errors("cannot list checkpoints", f"{self._root}/{job_id}"):
            found = map(self._read_folder, reversed(self._newest_first(job_id)))
            return tuple(each[0] for each in found if each is not None)

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        """Whether every file of a checkpoint still has its recorded content. Reads all files."""
        folder = self._folder(checkpoint.job_id, checkpoint.iteration)
        with _port_errors("cannot read the checkpoint", folder):
            self._verified.pop(folder, None)
            return self._verified_folder(folder) == checkpoint

    def _folder(self, job_id: str, iteration: int) -> str:
        return f"{self._root}/{job_id}/{iteration:012d}"

    def _entries(self, path: str) -> tuple[HdfsStatus, ...]:
        try:
            return self._hdfs.list(path)
        except HdfsMissingError:
            return ()

    def _newest_first(self, job_id: str) -> list[str]:
        """Return the folders with a checkpoint's name, newest first."""
        names = [entry.name for entry in self._entries(f"{self._root}/{job_id}") if entry.folder]
        numbers = [name for name in names if len(name) == 12 and name.isdecimal()]
        return [f"{self._root}/{job_id}/{name}" for name in sorted(numbers, reverse=True)]

    def _is_there(self, folder: str) -> bool:
        return self._hdfs.status(folder) is not None

    def _read_folder(self, folder: str) -> tuple[Checkpoint, tuple[HdfsStatus, ...]] | None:
        """Return the checkpoint, from manifest and file sizes, and the folder's listing. None if it is incomplete."""
        entries = self._entries(folder)
        by_name = {entry.name: entry for entry in entries if not entry.folder}
        if MANIFEST_NAME not in by_name:
            return None
        path = f"{folder}/{MANIFEST_NAME}"
        try:
            content = b"".join(self._hdfs.read(path, by_name[MANIFEST_NAME].size_bytes))
        except HdfsMissingError:
            return None
        checkpoint = decode(content, self._shown_as + folder)
        if checkpoint is None or f"{checkpoint.iteration:012d}" != folder.rpartition("/")[2]:
            return None
        whole = all(f.name in by_name and by_name[f.name].size_bytes == f.size_bytes for f in checkpoint.files)
        return (checkpoint, entries) if whole else None

    def _verified_folder(self, folder: str) -> Checkpoint | None:
        """Return the checkpoint in `folder`. Verifies all checksums, unless this process has done so already."""
        found = self._read_folder(folder)
        if found is None:
            return None
        checkpoint, entries = found
        # A later write would have changed the file ids or times in the listing.
        if self._verified.get(folder) == entries:
            return checkpoint
        try:
            whole = all(self._sha256(f"{folder}/{f.name}", f.size_bytes) == f.sha256 for f in checkpoint.files)
        except HdfsMissingError:
            return None
        if whole:
            self._verified[folder] = entries
        return checkpoint if whole else None

    def _sha256(self, path: str, size_bytes: int) -> str:
        with ConcurrentDigest() as digest:
            for piece in self._hdfs.read(path, size_bytes):
                digest.update(piece)
            return digest.hexdigest()

    def _fetch_file(self, source: str, target: Path, record: FileRecord) -> None:
        """Copy one file. Raises BrokenCheckpointError if its content differs from its record."""
        try:
            with target.open("wb") as stream, ConcurrentDigest() as digest:
                for piece in self._hdfs.read(source, record.size_bytes):
                    digest.update(piece)
                    stream.write(piece)
                sha256 = digest.hexdigest()
        except HdfsMissingError as error:
            raise MissingCheckpointError(
                "a checkpoint is no longer there", value=source, remedy="ask the store for the latest again"
            ) from error
        if sha256 != record.sha256:
            raise BrokenCheckpointError(
                "a checkpoint's file differs from its record", value=source, remedy="use an older checkpoint"
            )

    def _checked(self, staged: str, records: tuple[FileRecord, ...]) -> tuple[HdfsStatus, ...]:
        """Return the staged folder's listing. The caller has already written the manifest.

        Raises:
            CheckpointError: A file has a wrong size, or the folder has other files.
        """
        entries = self._entries(staged)
        sizes = {entry.name: entry.size_bytes for entry in entries if entry.name != MANIFEST_NAME}
        if sizes != {record.name: record.size_bytes for record in records}:
            raise CheckpointError(
                "the uploaded files differ from those on HDFS", value=staged, remedy="is another process writing there?"
            )
        return entries

    def _put_in_place(self, staged: str, final: str, manifest: bytes, written: tuple[HdfsStatus, ...]) -> Checkpoint:
        """Rename the staged checkpoint to its final name, unless another writer was first with a complete one."""
        while True:
            try:
                self._hdfs.rename(staged, final)
            except HdfsExistsError:
                existing = self._verified_folder(final)
                if existing is not None:
                    self._drop(staged)
                    return existing
                self._hdfs.delete(final)
            else:
                break
        # If the reply to the rename was lost, the checkpoint may be another writer's. Compare the file ids.
        ours = decode(manifest, self._shown_as + final) if self._entries(final) == written else None
        found = (ours, written) if ours is not None else self._read_folder(final)
        if found is None:
            raise MissingCheckpointError("the checkpoint vanished as it was saved", value=final, remedy="save it again")
        checkpoint, entries = found
        # The content was hashed during the upload, and HDFS verifies its own checksums on every read.
        self._verified[final] = entries
        return checkpoint

    def _sweep(self, job_id: str, staged: str, beside: tuple[HdfsStatus, ...]) -> None:
        """Remove leftovers of dead writers. The new folder's time gives the present time of the NameNode's clock."""
        hidden = [entry for entry in beside if entry.name.startswith(WRITING_PREFIX)]
        own = self._hdfs.status(staged) if hidden else None
        for entry in hidden:
            if own is not None and entry.modified_ms < own.modified_ms - self._leftover_age_s * 1000.0:
                self._hdfs.delete(f"{self._root}/{job_id}/{entry.name}")

    def _drop(self, staged: str) -> None:
        """Delete this writer's hidden folder. If HDFS is unreachable, a later writer will remove it."""
        with suppress(HdfsUnreachableError, HdfsRefusedError):
            self._hdfs.with_rule(ONCE).delete(staged)


def open_hdfs_store(uri: str, *, wait_s: float | None = None) -> HdfsStore:
    """Return the store in the folder of an `hdfs://` or `webhdfs://` URI. Does not connect yet.

    Args:
        uri: The URI of the folder.
        wait_s: Seconds to wait for an unreachable HDFS. By default the deadline of RetryRule.
    """
    hdfs, root = open_webhdfs(uri, rule=RetryRule() if wait_s is None else RetryRule(deadline_s=wait_s))
    return HdfsStore(hdfs, root, shown_as="/".join(uri.split("/", 3)[:3]))


@contextmanager
def _port_errors(what: str, path: str) -> Iterator[None]:
    """Convert errors of HDFS and of local files to errors of the port."""
    try:
        yield
    except HdfsUnreachableError as error:
        raise UnreachableStoreError(f"{what}: {error.what}", value=error.value, remedy=error.remedy) from error
    except HdfsRefusedError as error:
        kind = FullStoreError if isinstance(error, HdfsFullError) else CheckpointError
        raise kind(f"{what}: {error.what}", value=error.value, remedy=error.remedy) from error
    except ThemisError:
        raise
    except OSError as error:
        raise write_error(error, what, path) from error
