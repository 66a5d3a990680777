"""Makes the runs of experiments, several at a time, each like run once."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from simulator.experiments.forecast import expected_s
from simulator.experiments.kept_runs import KeptRuns
from simulator.experiments.port import Cell, Done, Experiment, Scale
from simulator.parallel import mapped
from simulator.record import RunRecord
from simulator.runs import few_collections
from simulator.simulation import Simulation

Progress = Callable[[int, int, float], None]


def run_all(
    experiments: Sequence[Experiment],
    scale: Scale,
    seeds: int,
    processes: int,
    progress: Progress = lambda *_: None,
    kept: KeptRuns | None = None,
) -> Generator[tuple[Experiment, list[Done]], None, None]:
    """Every experiment with its runs, in the order given, each as soon as its runs are made.

    Args:
        experiments: What to run.
        scale: How large.
        seeds: Runs of each cell's kind, with seeds from 1 on.
        processes: Runs at a time; the result does not depend on it.
        progress: Told (runs made, runs in all, share of the time that they may take all together) after each run.
        kept: Runs of these that are there already, and where new ones are kept.
    """
    plans = [(experiment, list(experiment.cells(scale, seeds))) for experiment in experiments]
    wanted: dict[str, Cell] = {}
    for _, cells in plans:
        for cell in cells:
            wanted.setdefault(cell.key, cell)
    made = _make(wanted, processes, progress) if kept is None else _with_kept(wanted, processes, progress, kept)
    records: dict[str, RunRecord] = {}
    for experiment, cells in plans:
        keys = [cell.key for cell in cells]
        while not records.keys() >= set(keys):
            key, record = next(made)
            records[key] = record
        yield experiment, [Done(cell=cell, record=records[key]) for cell, key in zip(cells, keys, strict=True)]


def run_cell(cell: Cell) -> RunRecord:
    """One run."""
    with few_collections():
        return Simulation(cell.workload(), cell.settings, cell.agents()).run()


def _make(wanted: Mapping[str, Cell], processes: int, progress: Progress) -> Iterator[tuple[str, RunRecord]]:
    seconds = {key: expected_s(cell) for key, cell in wanted.items()}
    all_s, done_s = math.fsum(seconds.values()), 0.0
    for made, (key, record) in enumerate(mapped(run_cell, wanted.items(), processes), start=1):
        done_s += seconds[key]
        progress(made, len(wanted), done_s / all_s)
        yield key, record


def _with_kept(
    wanted: Mapping[str, Cell], processes: int, progress: Progress, kept: KeptRuns
) -> Iterator[tuple[str, RunRecord]]:
    """Runs that are kept come first; new ones are kept."""
    yield from kept.before.items()
    there = len(kept.before)
    missing = {key: cell for key, cell in wanted.items() if key not in kept.before}
    for key, record in _make(missing, processes, lambda made, of, share: progress(there + made, there + of, share)):
        kept.keep(key, record)
        yield key, record
