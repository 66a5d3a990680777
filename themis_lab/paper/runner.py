"""Makes the runs of experiments, several at a time, each like run once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

from themis_lab.paper.forecast import expected_s
from themis_lab.paper.port import Cell, Done, Experiment, Scale
from themis_lab.paper.run_cache import KeptRuns
from themis_lab.simulator.parallel import Board, run_parallel
from themis_lab.simulator.record import RunRecord
from themis_lab.simulator.runs import few_collections
from themis_lab.simulator.simulation import Simulation, Watch

Progress = Callable[[int, int, float], None]

_WHOLE = 1000
"""What a run's place on the board has when it is made."""

_NOTED_EVERY_S = 0.1


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
        progress: Told (runs made, runs in all, share of the time that they may take all together) after each run, and
            often in between.
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


def run_cell(cell: Cell, watch: Watch | None = None) -> RunRecord:
    """One run; `watch` is called after every round."""
    with few_collections():
        return Simulation(cell.workload(), cell.settings, cell.agents()).run(watch)


class _Told:
    """How far runs have come, by their places: those made, and of those under way the share of work that is done.

    Args:
        cells: The runs.
        progress: Told of it.
    """

    def __init__(self, cells: Iterable[Cell], progress: Progress) -> None:
        self._seconds = [expected_s(cell) for cell in cells]
        self._progress = progress
        self._made = 0
        self.board = Board(len(self._seconds))

    def look(self) -> None:
        """Tell how far they are by now."""
        shares = [number / _WHOLE for number in self.board.numbers()]
        done_s = math.fsum(seconds * share for seconds, share in zip(self._seconds, shares, strict=True))
        self._progress(self._made, len(self._seconds), done_s / math.fsum(self._seconds))

    def made(self, place: int) -> None:
        """A run is made."""
        self.board.put(place, _WHOLE)
        self._made += 1
        self.look()


def _run_apart(item: tuple[int, Cell]) -> RunRecord:
    """A run, made in another process."""
    place, cell = item
    return run_cell(cell, None if Board.here is None else _noting(Board.here, place))


def _noting(
    board: Board,
    place: int,
    then: Callable[[], None] = lambda: None,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Watch:
    """Writes on the board how far a run is, ten times a second at most: it is called after every round."""
    noted_at_s = -math.inf

    def watch(simulation: Simulation) -> None:
        nonlocal noted_at_s
        now_s = monotonic_s()
        if now_s - noted_at_s >= _NOTED_EVERY_S:
            noted_at_s = now_s
            board.put(place, int(_WHOLE * _share_done(simulation)))
            then()

    return watch


def _share_done(simulation: Simulation) -> float:
    """The share of the apps' work that is done: of one that goes on, as if all its GPU time were at S = 1."""
    arbiter, now_s = simulation.arbiter, simulation.now_s
    going = [
        min(1.0, arbiter.attained_gpu_s(app_id, now_s) / app.work_total_gpu_s)
        for app_id, app in simulation.apps.items()
    ]
    return (len(simulation.ended) + math.fsum(going)) / len(simulation.workload.apps)


def _make(wanted: Mapping[str, Cell], processes: int, progress: Progress) -> Iterator[tuple[str, RunRecord]]:
    told = _Told(wanted.values(), progress)
    for (key, place), record in _records(wanted, processes, told):
        told.made(place)
        yield key, record


def _records(wanted: Mapping[str, Cell], processes: int, told: _Told) -> Iterator[tuple[tuple[str, int], RunRecord]]:
    numbered = [((key, place), (place, cell)) for place, (key, cell) in enumerate(wanted.items())]
    if processes > 1:
        return run_parallel(_run_apart, numbered, processes, told.board, told.look)
    return ((key, run_cell(cell, _noting(told.board, place, told.look))) for key, (place, cell) in numbered)


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
