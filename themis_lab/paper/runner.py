"""Make the runs of experiments, several at a time. Equal runs of several experiments are made once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

from themis.garbage import few_collections
from themis_lab.paper.forecast import expected_s
from themis_lab.paper.port import Cell, Done, Experiment, Scale
from themis_lab.paper.run_cache import RunCache
from themis_lab.simulator.parallel import Board, run_parallel
from themis_lab.simulator.record import RunRecord
from themis_lab.simulator.runs import ALLOCATIONS
from themis_lab.simulator.simulation import Simulation, Watch

Progress = Callable[[int, int, float], None]

_WHOLE = 1000
"""Value on the progress board of a finished run."""

_WRITE_EVERY_S = 0.1


def run_all(
    experiments: Sequence[Experiment],
    scale: Scale,
    seeds: int,
    processes: int,
    progress: Progress = lambda *_: None,
    cache: RunCache | None = None,
) -> Generator[tuple[Experiment, list[Done]], None, None]:
    """Yield every experiment with its runs, in the given order, as soon as its runs are finished.

    Args:
        experiments: The experiments to run.
        scale: Size of the runs.
        seeds: Number of seeds, from 1 on.
        processes: Number of runs at a time; the result does not depend on it.
        progress: Called with (runs finished, all runs, finished share of the estimated time) after each run and often
            in between.
        cache: Finished runs, and where to store new ones.
    """
    plans = [(experiment, list(experiment.cells(scale, seeds))) for experiment in experiments]
    wanted: dict[str, Cell] = {}
    for _, cells in plans:
        for cell in cells:
            wanted.setdefault(cell.key, cell)
    made = _make(wanted, processes, progress) if cache is None else _with_cache(wanted, processes, progress, cache)
    records: dict[str, RunRecord] = {}
    for experiment, cells in plans:
        keys = [cell.key for cell in cells]
        while not records.keys() >= set(keys):
            key, record = next(made)
            records[key] = record
        yield experiment, [Done(cell=cell, record=records[key]) for cell, key in zip(cells, keys, strict=True)]


def run_cell(cell: Cell, watch: Watch | None = None) -> RunRecord:
    """Make one run; `watch` is called after every round."""
    with few_collections(ALLOCATIONS):
        return Simulation(cell.workload(), cell.settings, cell.agents()).run(watch)


class _ProgressReporter:
    """Progress of all runs: those finished, and the finished share of those in progress.

    Args:
        cells: The runs.
        progress: Called with the progress.
    """

    def __init__(self, cells: Iterable[Cell], progress: Progress) -> None:
        self._seconds = [expected_s(cell) for cell in cells]
        self._progress = progress
        self._made = 0
        self.board = Board(len(self._seconds))

    def report(self) -> None:
        """Report the progress now."""
        shares = [number / _WHOLE for number in self.board.numbers()]
        done_s = math.fsum(seconds * share for seconds, share in zip(self._seconds, shares, strict=True))
        self._progress(self._made, len(self._seconds), done_s / math.fsum(self._seconds))

    def finished(self, place: int) -> None:
        """Report that the run at this place is finished."""
        self.board.put(place, _WHOLE)
        self._made += 1
        self.report()


def _run_in_worker(item: tuple[int, Cell]) -> RunRecord:
    """Make a run in another process."""
    place, cell = item
    return run_cell(cell, None if Board.here is None else _progress_watch(Board.here, place))


def _progress_watch(
    board: Board,
    place: int,
    then: Callable[[], None] = lambda: None,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Watch:
    """Write a run's progress on the board, at most ten times a second.

    The returned function is called after every round.
    """
    written_at_s = -math.inf

    def watch(simulation: Simulation) -> None:
        nonlocal written_at_s
        now_s = monotonic_s()
        if now_s - written_at_s >= _WRITE_EVERY_S:
            written_at_s = now_s
            board.put(place, int(_WHOLE * _share_done(simulation)))
            then()

    return watch


def _share_done(simulation: Simulation) -> float:
    """The finished share of the apps' work. A running app counts as if all its GPU time had S = 1."""
    arbiter, now_s = simulation.arbiter, simulation.now_s
    going = [
        min(1.0, arbiter.attained_gpu_s(app_id, now_s) / app.work_total_gpu_s)
        for app_id, app in simulation.apps.items()
    ]
    return (len(simulation.ended) + math.fsum(going)) / len(simulation.workload.apps)


def _make(wanted: Mapping[str, Cell], processes: int, progress: Progress) -> Iterator[tuple[str, RunRecord]]:
    reporter = _ProgressReporter(wanted.values(), progress)
    for (key, place), record in _records(wanted, processes, reporter):
        reporter.finished(place)
        yield key, record


def _records(
    wanted: Mapping[str, Cell], processes: int, reporter: _ProgressReporter
) -> Iterator[tuple[tuple[str, int], RunRecord]]:
    numbered = [((key, place), (place, cell)) for place, (key, cell) in enumerate(wanted.items())]
    if processes > 1:
        return run_parallel(_run_in_worker, numbered, processes, reporter.board, reporter.report)
    return (
        (key, run_cell(cell, _progress_watch(reporter.board, place, reporter.report)))
        for key, (place, cell) in numbered
    )


def _with_cache(
    wanted: Mapping[str, Cell], processes: int, progress: Progress, cache: RunCache
) -> Iterator[tuple[str, RunRecord]]:
    """Yield the cached runs first, and store new ones."""
    yield from cache.found.items()
    known = len(cache.found)
    missing = {key: cell for key, cell in wanted.items() if key not in cache.found}
    for key, record in _make(missing, processes, lambda made, of, share: progress(known + made, known + of, share)):
        cache.store(key, record)
        yield key, record
