"""Make the runs of a command. Progress, and notes on omitted parts of traces, go to standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from themis_cli.simulate_progress import Progress
from themis_lab.simulator.metrics import Document
from themis_lab.simulator.observer import Observer
from themis_lab.simulator.record import RunRecord
from themis_lab.simulator.runs import Run, make_run
from themis_lab.simulator.sweep import documents_of


def make_one(run: Run, observer: Observer | None = None) -> RunRecord:
    """The record of a run, which an observer may watch."""
    _write_gaps([run])
    with Progress(1) as progress:
        return make_run(run, progress.watch, observer)


def make_all(runs: Sequence[Run], processes: int) -> list[Document]:
    """Return the documents of runs in their order, made by `processes` processes."""
    _write_gaps(runs)
    with Progress(len(runs)) as progress:
        return documents_of(runs, processes, progress.run_made, progress.watch, progress.watch_apart)


def _write_gaps(runs: Sequence[Run]) -> None:
    """Write a line for each workload that omits parts of its trace. It is equal for all policies and seeds."""
    for name, gaps in dict.fromkeys((run.workload.name, run.workload.gaps) for run in runs):
        if gaps:
            sys.stderr.write(f"simulate: {name}: {gaps}\n")


def broken(documents: Sequence[Document]) -> int:
    """Return the exit code of runs: 1 if an invariant was violated, else 0.

    Writes the first violation to standard error.
    """
    for document in documents:
        violations = document["invariants"]["violations"]
        if violations:
            sys.stderr.write(f"themis: an invariant broke under {document['policy']}: {violations[0]}\n")
            return 1
    return 0
