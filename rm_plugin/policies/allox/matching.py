"""Algorithm 1 of AlloX: the schedule of least total completion time, by minimum-cost matching.

A job that is k-th from the end of its machine's queue delays itself and the k - 1 jobs behind it, so it adds k times
its processing time to the total. The total is thus a sum of costs of pairs (job, position on a machine), and an
assignment solver finds the least. The comments number these steps:

1. build the processing times P (jobs x machines) and the waits D until each machine is free;
2. build the costs Q = [P 2P .. nP] + [D D .. D];
3. match each job with exactly one position, and each position with at most one job;
4. on each machine, run the matched jobs from the largest k down. The code does not read k back: the shortest job of a
   machine has the largest k, because another order would cost more.

Example: jobs of 3, 4 and 5 s on one machine that is free now. Positions 3, 2, 1 cost 3*3 + 2*4 + 1*5 = 22 s. That is
the sum of the completion times 3, 7 and 12 s.

The solver need not see all n positions of m machines (n * m columns). Two exact reductions leave few:

* Machines of one type differ only in their wait, so at most the n machines of a type with the least waits are used.
* A machine gets K positions instead of n. If the answer leaves its K-th position free, more positions would not help:
  a free position has dual price 0, and position K + 1 costs every job more than position K. Otherwise K doubles. The
  first K is the length of the machine's queue in a greedy schedule, plus three.

Source: Le et al., "AlloX: Compute Allocation in Hybrid Clusters", EuroSys 2020, sections 3.1 and 3.2: algorithm 1. Its
line 1 is steps 1 and 2, its line 2 is step 3, its loops are step 4. The two reductions are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from themis.errors import InputError
from themis.values import Value

_EXTRA_POSITIONS = 3
"""Positions offered beyond a machine's greedy queue. With two, most large instances are solved twice or more."""

Seconds = NDArray[np.float64]
Indices = NDArray[np.int64]


class Matching(Value, frozen=True, kw_only=True):
    """An optimal schedule of n jobs on m machines. Jobs and machines are indices.

    Attributes:
        queues: The jobs of each machine in the order in which they run.
        positions_offered: The positions K that the solver saw of each machine; 0 if it cannot be needed.
        total_s: Sum over jobs of the time from the decision to the job's end.
    """

    queues: tuple[tuple[int, ...], ...]
    positions_offered: tuple[int, ...]
    total_s: float

    @property
    def is_certified(self) -> bool:
        """Whether the offered positions prove optimality: each machine leaves its last one free, or was offered n."""
        jobs = sum(map(len, self.queues))
        pairs = zip(self.queues, self.positions_offered, strict=True)
        return all(len(queue) < offered or offered in (0, jobs) for queue, offered in pairs)


def match(time_by_type_s: Seconds, machine_types: Sequence[int], wait_s: Sequence[float] | Seconds) -> Matching:
    """Return the schedule with the least total completion time.

    For example, a job takes 5 s on a GPU that is free in 10 s, and 100 s on an idle CPU. It waits for the GPU:

        >>> match(np.array([[5.0, 100.0]]), [0, 1], [10.0, 0.0])
        Matching(queues=((0,), ()), positions_offered=(1, 1), total_s=15.0)

    Args:
        time_by_type_s: n x T processing times of each job on each device type, in seconds; infinite if it cannot run.
        machine_types: Device type of each of the m machines, as a column of `time_by_type_s`.
        wait_s: Seconds until each machine is free; 0 if it is idle. D(j, i) of the paper is this plus the time that
            job j has waited already. That part is the same for all machines, so it does not change the matching.

    Raises:
        InputError: A job can run on no machine.
    """
    jobs = len(time_by_type_s)
    types = np.asarray(machine_types, dtype=np.int64)
    wait_s = np.asarray(wait_s, dtype=np.float64)
    if jobs == 0:
        return Matching(queues=((),) * len(types), positions_offered=(0,) * len(types), total_s=0.0)
    # Step 1: P and D, of the machines that can be needed.
    machines = _usable_machines(jobs, types, wait_s)
    times_s, wait_s = time_by_type_s[:, types[machines]], wait_s[machines]
    stranded = np.flatnonzero(~np.isfinite(times_s).any(axis=1))
    if len(stranded):
        raise InputError("a job can run on no machine", value=int(stranded[0]))
    # The solver is several times faster if long jobs come first, because they take the first positions.
    order = np.argsort(-times_s.min(axis=1), kind="stable")
    offered = np.minimum(_greedy_lengths(times_s, wait_s, order) + _EXTRA_POSITIONS, jobs)
    # Steps 2 and 3, with more positions for the machines that ran out of them.
    while True:
        machine_of = _solve(times_s, wait_s, offered, order)
        exhausted = (np.bincount(machine_of, minlength=len(machines)) >= offered) & (offered < jobs)
        if not exhausted.any():
            break
        offered[exhausted] = np.minimum(2 * offered[exhausted], jobs)
    # Step 4: the queues.
    return _as_matching(times_s, wait_s, machine_of, machines, offered, len(types))


def _usable_machines(jobs: int, types: Indices, wait_s: Seconds) -> Indices:
    """The n machines of each type that are free first, in ascending index."""
    chosen = [
        members[np.argsort(wait_s[members], kind="stable")[:jobs]]
        for members in (np.flatnonzero(types == kind) for kind in np.unique(types))
    ]
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)


def _greedy_lengths(times_s: Seconds, wait_s: Seconds, order: Indices) -> Indices:
    """Queue length of each machine if jobs, the longest first, take the cheapest position that is left.

    Ties: the first machine.
    """
    position = np.ones(len(wait_s))
    # One buffer: for small instances allocations cost more than the sums.
    cost = np.empty(len(wait_s))
    for times in times_s[order]:
        np.multiply(position, times, out=cost)
        cost += wait_s
        position[cost.argmin()] += 1.0
    return position.astype(np.int64) - 1


def _solve(times_s: Seconds, wait_s: Seconds, offered: Indices, order: Indices) -> Indices:
    """Solve the matching with the positions 1 to `offered` of each machine. Returns the machine of each job."""
    # Step 2: Q. Its columns: machine by machine, in each the positions from the end.
    machine = np.repeat(np.arange(len(offered)), offered)
    position = np.concatenate([np.arange(1, count + 1) for count in offered.tolist()])
    cost = times_s[np.ix_(order, machine)]
    cost *= position
    cost += wait_s[machine]
    # Step 3.
    rows, columns = linear_sum_assignment(cost)
    machine_of = np.empty(len(order), dtype=np.int64)
    machine_of[order[rows]] = machine[columns]
    return machine_of


def _as_matching(
    times_s: Seconds, wait_s: Seconds, machine_of: Indices, machines: Indices, offered: Indices, count: int
) -> Matching:
    """Step 4: run the jobs of each machine shortest first, since the shortest job has the largest k."""
    own_s = times_s[np.arange(len(times_s)), machine_of]
    in_order = np.lexsort((own_s, machine_of))
    queues: list[tuple[int, ...]] = [()] * count
    positions = [0] * count
    ends_s: list[float] = []
    jobs, jobs_s = in_order.tolist(), own_s[in_order].tolist()
    lengths = np.bincount(machine_of, minlength=len(machines)).tolist()
    first = 0
    for machine, free_s, length, most in zip(
        machines.tolist(), wait_s.tolist(), lengths, offered.tolist(), strict=True
    ):
        positions[machine] = most
        queues[machine] = tuple(jobs[first : first + length])
        ends_s += [free_s + run_s for run_s in accumulate(jobs_s[first : first + length])]
        first += length
    return Matching(queues=tuple(queues), positions_offered=tuple(positions), total_s=math.fsum(ends_s))
