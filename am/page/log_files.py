"""Read the logs of an app's jobs. This opens only files of known jobs that have a log's name."""

from __future__ import annotations

import contextlib
import re
import stat

from am.page.state import AmPageState
from themis.capped_files import read_part
from themis.errors import InputError, UnknownNameError
from themis.files import open_below
from themis.values import Value

CHUNK_BYTES = 64 * 1024
MAX_CHUNK_BYTES = 1024 * 1024

_NAME = re.compile(r"task-[0-9]{1,6}\.log|history\.jsonl")


class LogFile(Value, frozen=True, kw_only=True):
    """A readable log and its size."""

    job_id: str
    name: str
    size_bytes: int


class LogPart(Value, frozen=True, kw_only=True):
    """Bytes of a log, and the offset at which the next read continues."""

    data: bytes
    next_offset: int


def log_files(state: AmPageState) -> list[LogFile]:
    """Return all logs, by job and name."""
    found = []
    folder = state.folder / "jobs"
    for job in state.jobs:
        # A job's folder might be a link, or its id contain dots and slashes.
        if not (folder / job.job_id).resolve().is_relative_to(folder.resolve()):
            continue
        logs = [path for path in (folder / job.job_id).glob("*") if _NAME.fullmatch(path.name)]
        # By length first: task-10 comes after task-9.
        for path in sorted(logs, key=lambda path: (len(path.name), path.name)):
            # A file may have been removed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISREG((facts := path.lstat()).st_mode):
                    found.append(LogFile(job_id=job.job_id, name=path.name, size_bytes=facts.st_size))
    return found


def read_log(state: AmPageState, job_id: str, name: str, offset: int, limit: int) -> LogPart:
    """Read at most `limit` bytes of a log from `offset` on. A negative offset counts from the end.

    Skips bytes that are no longer kept, because the log has a cap.

    Raises:
        UnknownNameError: The job does not exist, or has no such log.
    """
    jobs = [job.job_id for job in state.jobs]
    if job_id not in jobs:
        raise UnknownNameError("job", job_id, jobs)
    if not _NAME.fullmatch(name):
        raise UnknownNameError("log", name, _names(state, job_id))
    try:
        descriptor = open_below(state.folder, "jobs", job_id, name)
    except (InputError, OSError) as error:
        raise UnknownNameError("log", name, _names(state, job_id)) from error
    data, next_offset = read_part(descriptor, offset, min(limit, MAX_CHUNK_BYTES))
    return LogPart(data=data, next_offset=next_offset)


def _names(state: AmPageState, job_id: str) -> list[str]:
    return [file.name for file in log_files(state) if file.job_id == job_id]
