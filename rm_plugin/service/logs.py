"""Logs of an app as they lie in its folder, read onwards from where the last reading ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from themis.errors import UnknownNameError
from themis.wire import themis_pb2 as pb

_CHUNK_BYTES = 64 * 1024


class LogFollower:
    """Reads `jobs/JOB/task-*.log` of an app's folder, or of one job; without a job also the app master's own logs."""

    def __init__(self, folder: Path, job_id: str = "") -> None:
        jobs = folder / "jobs"
        if job_id and not (jobs / job_id).is_dir():
            known = [path.name for path in jobs.iterdir()] if jobs.is_dir() else []
            raise UnknownNameError("job with a log", job_id, known)
        self._folder = folder
        self._job_id = job_id
        self._offsets: dict[Path, int] = {}

    def read(self) -> Iterator[pb.LogChunk]:
        """What was written since the last reading, file by file, whole lines as far as possible."""
        for path in self._files():
            yield from self._read_file(path)

    def _files(self) -> list[Path]:
        if self._job_id:
            return sorted((self._folder / "jobs" / self._job_id).glob("*.log"))
        return [*sorted(self._folder.glob("am-*.log")), *sorted(self._folder.glob("jobs/*/*.log"))]

    def _read_file(self, path: Path) -> Iterator[pb.LogChunk]:
        source = "am" if path.parent == self._folder else f"{path.parent.name}/{path.stem}"
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            while data := file.read(_CHUNK_BYTES):
                # A line that is still being written waits for the next reading, unless it fills a chunk by itself.
                whole = data[: data.rfind(b"\n") + 1] or (data if len(data) == _CHUNK_BYTES else b"")
                if not whole:
                    break
                self._offsets[path] = self._offsets.get(path, 0) + len(whole)
                file.seek(self._offsets[path])
                yield pb.LogChunk(source=source, text=whole.decode("utf-8", errors="replace"))
