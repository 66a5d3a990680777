"""What a job's own files show: that it lost and repeated no iteration beyond the rule of checkpoints.

A replayed job's chief task writes `history.jsonl` (starts and saved iterations) and its log. Neither passes through an
app master or the ResourceManager.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

CHECKPOINT_EVERY = 10
_LINE_S = 0.25
"""A replayed job looks up this often at most, so it may be that far past its checkpoint."""

_EVENT = re.compile(
    r"(?P<start>replay model)|restored iteration = (?P<restored>\d+)|(?P<unsaved>unsaved iteration)"
    r"|Saving checkpoints for (?P<saved>\d+)|step = (?P<step>\d+)"
)


def broken_rules(
    folder: Path, iterations: int, iterations_per_s: float, *, saved: int = 0, disk_was_full: bool = False
) -> list[str]:
    """What is wrong with a finished job; empty if nothing is.

    On a full disk a job trains on without checkpoints and without a log, so it may repeat more after a kill.

    Args:
        folder: The job's folder.
        iterations: How many the job has.
        iterations_per_s: Its speed.
        saved: Those of its newest checkpoint, where the end of its history may be lost with a machine.
        disk_was_full: Whether the disk was full while a task of the job lived.
    """
    name = f"{folder.parent.parent.name}/{folder.name}"
    try:
        lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    except OSError as error:
        # A machine that is cut off takes all of it with it, if the job ran nowhere else.
        return [] if saved == iterations else [f"{name} has no history: {error}"]
    repeated = () if disk_was_full else _of_log(folder, iterations_per_s)
    return [f"{name}: {text}" for text in (*_of_history(lines, iterations, saved), *repeated)]


def _of_history(lines: list[dict[str, object]], iterations: int, newest: int) -> Iterator[str]:
    safe = incarnation = 0
    for line in lines:
        number = int(str(line["incarnation"]))
        if line["event"] == "start":
            begun = int(str(line["from_iteration"]))
            if number <= incarnation:
                yield f"incarnation {number} began after {incarnation}"
            if begun < safe:
                yield f"incarnation {number} began at iteration {begun}, though {safe} was saved"
            incarnation, safe = number, begun
        elif line["event"] in ("checkpoint", "stop", "end"):
            saved = int(str(line["iteration"]))
            if number < incarnation:
                yield f"incarnation {number} saved after {incarnation} had begun"
            # The line of its start is missing if the disk was full.
            incarnation = number
            if saved < safe:
                yield f"iteration {saved} was saved after {safe}"
            safe = max(safe, saved)
    if max(safe, newest) != iterations:
        yield f"it finished with iteration {max(safe, newest)} of {iterations} saved"


def _of_log(folder: Path, iterations_per_s: float) -> Iterator[str]:
    """An incarnation repeats at most what the one before did after its last checkpoint."""
    most = CHECKPOINT_EVERY + iterations_per_s * _LINE_S + 1
    seen = seen_before = restored_at = 0
    starts = full = False
    for match in _EVENT.finditer((folder / "task-0.log").read_text(errors="replace")):
        if match["start"]:
            seen_before, restored_at, starts = seen, 0, True
        elif match["restored"]:
            restored_at = int(match["restored"])
        elif match["unsaved"]:
            full = True
        elif match["saved"]:
            full = False
        else:
            seen = int(match["step"])
            if starts and not full and seen_before - restored_at > most:
                yield f"{seen_before - restored_at} iterations were done twice, from {restored_at} to {seen_before}"
            starts = False
