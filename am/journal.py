"""The app master's journal: the state that the next attempt needs, as JSON lines in append order.

They lie in a local file or on HDFS (am/journal_store.py, am/journal_hdfs.py). The death of the process at any
instruction leaves a beginning of them and at most one torn line, which is cut off when the journal is opened again. A
power cut may lose the newest lines of a file; the death of the process those of the last moment on HDFS.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from am.journal_store import JournalError, JournalFile, JournalStore
from am.profiler.profile import Measurements
from am.tuners.port import Observation, ObservationKind
from themis.lifecycle import JobState
from themis.values import Value


class JobRecord(Value, frozen=True, kw_only=True):
    """A job's state as last written.

    Attributes:
        restarts: Number of failures after which the job was restarted.
        stalls: Number of these that were stalls.
        longest_wait_s: The longest wait for a step, in seconds.
        short_of: The target that it ended short of, 0 if it did not.
        unsaved_stops: Number of its newest stops in a row that left no newer checkpoint.
        read_metric: Whether a loss or the declared metric was read in its log, also one that is no number.
        diagnostics: Why it was given up, empty if it was not.
    """

    job_id: str
    state: JobState
    incarnation: int = 0
    iteration: int = 0
    restarts: int = 0
    stalls: int = 0
    longest_wait_s: float = 0.0
    short_of: int = 0
    unsaved_stops: int = 0
    read_metric: bool = False
    diagnostics: str = ""


class JournalContent(Value, frozen=True, kw_only=True):
    """What a journal held when it was opened: all observations in order, and the newest of each job and note."""

    observations: tuple[Observation, ...] = ()
    jobs: Mapping[str, JobRecord] = field(default_factory=dict)
    measurements: Mapping[str, Measurements] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


class Journal:
    """A journal open for appending; `content` is what earlier attempts wrote.

    Args:
        place: A local path, the URI of a folder on HDFS (`hdfs://`, `webhdfs://`), or an open store.

    Raises:
        JournalError: The place cannot be used, or a line that is not the last is damaged.
        InputError: The URI does not resolve.
    """

    def __init__(self, place: Path | str | JournalStore) -> None:
        self._store = _open_store(place) if isinstance(place, Path | str) else place
        try:
            self.content = _content(self._store.content(), self._store.place)
        except BaseException:
            self._store.close()
            raise

    def observation(self, observation: Observation) -> None:
        """Write an observation. Call this *before* the tuner gets it."""
        line = {"kind": observation.kind.value, "job": observation.job_id, "iteration": observation.iteration}
        # As text: JSON has no NaN, and repr reads back equal.
        self._append({"observation": {**line, "loss": repr(float(observation.loss))}})

    def job(self, record: JobRecord) -> None:
        """Write the state of a job."""
        line = {"job": record.job_id, "state": record.state.value, "incarnation": record.incarnation}
        line |= {"iteration": record.iteration, "restarts": record.restarts, "short_of": record.short_of}
        line |= {"unsaved_stops": record.unsaved_stops, "read_metric": record.read_metric}
        line |= {"diagnostics": record.diagnostics}
        self._append({"job": {**line, "stalls": record.stalls, "longest_wait_s": record.longest_wait_s}})

    def measurements(self, job_id: str, measurements: Measurements) -> None:
        """Write what was measured of a job's pace."""
        self._append({"measured": {"job": job_id, **msgspec.to_builtins(measurements)}})

    def note(self, name: str, value: object) -> None:
        """Write any other JSON value. The newest value of a name counts."""
        self._append({"note": {"name": name, "value": value}})

    def close(self) -> None:
        """End the appending."""
        self._store.close()

    def _append(self, line: Mapping[str, object]) -> None:
        self._store.append(json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n")


def _open_store(place: Path | str) -> JournalStore:
    if isinstance(place, str) and place.lower().startswith(("hdfs://", "webhdfs://")):
        # Imported here: an app master whose journal is a file needs neither the packages nor the time they take.
        from am.journal_hdfs import open_hdfs_journal

        return open_hdfs_journal(place)
    return JournalFile(Path(place))


def _content(data: bytes, place: str) -> JournalContent:
    observations: list[Observation] = []
    jobs: dict[str, JobRecord] = {}
    measurements: dict[str, Measurements] = {}
    notes: dict[str, Any] = {}
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(line)
            if "observation" in entry:
                observations.append(_observation(entry["observation"]))
            elif "job" in entry:
                record = _job(entry["job"])
                jobs[record.job_id] = record
            elif "measured" in entry:
                measurements[entry["measured"]["job"]] = msgspec.convert(entry["measured"], Measurements)
            elif "note" in entry:
                notes[entry["note"]["name"]] = entry["note"]["value"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            remedy = f"damaged in line {number}: {error}; move the file away to begin again"
            raise JournalError("cannot read the journal", value=place, remedy=remedy) from error
    return JournalContent(observations=tuple(observations), jobs=jobs, measurements=measurements, notes=notes)


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
        # Journals of earlier versions do not have them.
        stalls=line.get("stalls", 0),
        longest_wait_s=line.get("longest_wait_s", 0.0),
        short_of=line.get("short_of", 0),
        unsaved_stops=line.get("unsaved_stops", 0),
        read_metric=line.get("read_metric", False),
        diagnostics=line.get("diagnostics", ""),
    )
