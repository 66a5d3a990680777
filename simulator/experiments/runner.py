"""Makes the runs of experiments, several at a time, each like run once."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from simulator.experiments.port import Cell, Done, Experiment, Scale
from simulator.record import RunRecord
from simulator.simulation import Simulation

Progress = Callable[[int, int], None]


def run_all(
    experiments: Sequence[Experiment], scale: Scale, seeds: int, processes: int, progress: Progress = lambda *_: None
) -> Iterator[tuple[Experiment, list[Done]]]:
    """Every experiment with its runs, in the order given, each as soon as its runs are made.

    Args:
        experiments: What to run.
        scale: How large.
        seeds: Runs of each cell's kind, with seeds from 1 on.
        processes: Runs at a time; the result does not depend on it.
        progress: Told (runs made, runs in all) after each run.
    """
    plans = [(experiment, list(experiment.cells(scale, seeds))) for experiment in experiments]
    wanted: dict[str, Cell] = {}
    for _, cells in plans:
        for cell in cells:
            wanted.setdefault(_key(cell), cell)
    made = _make(wanted, processes, progress)
    records: dict[str, RunRecord] = {}
    for experiment, cells in plans:
        keys = [_key(cell) for cell in cells]
        while not records.keys() >= set(keys):
            key, record = next(made)
            records[key] = record
        yield experiment, [Done(cell=cell, record=records[key]) for cell, key in zip(cells, keys, strict=True)]


def run_cell(cell: Cell) -> RunRecord:
    """One run."""
    return Simulation(cell.workload(), cell.settings, cell.agents()).run()


def _key(cell: Cell) -> str:
    """What tells runs apart; labels do not."""
    return repr((cell.make_workload, cell.workload_arguments, cell.settings, cell.make_agent, cell.agent_arguments))


def _make(wanted: dict[str, Cell], processes: int, progress: Progress) -> Iterator[tuple[str, RunRecord]]:
    made = 0
    for key, record in _here(wanted) if processes <= 1 else _apart(wanted, processes):
        made += 1
        progress(made, len(wanted))
        yield key, record


def _here(wanted: dict[str, Cell]) -> Iterator[tuple[str, RunRecord]]:
    for key, cell in wanted.items():
        yield key, run_cell(cell)


def _apart(wanted: dict[str, Cell], processes: int) -> Iterator[tuple[str, RunRecord]]:
    context = multiprocessing.get_context("forkserver")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_leave_interrupts_to_the_parent)
    try:
        # A few ahead only: an interrupt should not find hundreds of runs waiting.
        todo = iter(wanted.items())
        running: dict[Future[RunRecord], str] = {}
        while True:
            while len(running) < 2 * processes and (item := next(todo, None)) is not None:
                running[pool.submit(run_cell, item[1])] = item[0]
            if not running:
                return
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                yield running.pop(future), future.result()
    finally:
        _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    """Leave nothing running, also when a run is under way."""
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
