"""Read the logs in an app's folder, each time from where the last reading ended."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from themis.capped_files import first_kept, read_part
from themis.errors import InputError, UnknownNameError
from themis.files import names_below, open_below
from themis.wire import themis_pb2 as pb

_CHUNK_BYTES = 64 * 1024
_READING_BYTES = 4 * 1024 * 1024
_MASTER_LOG = re.compile(r"am-[0-9]{1,9}\.log")
_TASK_LOG = re.compile(r"task-[0-9]{1,6}\.log")

_TAIL_BYTES = 16 * 1024 * 1024
"""How far back the last lines of a log are searched. A task can make its log seem exabytes long, all of them zeros on
no disk, so that a search to the beginning would take years."""

MAX_PART_BYTES = 1024 * 1024
"""The most bytes of a log that a page reads at once."""


def log_paths(folder: Path, jobs: Collection[str]) -> list[str]:
    """Return the logs of an app, `JOB/task-0.log` by job and task, then those of its app masters, `am-1.log`."""
    found = []
    for job in names_below(folder, "jobs"):
        if job in jobs:
            # By length first: task-10 comes after task-9.
            names = [name for name in names_below(folder, "jobs", job) if _TASK_LOG.fullmatch(name)]
            found += [f"{job}/{name}" for name in sorted(names, key=lambda name: (len(name), name))]
    masters = [name for name in names_below(folder) if _MASTER_LOG.fullmatch(name)]
    return found + sorted(masters, key=lambda name: (len(name), name))


def read_log(folder: Path, jobs: Collection[str], path: str, offset: int, limit: int) -> tuple[bytes, int]:
    """Read a part of a log, as `read_part` does.

    Args:
        folder: The app's folder.
        jobs: The ids of the app's jobs.
        path: As `log_paths` returns it.
        offset: Where to begin; a negative one counts from the end.
        limit: The most bytes, at most `MAX_PART_BYTES`.

    Raises:
        UnknownNameError: The app has no such log.
    """
    job, _, name = path.rpartition("/")
    known = (job in jobs and _TASK_LOG.fullmatch(name)) if job else _MASTER_LOG.fullmatch(name)
    try:
        if not known:
            raise FileNotFoundError(path)
        descriptor = open_below(folder, *(("jobs", job, name) if job else (name,)))
    except (InputError, OSError):
        raise UnknownNameError("log", path[:200], log_paths(folder, jobs)) from None
    return read_part(descriptor, offset, min(limit, MAX_PART_BYTES))


class LogFollower:
    """Reads `jobs/JOB/*.log` of an app's folder, or of one job; without a job also the app master's own logs.

    A task can put anything into its folder. Pipes, devices, folders and symbolic links are skipped.

    Args:
        folder: The app's folder.
        jobs: The ids of the app's jobs.
        job_id: The job whose logs to read; empty for all jobs.
        tail_lines: Begin each log with at most this number of its last lines; 0: with all lines.

    Raises:
        UnknownNameError: The app has no such job, or the job has no logs.
    """

    def __init__(self, folder: Path, jobs: Collection[str], job_id: str = "", tail_lines: int = 0) -> None:
        present = [name for name in names_below(folder, "jobs") if name in jobs]
        if job_id and job_id not in present:
            raise UnknownNameError("job with a log", job_id, present)
        self._folder = folder
        self._jobs = frozenset(jobs)
        self._job_id = job_id
        self._offsets: dict[tuple[str, ...], int] = {}
        if tail_lines > 0:
            for names in self._files():
                self._offsets[names] = _tail_offset(folder, names, tail_lines)

    def read(self, *, to_the_end: bool = False) -> list[pb.LogChunk]:
        """Read what was written since the last call, file by file.

        Returns at most about 4 MiB, the next call goes on; empty if nothing is left. The call waits for the disk.

        Args:
            to_the_end: Return unfinished lines too: nothing more will be written, or read.
        """
        chunks: list[pb.LogChunk] = []
        left = _READING_BYTES
        for names in self._files():
            for chunk in self._read_file(names, to_the_end):
                chunks.append(chunk)
                left -= len(chunk.text)
                if left <= 0:
                    return chunks
        return chunks

    def _files(self) -> Iterator[tuple[str, ...]]:
        if not self._job_id:
            yield from ((name,) for name in names_below(self._folder) if _MASTER_LOG.fullmatch(name))
        jobs = [self._job_id] if self._job_id else names_below(self._folder, "jobs")
        for job in jobs:
            if job in self._jobs:
                for name in names_below(self._folder, "jobs", job):
                    if name.endswith(".log"):
                        yield ("jobs", job, name)

    def _read_file(self, names: tuple[str, ...], to_the_end: bool) -> Iterator[pb.LogChunk]:
        source = "am" if len(names) == 1 else f"{names[1]}/{names[2].removesuffix('.log')}"
        try:
            file = os.fdopen(open_below(self._folder, *names), "rb")
        except OSError:
            return
        with file:
            begin = self._offsets.get(names, 0)
            kept = first_kept(file.fileno(), begin)
            file.seek(kept)
            if kept > begin:
                # What is kept begins within a line.
                kept += len(file.readline(_CHUNK_BYTES))
                self._offsets[names] = kept
                text = f"themis: {kept - begin} bytes of older output are not kept (task_log_mb)\n"
                yield pb.LogChunk(source=source, text=text)
            while data := file.read(_CHUNK_BYTES):
                # A line that is still being written waits for the next call, unless it fills a chunk by itself.
                last = to_the_end or len(data) == _CHUNK_BYTES
                whole = data[: data.rfind(b"\n") + 1] or (data if last else b"")
                if not whole:
                    break
                self._offsets[names] = self._offsets.get(names, 0) + len(whole)
                file.seek(self._offsets[names])
                yield pb.LogChunk(source=source, text=whole.decode("utf-8", errors="replace"))


def _tail_offset(folder: Path, names: tuple[str, ...], lines: int) -> int:
    """Where the last `lines` lines of a log begin, at most `_TAIL_BYTES` before its end; an unfinished line counts.

    Returns 0 for a log that cannot be read.
    """
    try:
        file = os.fdopen(open_below(folder, *names), "rb")
    except OSError:
        return 0
    with file:
        begin = file.seek(0, os.SEEK_END)
        least = max(0, begin - _TAIL_BYTES)
        # A line break at the very end of the file separates nothing.
        breaks = lines
        if begin and _read_at(file, begin - 1, 1) != b"\n":
            breaks -= 1
        while begin > least:
            begin, end = max(least, begin - _CHUNK_BYTES), begin
            data = _read_at(file, begin, end - begin)
            while data:
                at = data.rfind(b"\n")
                if at < 0:
                    break
                if breaks == 0:
                    return begin + at + 1
                breaks -= 1
                data = data[:at]
        return least


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)
