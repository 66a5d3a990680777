"""The job's history: one JSON line per event. An audit proves from it that no iteration was lost or repeated."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from am.checkpoints.store import FULL_ERRNOS

HISTORY_NAME = "history.jsonl"


class History:
    """Appends to `<job_dir>/history.jsonl`. Only the chief writes.

    Args:
        job_dir: The job's working folder, created if missing.
        incarnation: Written into every line.
    """

    def __init__(self, job_dir: Path, incarnation: int) -> None:
        job_dir.mkdir(parents=True, exist_ok=True)
        self._path = job_dir / HISTORY_NAME
        self._incarnation = incarnation

    def append(self, event: str, **facts: int | float | str | None) -> None:
        """Add one event with a single write, so that a kill leaves a whole line or none.

        If the disk is full, the event is dropped and training continues.
        """
        known = {name: fact for name, fact in facts.items() if fact is not None}
        line = json.dumps({"incarnation": self._incarnation, "event": event, **known, "time_s": round(time.time(), 3)})
        content = line.encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        whole_bytes = os.fstat(descriptor).st_size
        try:
            if os.write(descriptor, content) < len(content):
                os.ftruncate(descriptor, whole_bytes)
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
        finally:
            os.close(descriptor)
