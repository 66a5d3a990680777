"""Minimum bin slack in plain Python, the reference that `am/agent/core/least_slack.c` is tested against, bit by bit.

Gangs are filled one after the other up to an end, the slowest first. Each gets those of the remaining jobs that leave
the least of its time unused (Gupta and Ho, "A new heuristic algorithm for the one-dimensional bin-packing problem",
1999). Three changes to the published heuristic:

- A gang counts as full once it leaves no more than a fraction of the average slack. So the search ends early, and short
  jobs are kept for later gangs.
- A second of a long job may count for more than a second of a short one.
- A job that was left over counts for more in the next filling, by its price.
"""

from __future__ import annotations

from collections.abc import Sequence

MAX_FILLING = 100
"""The search for one gang tries at most this many jobs."""

PATIENCE, LEAN = (1.0, 0.25, 0.1), (0.0, 0.5, 0.1)
"""The parameter sets: a gang is full at this fraction of the average slack (PATIENCE), and a second of a job that fills
a whole gang counts for this much more than a second of a very short one (LEAN)."""


class Filler:
    """Fills gangs with jobs.

    Args:
        alone_s: J x K seconds of each job on a gang of each kind.
        kind: The kind of each gang.
        start_s: When each gang is free, in seconds from now.
        weights: By kind, the work that a gang does in a second.
        work_after: J + 1 sums: the work of each job and all later ones, then 0.
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
        """Return the gang of each job, -1 if it is left over.

        Args:
            end_s: The end up to which gangs are filled.
            way: The number of the parameter set in PATIENCE and LEAN.
            prices: By job, a factor on the value of its seconds.
        """
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
    """The best choice of jobs for one gang, found by depth-first search over jobs from the longest to the shortest.

    Args:
        times_s: The seconds of each job.
        values: The value of a second of each job.
        capacity_s: The time of the gang.
        enough_s: The used time at which the search ends.
    """

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
        """Try the jobs from `at` on in addition to the chosen ones, while that may beat the best choice."""
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
