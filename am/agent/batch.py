"""T(G) of many divisions at once: `finish_time` with arrays, the same numbers to the last bit.

A division is a row of counts over a list of gangs. Jobs are dealt out one after the other to all divisions together,
which is what makes a bid of hundreds of rows for a hundred jobs take milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.finish_time import gang_order, job_time_s, later_job, nearest_gang, split_evenly
from am.agent.views import AppView, GangAt, JobView, Surroundings
from themis.apps import JobShape
from themis.cluster import Level

Counts = NDArray[np.int64]
Seconds = NDArray[np.float64]

_CHUNK = 256
"""Divisions that are timed together: enough to spread the cost of a call, few enough to stay in the cache."""


def finish_times_s(app: AppView, gangs: Sequence[GangAt], counts: Counts, around: Surroundings) -> Seconds:
    """`finish_time_s` of every division, in seconds.

    Args:
        app: The app.
        gangs: G gangs, each one once.
        counts: D x G, how many of each gang a division has.
        around: The cluster.

    Returns:
        D times, infinite where a division never ends.
    """
    now_s = phase_times_s(app.jobs, gangs, counts)
    if not app.later_phases or not len(now_s):
        return now_s
    gpus = counts @ np.array([gang.gpus for gang in gangs], dtype=np.int64)
    spread = np.array([gang.level if gang.gpus > 1 else Level.SLOT for gang in gangs], dtype=np.int64)
    at_least = np.where(counts > 0, spread, int(Level.SLOT)).max(axis=1, initial=int(Level.SLOT))
    keys, place = np.unique(gpus * len(Level) + at_least, return_inverse=True)
    later_s = _later_times_s(app, keys // len(Level), keys % len(Level), around)
    return now_s + later_s[place]


def phase_times_s(jobs: Sequence[JobView], gangs: Sequence[GangAt], counts: Counts) -> Seconds:
    """`phase_time_s` of every division, in seconds; arguments as for `finish_times_s`."""
    if not jobs:
        return np.zeros(len(counts))
    order = sorted(range(len(gangs)), key=lambda place: gang_order(gangs[place]))
    ordered = counts[:, order]
    times_s = _job_times_s(jobs, [gangs[place] for place in order])
    total = ordered.sum(axis=1)
    latest_s = np.full(len(counts), np.inf)
    for rows in _chunks(total):
        latest_s[rows] = _deal(times_s, ordered[rows], int(total[rows].max()))
    return latest_s


def _job_times_s(jobs: Sequence[JobView], gangs: Sequence[GangAt]) -> Seconds:
    """Seconds of each job on each gang, longest job first; one more column of infinity stands for no gang."""
    times_s = np.full((len(jobs), len(gangs) + 1), np.inf)
    alike: dict[tuple[object, ...], Seconds] = {}
    for place, job in enumerate(sorted(jobs, key=lambda job: (-job.serial_work_s, job.job_id))):
        key = (job.serial_work_s, job.shape, job.slowdown)
        if key not in alike:
            alike[key] = np.array([job_time_s(job, gang) for gang in gangs])
        times_s[place, :-1] = alike[key]
    return times_s


def _chunks(total: Counts) -> Iterator[NDArray[np.intp]]:
    """Divisions of about as many gangs each, so that little room is left empty; those without a gang are left out."""
    ordered = np.argsort(total, kind="stable")
    ordered = ordered[total[ordered] > 0]
    for first in range(0, len(ordered), _CHUNK):
        yield ordered[first : first + _CHUNK]


def _deal(times_s: Seconds, counts: Counts, most: int) -> Seconds:
    """LPT for each row of counts: when the last job ends. Like gangs stand side by side, best ties first."""
    rows, kinds = counts.shape
    total = counts.sum(axis=1)
    gang_of = np.full((rows, most), kinds, dtype=np.intp)
    gang_of[np.arange(most) < total[:, None]] = np.repeat(np.tile(np.arange(kinds), rows), counts.ravel())
    loads_s = np.zeros((rows, most))
    latest_s = np.zeros(rows)
    every = np.arange(rows)
    alone_s, before = np.empty_like(loads_s), None
    for job_s in times_s:
        if before is None or not np.array_equal(job_s, before):
            alone_s, before = job_s[gang_of], job_s
        ends_s = loads_s + alone_s
        best = ends_s.argmin(axis=1)
        end_s = ends_s[every, best]
        loads_s[every, best] = end_s
        np.maximum(latest_s, end_s, out=latest_s)
    return latest_s


def _later_times_s(app: AppView, gpus: Counts, at_least: Counts, around: Surroundings) -> Seconds:
    """`later_phases_time_s` for each pair of GPUs and level."""
    total_s = np.zeros(len(gpus))
    shape = app.median_job.shape
    pairs = [(count, Level(level)) for count, level in zip(gpus.tolist(), at_least.tolist(), strict=True)]
    for phase in app.later_phases:
        splits = [_even_counts(count, phase.jobs, shape, around, level) for count, level in pairs]
        place = {gang: number for number, gang in enumerate({gang: None for split in splits for gang in split})}
        counts = np.zeros((len(splits), len(place)), dtype=np.int64)
        for row, split in enumerate(splits):
            for gang, count in split.items():
                counts[row, place[gang]] = count
        total_s = total_s + phase_times_s([later_job(app, phase)] * phase.jobs, tuple(place), counts)
    return total_s


def _even_counts(gpus: int, jobs: int, shape: JobShape, around: Surroundings, at_least: Level) -> dict[GangAt, int]:
    sizes = Counter(split_evenly(gpus, jobs, shape))
    return {nearest_gang(size, around, at_least): count for size, count in sizes.items()}
