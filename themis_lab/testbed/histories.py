"""Read the histories that the chief tasks of a run wrote (tf_jobs/history.py)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from themis_lab.testbed.audit_values import HistoryLine, JobKey
from themis_lab.testbed.run_folder import RunFolder

_ITERATION_OF = {"start": "from_iteration", "checkpoint": "iteration", "stop": "iteration", "end": "iteration"}


def read_histories(folder: RunFolder, jobs: Iterable[JobKey]) -> dict[JobKey, tuple[HistoryLine, ...]]:
    """The histories of these jobs, where they exist: a user's own command writes none."""
    paths = {key: folder.history(*key) for key in jobs}
    return {key: read_history(path) for key, path in paths.items() if path.is_file()}


def read_history(path: Path) -> tuple[HistoryLine, ...]:
    """One job's history. Unknown and incomplete lines are skipped."""
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            content = json.loads(text)
            iteration = content[_ITERATION_OF[content["event"]]]
        except (ValueError, KeyError, TypeError):
            continue
        lines.append(
            HistoryLine(incarnation=int(content["incarnation"]), event=content["event"], iteration=int(iteration))
        )
    return tuple(lines)
