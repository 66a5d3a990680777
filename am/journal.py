"""The app master's journal: what its next attempt needs to go on, in a file of JSON lines that is only appended to.

Every line is one `write` of its own, so that the death of the process at any instruction leaves at most one torn line,
the last; it is cut off when the journal is opened again. A power cut may lose the newest lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from am.tuners.port import Observation, ObservationKind
from themis.errors import ThemisError
from themis.lifecycle import JobState


class JournalError(ThemisError, OSError):
    """The journal cannot be read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job's state as last written. `restarts` counts the failures that were made good."""

    job_id: str
    state: JobState
    incarnation: int = 0
    iteration: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContent:
    """What a journal held when it was opened: all observations in order, the newest record of each job and note."""

    observations: tuple[Observation, ...] = ()
    jobs: Mapping[str, JobRecord] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


class Journal:
    """A journal open for appending; `content` is what earlier attempts wrote.

    Raises:
        JournalError: The file cannot be used, or a line that is not the last is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise JournalError("cannot open the journal", value=str(path), remedy=str(error)) from error
        try:
            whole, _, torn = path.read_bytes().rpartition(b"\n")
            if torn:
                os.ftruncate(self._descriptor, len(whole) + 1 if whole else 0)
            self.content = _content(whole, path)
        except BaseException:
            os.close(self._descriptor)
            raise

    def observation(self, observation: Observation) -> None:
        """Write an observation *before* the tuner is told of it."""
        line = {"kind": observation.kind.value, "job": observation.job_id, "iteration": observation.iteration}
        # As text: JSON has no NaN, and repr reads back equal.
        self._append({"observation": {**line, "loss": repr(float(observation.loss))}})

    def job(self, record: JobRecord) -> None:
        """Write the state of a job."""
        line = {"job": record.job_id, "state": record.state.value, "incarnation": record.incarnation}
        self._append({"job": {**line, "iteration": record.iteration, "restarts": record.restarts}})

    def note(self, name: str, value: object) -> None:
        """Write anything else that JSON can hold; the newest value of a name counts."""
        self._append({"note": {"name": name, "value": value}})

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _append(self, line: Mapping[str, object]) -> None:
        data = json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if os.write(self._descriptor, data) != len(data):
            raise JournalError("the journal was written in part only", value=str(self._path), remedy="free some space")


def _content(data: bytes, path: Path) -> JournalContent:
    observations: list[Observation] = []
    jobs: dict[str, JobRecord] = {}
    notes: dict[str, Any] = {}
    for number, line in enumerate(data.split(b"\n") if data else (), start=1):
        try:
            entry = json.loads(line)
            if "observation" in entry:
                observations.append(_observation(entry["observation"]))
            elif "job" in entry:
                record = _job(entry["job"])
                jobs[record.job_id] = record
            elif "note" in entry:
                notes[entry["note"]["name"]] = entry["note"]["value"]
        except (ValueError, KeyError, TypeError) as error:
            remedy = f"damaged in line {number}: {error}; move the file away to begin anew"
            raise JournalError("cannot read the journal", value=str(path), remedy=remedy) from error
    return JournalContent(observations=tuple(observations), jobs=jobs, notes=notes)


def _observation(line: Mapping[str, Any]) -> Observation:
    return Observation(
        kind=ObservationKind(line["kind"]),
        job_id=line["job"],
        iteration=line["iteration"],
        loss=float(line["loss"]),
    )


def _job(line: Mapping[str, Any]) -> JobRecord:
    return JobRecord(
        job_id=line["job"],
        state=JobState(line["state"]),
        incarnation=line["incarnation"],
        iteration=line["iteration"],
        restarts=line["restarts"],
    )
