"""Jobs put on gangs that run one job at a time, so that the last one ends early: what bids value and apps then do.

Five ways, of which the best counts. Longest first, each where it ends earliest (LPT). First fit under a bisected end
(MULTIFIT: Coffman, Garey and Johnson, "An application of bin-packing to multiprocessor scheduling", 1978; for gangs
of unlike speed the slowest first: Friesen and Langston, "Bounds for MULTIFIT scheduling on uniform processors", 1983).
What these find, with jobs that change places as long as that ends the last gang sooner: one for one, and where that
does not help and gangs have few jobs, up to two for up to two. Gang after gang filled up to an end that is aimed at
(`least_slack`). And of few jobs every way, as branch and bound.

A bid times hundreds of divisions, of which few are packed closely: by the fourth way as well. The planner packs few: it
packs all of them closely, and goes on from the best with jobs that are drawn to change places (iterated local search).
What it packs anew when a job ends is then hardly worse than what it began, so that a bid's promise is mostly kept: the
planner looks at the division that the bid rests on as well (`am.jobs.promised`; for the exceptions see
docs/design/lateness.md).

Jobs come in `finish_time.job_order`, kinds of gangs in `finish_time.gang_order`. It is done by the compiled
`core/packing.c`, or without it by `packing_plain`, which is slower and tells the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.packing_plain import PlainPacker

try:
    from am.agent import _packing
except ImportError:
    _packing = None  # type: ignore[assignment]

Counts = NDArray[np.int64]
Seconds = NDArray[np.float64]


def end_times_s(alone_s: Seconds, counts: Counts, *, in_pairs: bool = True, closely: bool = False) -> Seconds:
    """When the last job ends, for each of D divisions. Those that are the same are packed once: tables of a bid repeat.

    Args:
        alone_s: J x K seconds that each job takes on a gang of each kind, infinite where it cannot run; J and K at
            least 1.
        counts: D x K, how many gangs of each kind a division has.
        in_pairs: Whether jobs change places in pairs as well. It takes twice as long: apps do it and bids tell it, but
            what only looks for good divisions can do without.
        closely: Whether gangs are filled one after the other as well, of more than eight jobs. It takes one to four
            milliseconds a division of a hundred jobs.

    Returns:
        D times, infinite where a job can nowhere run.
    """
    if _packing is None:
        # More gangs of a kind than there are jobs are of no use.
        rows, most = alone_s.tolist(), len(alone_s)
        laid = [[min(most, count) for count in row] for row in counts.tolist()]
        told_s = {row: _plain(row, rows, in_pairs, closely).pack()[0] for row in dict.fromkeys(map(tuple, laid))}
        return np.array([told_s[tuple(row)] for row in laid])
    out = np.empty(len(counts))
    times_s = np.ascontiguousarray(alone_s, dtype=np.float64)
    _packing.times_s(times_s, np.ascontiguousarray(counts, dtype=np.int64), in_pairs, closely, out)
    return out


def left_out_s(alone_s: Seconds, counts: Counts, end_s: float, most_s: float) -> Seconds:
    """How much time the jobs take that do not end in time when they are put on gangs by first fit.

    It tells how far a division is from what is wanted where `end_times_s` only tells that it is not reached.

    Args:
        alone_s: J x K seconds, as for `end_times_s`.
        counts: D x K, how many gangs of each kind a division has.
        end_s: The end.
        most_s: From there on it is not counted further; nor from the least of those before on.

    Returns:
        D sums of the times of these jobs on their fastest kinds, 0 where all end in time.
    """
    if _packing is None:
        rows, most = alone_s.tolist(), len(alone_s)
        told_s = []
        for row in counts.tolist():
            told_s.append(_plain([min(most, count) for count in row], rows).left_out(end_s, min([most_s, *told_s])))
        return np.array(told_s)
    out = np.empty(len(counts))
    times_s = np.ascontiguousarray(alone_s, dtype=np.float64)
    _packing.left_out_s(times_s, np.ascontiguousarray(counts, dtype=np.int64), end_s, most_s, out)
    return out


def packed(alone_s: Seconds, kind: Sequence[int], load_s: Sequence[float]) -> tuple[float, list[int]]:
    """When the last job ends, and on which gang each job runs, -1 for a job that can run on none.

    Args:
        alone_s: J x K seconds, as for `end_times_s`; J and K at least 1.
        kind: The kind of each gang; those of one kind side by side, in order of the kinds.
        load_s: When each gang is free, in seconds from now.
    """
    if _packing is None or not kind:
        return PlainPacker(np.asarray(alone_s).tolist(), kind, load_s).pack()
    place = np.empty(len(alone_s), dtype=np.int64)
    kinds, loads_s = np.array(kind, dtype=np.int64), np.array(load_s, dtype=np.float64)
    end_s = _packing.places(np.ascontiguousarray(alone_s, dtype=np.float64), kinds, loads_s, place)
    return end_s, place.tolist()


def _plain(
    counts: Sequence[int], alone_s: Sequence[Sequence[float]], in_pairs: bool = True, closely: bool = False
) -> PlainPacker:
    kind = [place for place, count in enumerate(counts) for _ in range(count)]
    return PlainPacker(alone_s, kind, [0.0] * len(kind), in_pairs=in_pairs, closely=closely, shaken=0)
