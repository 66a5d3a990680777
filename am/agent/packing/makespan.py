"""Put jobs on gangs that run one job at a time, so that the last job ends early.

The time at which it ends is the *makespan*. A bid values a bundle by its makespan, and the planner later puts the jobs
on gangs by the same methods. In the literature this is scheduling on unrelated machines. `core/packing.c` has five
methods. They run in this order, and the best result counts:

1. Longest first, each job where it ends earliest (LPT).
2. First fit under a bisected end (MULTIFIT: Coffman, Garey and Johnson, "An application of bin-packing to
   multiprocessor scheduling", 1978; for gangs of unequal speed the slowest first: Friesen and Langston, "Bounds for
   MULTIFIT scheduling on uniform processors", 1983).
3. Jobs of these schedules exchange places as long as the last gang ends sooner: one for one, and on gangs of few jobs
   up to two for up to two.
4. For more than eight jobs, in close packing only: gang after gang is filled up to a target end (`core/least_slack.c`,
   minimum bin slack: Gupta and Ho, "A new heuristic algorithm for the one-dimensional bin-packing problem", 1999).
5. For at most eight jobs: branch and bound over all assignments.

Example: jobs of 3, 3, 2, 2 and 2 s on two identical gangs. LPT ends at 7 s: 3 + 2 + 2 and 3 + 2. MULTIFIT ends at 6 s:
3 + 3 and 2 + 2 + 2. Minimum bin slack, for a gang with 7 s left and jobs of 5, 4 and 3 s: the longest first takes 5 s
and leaves 2 s unused; 4 + 3 leave none, so the gang gets these.

A bid times hundreds of divisions. It packs only those closely that end first. The planner compares few divisions. It
packs all of them closely, and then tries randomly drawn exchanges (iterated local search). So when a job ends and the
planner packs the others again, they end hardly later than before, and the bid's promise is usually kept
(`am.jobs.bid_division`; docs/design/lateness.md has the exceptions).

Jobs come in `finish_time.job_order`, kinds of gangs in `finish_time.gang_order`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent import _packing

Counts = NDArray[np.int64]
Seconds = NDArray[np.float64]


def end_times_s(alone_s: Seconds, counts: Counts, *, in_pairs: bool = True, closely: bool = False) -> Seconds:
    """When the last job ends, for each of D divisions. Equal divisions are packed once.

    Args:
        alone_s: J x K seconds that each job takes on a gang of each kind, infinite where it cannot run; J and K at
            least 1.
        counts: D x K, how many gangs of each kind a division has.
        in_pairs: Whether pairs of jobs exchange places too. It takes twice as long. Bids do so since the planner does;
            a search for good divisions can do without.
        closely: Whether gangs are also filled one after the other, if there are more than eight jobs. It takes one to
            four milliseconds for a division of a hundred jobs.

    Returns:
        D times in seconds, infinite if a job can run on no gang.
    """
    out = np.empty(len(counts))
    times_s = np.ascontiguousarray(alone_s, dtype=np.float64)
    _packing.times_s(times_s, np.ascontiguousarray(counts, dtype=np.int64), in_pairs, closely, out)
    return out


def left_out_s(alone_s: Seconds, counts: Counts, end_s: float, most_s: float) -> Seconds:
    """The time of the jobs that do not end by `end_s` if first fit puts them on gangs.

    It measures how far a division is from that end, where `end_times_s` only says that it is not reached.

    Args:
        alone_s: J x K seconds, as for `end_times_s`.
        counts: D x K, how many gangs of each kind a division has.
        end_s: The end.
        most_s: Counting stops at this sum, and at the least sum of the divisions before.

    Returns:
        D sums of the times of these jobs on their fastest kinds; 0 if all end in time.
    """
    out = np.empty(len(counts))
    times_s = np.ascontiguousarray(alone_s, dtype=np.float64)
    _packing.left_out_s(times_s, np.ascontiguousarray(counts, dtype=np.int64), end_s, most_s, out)
    return out


def packed(alone_s: Seconds, kind: Sequence[int], load_s: Sequence[float]) -> tuple[float, list[int]]:
    """When the last job ends, and the gang of each job: -1 if it can run on none.

    Args:
        alone_s: J x K seconds, as for `end_times_s`; J and K at least 1.
        kind: The kind of each gang, in ascending order.
        load_s: When each gang is free, in seconds from now.
    """
    if not kind:
        return math.inf, [-1] * len(alone_s)
    gang_of = np.empty(len(alone_s), dtype=np.int64)
    kinds, loads_s = np.array(kind, dtype=np.int64), np.array(load_s, dtype=np.float64)
    end_s = _packing.gangs_of_jobs(np.ascontiguousarray(alone_s, dtype=np.float64), kinds, loads_s, gang_of)
    return end_s, gang_of.tolist()
