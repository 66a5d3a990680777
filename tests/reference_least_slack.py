"""Gangs filled one after the other up to an end, each with those of the jobs left that leave least of its time over.

That is "minimum bin slack" (Gupta and Ho, "A new heuristic algorithm for the one-dimensional bin-packing problem",
1999) for gangs of unlike speed, the slowest first, with three changes. A gang is full enough once no more of its time
is left over than of the others' on average, so that the search ends early and short jobs are kept for later. Longer
jobs may count for more than their time. And jobs that were left over have a price: they count for more the next time.

The reference that `am/agent/core/least_slack.c` is tested against; results are bit-identical.
"""

from __future__ import annotations

from collections.abc import Sequence

MAX_FILLING = 100
"""Jobs that are tried in all while one gang is filled."""

PATIENCE, LEAN = (1.0, 0.25, 0.1), (0.0, 0.5, 0.1)
"""For each way of filling: a gang is full enough with such a part of the average slack; a second of a job that takes
all of the time of a gang counts by so much more than one of a short job."""


class Filler:
    """Fills gangs with jobs.

    Args:
        alone_s: J x K seconds of each job on a gang of each kind.
        kind: The kind of each gang.
        start_s: When each gang is free.
        weights: How much a second of a gang counts, by kind.
        work_after: Work of each job and all after it by these weights, and a 0.
    """

    def __init__(
        self,
        alone_s: Sequence[Sequence[float]],
        kind: Sequence[int],
        start_s: Sequence[float],
        weights: Sequence[float],
        work_after: Sequence[float],
    ) -> None:
        self._alone_s, self._kind, self._start_s = alone_s, kind, start_s
        self._weights, self._work_after = weights, work_after
        self._longest = [sorted(range(len(alone_s)), key=lambda job: -alone_s[job][k]) for k in range(len(alone_s[0]))]

    def fill_by(self, end_s: float, way: int, prices: Sequence[float]) -> list[int]:
        """The gang of each job, -1 for those left over; what a second of each job counts is times its price."""
        weight = room = 0.0
        for kind, start_s in zip(self._kind, self._start_s, strict=True):
            weight += self._weights[kind]
            room += self._weights[kind] * (end_s - start_s)
        place, left, work = [-1] * len(self._alone_s), len(self._alone_s), self._work_after[0]
        for gang, kind in enumerate(self._kind):
            if not left:
                break
            capacity_s = end_s - self._start_s[gang]
            slack_s = max(0.0, (room - work) / weight) if weight > 0.0 else 0.0
            weight -= self._weights[kind]
            room -= self._weights[kind] * capacity_s
            if capacity_s <= 0.0:
                continue
            left_over = (job for job in self._longest[kind] if place[job] < 0)
            jobs = [job for job in left_over if self._alone_s[job][kind] <= capacity_s]
            times_s = [self._alone_s[job][kind] for job in jobs]
            values = [
                prices[job] * (1.0 + LEAN[way] * (time_s / capacity_s))
                for job, time_s in zip(jobs, times_s, strict=True)
            ]
            for number in _Choice(times_s, values, capacity_s, capacity_s - PATIENCE[way] * slack_s).best:
                place[jobs[number]] = gang
                work -= self._work_after[jobs[number]] - self._work_after[jobs[number] + 1]
                left -= 1
        return place


class _Choice:
    """The best choice found of candidates, from the longest to the shortest, for a gang with so much time."""

    def __init__(self, times_s: list[float], values: list[float], capacity_s: float, enough_s: float) -> None:
        self._times_s, self._values = times_s, values
        self._capacity_s, self._enough_s = capacity_s, enough_s
        self._after_s, self._most = [0.0], [0.0]
        for time_s, value in zip(reversed(times_s), reversed(values), strict=True):
            self._after_s.append(self._after_s[-1] + time_s)
            self._most.append(max(self._most[-1], value))
        self._after_s.reverse()
        self._most.reverse()
        self._steps, self._chosen = 0, list[int]()
        self._best_value = self._best_s = 0.0
        self.best: list[int] = []
        self._choose(0, 0.0, 0.0)

    def _choose(self, at: int, used_s: float, value: float) -> None:
        """Try the candidates from `at` on beside those chosen, as long as that may be worth more than the best."""
        if value > self._best_value:
            self._best_value, self._best_s, self.best = value, used_s, list(self._chosen)
        for number in range(at, len(self._times_s)):
            if self._best_s >= self._enough_s:
                return
            rest_s = min(self._capacity_s - used_s, self._after_s[number])
            if value + rest_s * self._most[number] <= self._best_value:
                return
            with_s = used_s + self._times_s[number]
            if with_s > self._capacity_s:
                continue
            self._steps += 1
            if self._steps > MAX_FILLING:
                return
            self._chosen.append(number)
            self._choose(number + 1, with_s, value + self._times_s[number] * self._values[number])
            self._chosen.pop()
