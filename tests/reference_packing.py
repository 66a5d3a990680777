"""The packing of jobs on gangs in plain Python, the reference that `am/agent/core/packing.c` is tested against.

`times_s`, `left_out_s` and `gangs_of_jobs` have the signatures of the compiled functions (`am/agent/_packing.pyi`) and
return bit-identical results.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from reference_least_slack import LEAN, Filler

MAX_PASSES = 8
"""MULTIFIT tries at most this many ends between the lower bound and the best end."""

FEW_JOBS, MAX_STEPS = 8, 20_000
"""Branch and bound runs for at most FEW_JOBS jobs and stops after MAX_STEPS steps."""

MAX_CHANGES = 40
"""One local search makes at most this many changes."""

NEAR_ENOUGH = 1.001
"""The heuristics stop once the end is at most this factor times the lower bound."""

FEW_ON_A_GANG, WORTH_PAIRS = 8, 1.004
"""Local search exchanges pairs of jobs only between gangs of at most FEW_ON_A_GANG jobs, and only while the end is
above WORTH_PAIRS times the lower bound, because looking for pairs takes long."""

MAX_SHAKEN, SHAKEN = 3000, 4
"""Iterated local search runs MAX_SHAKEN / J times for J jobs. Each time it first draws SHAKEN pairs of jobs, which
exchange places."""

MAX_FILLS, FILLING_ROUNDS = 16, 4
"""Close packing makes at most MAX_FILLS fillings, of them at most FILLING_ROUNDS for each target and parameter set."""

FIRST_SOONER, MIN_SOONER = 0.01, 0.001
"""The target is this fraction before the best end: the first value, and the smallest."""

PRICE_STEP = 0.1
"""A job left over counts 10 % more in the next filling."""

LESS = 0.999999999
"""An exchange must gain more than a rounding error: the new end must be below this factor times the old one."""

Change = tuple[float, tuple[int, ...], tuple[int, ...], int]
"""The later end of the two gangs, the jobs that leave the first gang, the jobs that replace them, the second gang."""


class PlainPacker:
    """Packs jobs on gangs; arguments as for `packing.packed`."""

    def __init__(
        self,
        alone_s: Sequence[Sequence[float]],
        kind: Sequence[int],
        load_s: Sequence[float],
        *,
        in_pairs: bool = True,
        closely: bool = True,
        shaken: int = MAX_SHAKEN,
    ) -> None:
        self._in_pairs, self._closely, self._shaken = in_pairs, closely, shaken
        self._alone_s, self._kind, self._start_s = alone_s, kind, list(load_s)
        self._members = [[gang for gang, its in enumerate(kind) if its == k] for k in range(len(alone_s[0]))]
        self._place = [-1] * len(alone_s)
        self._loads_s: list[float] = []
        self._steps = self._fills = 0
        self.least_s = math.inf
        self.best: list[int] = []

    def pack(self) -> tuple[float, list[int]]:
        """Return when the last job ends, and the gang of each job: -1 if it can run on none."""
        self._schedule_longest_first()
        if math.isfinite(self.least_s):
            self._compute_bound()
            if self.least_s > NEAR_ENOUGH * self._bound_s:
                self._bisect_end()
            if self.least_s > NEAR_ENOUGH * self._bound_s:
                self._place = list(self.best)
                self._search_locally()
            if len(self._alone_s) > FEW_JOBS:
                if self._closely:
                    self._pack_closely()
                self._iterate_local_search()
            if len(self._alone_s) <= FEW_JOBS and self.least_s > self._bound_s:
                self._loads_s, self._steps = list(self._start_s), 0
                self._branch(0, max(self._start_s), self._used)
        return self.least_s, self.best

    def left_out(self, end_s: float, most_s: float) -> float:
        """Sum the times of the jobs that miss `end_s`, each on its fastest kind. Stop at `most_s`."""
        self._loads_s = list(self._start_s)
        sum_s = 0.0
        for times_s in self._alone_s:
            if sum_s >= most_s and sum_s:
                break
            place = self._first_fit(times_s, end_s)
            if place < 0:
                sum_s += min(times_s)
            else:
                self._loads_s[place] += times_s[self._kind[place]]
        return sum_s

    def _keep(self, end_s: float) -> None:
        self.least_s, self.best = end_s, list(self._place)

    def _schedule_longest_first(self) -> None:
        heaps = [[(self._start_s[gang], gang) for gang in members] for members in self._members]
        for heap in heaps:
            heapq.heapify(heap)
        latest_s = max(self._start_s, default=0.0)
        for job, times_s in enumerate(self._alone_s):
            ends_s = [heap[0][0] + time_s if heap else math.inf for heap, time_s in zip(heaps, times_s, strict=True)]
            end_s = min(ends_s)
            latest_s = max(latest_s, end_s)
            if math.isfinite(end_s):
                heap = heaps[ends_s.index(end_s)]
                self._place[job] = heap[0][1]
                heapq.heapreplace(heap, (end_s, heap[0][1]))
        self._keep(latest_s)

    def _compute_bound(self) -> None:
        """Compute the lower bound: the longest job, or all work over all speed.

        The weight of a gang is the speed of the shortest job on it. Work is time times weight, and each job counts with
        the least work over the kinds.
        """
        weights = [1.0 / time_s if math.isfinite(time_s) and time_s > 0.0 else 0.0 for time_s in self._alone_s[-1]]
        room = used = 0.0
        for gang, kind in enumerate(self._kind):
            room += weights[kind]
            used += weights[kind] * self._start_s[gang]
        longest_s = max(self._start_s)
        after = [0.0] * (len(self._alone_s) + 1)
        for job in range(len(self._alone_s) - 1, -1, -1):
            times_s = self._alone_s[job]
            here = [kind for kind, members in enumerate(self._members) if members and math.isfinite(times_s[kind])]
            longest_s = max(longest_s, min(times_s[kind] for kind in here))
            after[job] = after[job + 1] + min(weights[kind] * times_s[kind] for kind in here)
        self._weights, self._room, self._used, self._work_after = weights, room, used, after
        self._bound_s = max(longest_s, (after[0] + used) / room) if room > 0.0 else longest_s

    def _bisect_end(self) -> None:
        low_s, high_s = self._bound_s, self.least_s
        for _ in range(MAX_PASSES):
            if high_s <= NEAR_ENOUGH * low_s:
                return
            middle_s = 0.5 * (low_s + high_s)
            end_s = max(self._loads_s) if self._fit_by(middle_s) else math.inf
            # The sum of the times may be a last bit above the end.
            if end_s < self.least_s:
                self._keep(end_s)
            if end_s <= middle_s:
                high_s = end_s
            else:
                low_s = middle_s

    def _fit_by(self, end_s: float) -> bool:
        """Put each job on the first gang where it ends by `end_s`. Return False if a job finds none."""
        self._loads_s = list(self._start_s)
        for job, times_s in enumerate(self._alone_s):
            place = self._first_fit(times_s, end_s)
            if place < 0:
                return False
            self._place[job] = place
            self._loads_s[place] += times_s[self._kind[place]]
        return True

    def _first_fit(self, times_s: Sequence[float], end_s: float) -> int:
        """Return the first gang on which a job ends by `end_s`, or -1."""
        for kind, time_s in enumerate(times_s):
            if time_s <= end_s:
                place = next((gang for gang in self._members[kind] if self._loads_s[gang] <= end_s - time_s), -1)
                if place >= 0:
                    return place
        return -1

    def _search_locally(self) -> None:
        """Local search: the gang that ends last gives a job away or exchanges it for a shorter one."""
        self._add_up_loads()
        for _ in range(MAX_CHANGES):
            last_s = max(self._loads_s)
            if last_s <= NEAR_ENOUGH * self._bound_s:
                break
            last = self._loads_s.index(last_s)
            best: Change = (last_s * LESS, (), (), -1)
            for job, gang in enumerate(self._place):
                if gang == last:
                    best = self._best_change(job, best)
            if not best[1] and self._in_pairs and last_s > WORTH_PAIRS * self._bound_s:
                best = self._first_exchange(last, best)
            if not best[1]:
                break
            self._change(*best[1:])
        self._add_up_loads()
        if max(self._loads_s) < self.least_s:
            self._keep(max(self._loads_s))

    def _pack_closely(self) -> None:
        """Fill gangs up to a target before the best end. Halve the distance whenever a job misses the target."""
        filler = Filler(self._alone_s, self._kind, self._start_s, self._weights, self._work_after)
        sooner, self._fills = FIRST_SOONER, 0
        while self._fills < MAX_FILLS and sooner >= MIN_SOONER and self.least_s > NEAR_ENOUGH * self._bound_s:
            if not self._fill_by_each_way(filler, max(self._bound_s, self.least_s * (1.0 - sooner))):
                sooner *= 0.5

    def _fill_by_each_way(self, filler: Filler, end_s: float) -> bool:
        """Fill with each parameter set in turn, raising the prices of jobs left over. Whether all end by `end_s`."""
        for way in range(len(LEAN)):
            prices = [1.0] * len(self._alone_s)
            for _ in range(FILLING_ROUNDS):
                if self._fills == MAX_FILLS:
                    return False
                self._fills += 1
                self._place = filler.fill_by(end_s, way, prices)
                left = [job for job, place in enumerate(self._place) if place < 0]
                for job in left:
                    prices[job] += PRICE_STEP
                self._place_left_over(left)
                self._search_locally()
                if not left or self.least_s <= end_s:
                    return True
        return False

    def _place_left_over(self, left: Sequence[int]) -> None:
        """Put each job left over on the gang where it ends earliest."""
        loads_s = list(self._start_s)
        for job, gang in enumerate(self._place):
            if gang >= 0:
                loads_s[gang] += self._time_s(job, gang)
        for job in left:
            ends_s = [load_s + self._time_s(job, gang) for gang, load_s in enumerate(loads_s)]
            end_s = min(ends_s)
            self._place[job] = ends_s.index(end_s)
            loads_s[self._place[job]] = end_s

    def _iterate_local_search(self) -> None:
        """Iterated local search: exchange random pairs of jobs in the best packing, then repair it by local search."""
        draws = _draws(len(self._alone_s))
        for _ in range(self._shaken // len(self._alone_s)):
            if self.least_s <= NEAR_ENOUGH * self._bound_s:
                return
            self._place = list(self.best)
            for one, two in itertools.islice(zip(draws, draws, strict=True), SHAKEN):
                here, there = self._place[one], self._place[two]
                if math.isfinite(self._time_s(one, there)) and math.isfinite(self._time_s(two, here)):
                    self._place[one], self._place[two] = there, here
            self._search_locally()

    def _add_up_loads(self) -> None:
        self._loads_s = list(self._start_s)
        for job, gang in enumerate(self._place):
            self._loads_s[gang] += self._time_s(job, gang)

    def _time_s(self, job: int, gang: int) -> float:
        return self._alone_s[job][self._kind[gang]]

    def _best_change(self, job: int, best: Change) -> Change:
        """Return the move or exchange of a job after which both gangs end earliest, or `best` if none is better."""
        here = self._place[job]
        rest_s = self._loads_s[here] - self._time_s(job, here)
        for gang, load_s in enumerate(self._loads_s):
            end_s = max(rest_s, load_s + self._time_s(job, gang))
            if gang != here and end_s < best[0]:
                best = (end_s, (job,), (), gang)
        for other, gang in enumerate(self._place):
            if gang == here:
                continue
            there_s = self._loads_s[gang] - self._time_s(other, gang) + self._time_s(job, gang)
            end_s = max(rest_s + self._time_s(other, here), there_s)
            if end_s < best[0]:
                best = (end_s, (job,), (other,), gang)
        return best

    def _first_exchange(self, last: int, best: Change) -> Change:
        """Return the best exchange of up to two jobs for up to two, with the first gang for which one beats `best`."""
        members: list[list[int]] = [[] for _ in self._kind]
        for job, gang in enumerate(self._place):
            members[gang].append(job)
        if len(members[last]) > FEW_ON_A_GANG:
            return best
        for gang, its in enumerate(members):
            if gang == last or len(its) > FEW_ON_A_GANG:
                continue
            for place, job in enumerate(members[last]):
                best = self._best_exchange((job,), its, gang, best)
                for second in members[last][place + 1 :]:
                    best = self._best_exchange((job, second), its, gang, best)
            if best[1]:
                break
        return best

    def _best_exchange(self, jobs: tuple[int, ...], its: Sequence[int], there: int, best: Change) -> Change:
        """As `_best_change`, for given jobs of one gang against none, one or two jobs of another."""
        here = self._place[jobs[0]]
        rest_s, there_s = self._loads_s[here], self._loads_s[there]
        for job in jobs:
            rest_s, there_s = rest_s - self._time_s(job, here), there_s + self._time_s(job, there)
        if rest_s >= best[0]:
            return best
        if there_s < best[0]:
            best = (max(rest_s, there_s), jobs, (), there)
        for place, other in enumerate(its):
            with_s, without_s = rest_s + self._time_s(other, here), there_s - self._time_s(other, there)
            if with_s >= best[0]:
                continue
            if without_s < best[0]:
                best = (max(with_s, without_s), jobs, (other,), there)
            for third in its[place + 1 :]:
                end_s = max(with_s + self._time_s(third, here), without_s - self._time_s(third, there))
                if end_s < best[0]:
                    best = (end_s, jobs, (other, third), there)
        return best

    def _change(self, jobs: tuple[int, ...], others: tuple[int, ...], there: int) -> None:
        here = self._place[jobs[0]]
        for movers, start, goal in ((jobs, here, there), (others, there, here)):
            for job in movers:
                self._loads_s[start] -= self._time_s(job, start)
                self._loads_s[goal] += self._time_s(job, goal)
                self._place[job] = goal

    def _branch(self, job: int, latest_s: float, used: float) -> None:
        """Branch and bound: try each gang for a job, with equal gangs once, then go on with the next job."""
        if latest_s >= self.least_s or used + self._work_after[job] >= self._room * self.least_s:
            return
        if job == len(self._alone_s):
            self._keep(latest_s)
            return
        loads_s, times_s = self._loads_s, self._alone_s[job]
        tried: set[tuple[int, float]] = set()
        for gang, kind in enumerate(self._kind):
            before_s = loads_s[gang]
            if not before_s + times_s[kind] < self.least_s or (kind, before_s) in tried:
                continue
            tried.add((kind, before_s))
            self._steps += 1
            if self._steps > MAX_STEPS:
                return
            loads_s[gang] = before_s + times_s[kind]
            self._place[job] = gang
            self._branch(job + 1, max(latest_s, loads_s[gang]), used + self._weights[kind] * times_s[kind])
            loads_s[gang] = before_s


def _draws(jobs: int) -> Iterator[int]:
    """Yield pseudo-random jobs, the same on every run: the upper bits of Knuth's MMIX generator (1999)."""
    state = 1
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield (state >> 33) % jobs


# ---- the compiled functions -----------------------------------------------------------------------------------------


def times_s(alone_s, counts, in_pairs, closely, out):
    """As `_packing.times_s`."""
    rows, most = alone_s.tolist(), len(alone_s)
    # More gangs of a kind than jobs change nothing.
    divisions = [tuple(min(most, count) for count in row) for row in counts.tolist()]
    found_s = {row: _packer(row, rows, in_pairs, closely).pack()[0] for row in dict.fromkeys(divisions)}
    out[:] = [found_s[row] for row in divisions]


def left_out_s(alone_s, counts, end_s, most_s, out):
    """As `_packing.left_out_s`."""
    rows, most = alone_s.tolist(), len(alone_s)
    for place, row in enumerate(counts.tolist()):
        found = _packer([min(most, count) for count in row], rows).left_out(end_s, min([most_s, *out[:place]]))
        out[place] = found


def gangs_of_jobs(alone_s, kind, load_s, out):
    """As `_packing.gangs_of_jobs`."""
    end_s, place = PlainPacker(np.asarray(alone_s).tolist(), kind.tolist(), load_s.tolist()).pack()
    out[:] = place
    return end_s


def _packer(counts, alone_s, in_pairs=True, closely=False):
    kind = [place for place, count in enumerate(counts) for _ in range(count)]
    return PlainPacker(alone_s, kind, [0.0] * len(kind), in_pairs=in_pairs, closely=closely, shaken=0)
