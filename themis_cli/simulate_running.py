"""Makes the runs that a command asks for, with their progress, and what is left out of them, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from themis_cli.simulate_progress import Progress
from themis_lab.simulator.metrics import Document
from themis_lab.simulator.record import RunRecord
from themis_lab.simulator.runs import Run, make_run
from themis_lab.simulator.sweep import documents_of


def make_one(run: Run) -> RunRecord:
    """The record of a run."""
    _tell_gaps([run])
    with Progress(1) as progress:
        return make_run(run, progress.watch)


def make_all(runs: Sequence[Run], processes: int) -> list[Document]:
    """The documents of runs, in their order, so many runs at a time."""
    _tell_gaps(runs)
    with Progress(len(runs)) as progress:
        return documents_of(runs, processes, progress.run_made, progress.watch, progress.watch_apart)


def _tell_gaps(runs: Sequence[Run]) -> None:
    """A line for each workload that is not all of its trace; with other policies and seeds it is the same one."""
    for name, gaps in dict.fromkeys((run.workload.name, run.workload.gaps) for run in runs):
        if gaps:
            sys.stderr.write(f"simulate: {name}: {gaps}\n")


def broken(documents: Sequence[Document]) -> int:
    """The exit code of runs: 1 when an invariant broke, the first of which is told on standard error, else 0."""
    for document in documents:
        violations = document["invariants"]["violations"]
        if violations:
            sys.stderr.write(f"themis: an invariant broke under {document['policy']}: {violations[0]}\n")
            return 1
    return 0
