"""The proof that a finish time is too early: hand-made cases, correctness, and tightness."""

import itertools
import math
from random import Random

import highspy
import numpy as np
import pytest

from themis_lab.bench.valuation_columns import is_too_soon


def least_end_s(times_s, sizes, gpus):
    """Return the earliest end over all divisions of the GPUs and all assignments."""
    best = math.inf
    kinds = range(len(sizes))
    for gangs in itertools.chain.from_iterable(
        itertools.combinations_with_replacement(kinds, many) for many in range(1, len(times_s) + 1)
    ):
        if sum(sizes[kind] for kind in gangs) > gpus:
            continue
        for choice in itertools.product(range(len(gangs)), repeat=len(times_s)):
            loads = [0.0] * len(gangs)
            for job, gang in enumerate(choice):
                loads[gang] += times_s[job][gangs[gang]]
            best = min(best, max(loads))
    return best


def test_proof_counts_whole_jobs():
    times_s = np.array([[4.0], [4.0], [4.0]])
    limits = [([1.0], 2.0)]
    assert is_too_soon(times_s, limits, 7.9)
    assert not is_too_soon(times_s, limits, 8.0)


def test_proof_counts_whole_gangs():
    times_s = np.array([[4.0]] * 5)
    limits = [([2.0], 5.0)]
    assert is_too_soon(times_s, limits, 11.9)
    assert not is_too_soon(times_s, limits, 12.1)


def test_proof_counts_whole_gangs_and_jobs_together():
    """Three gangs of two or one of four: with parts of gangs the jobs of four would end at 8."""
    times_s = np.array([[math.inf, 4.0]] * 3 + [[4.0, 4.0]] * 3)
    limits = [([2.0, 4.0], 6.0)]
    assert is_too_soon(times_s, limits, 11.9)
    assert not is_too_soon(times_s, limits, 12.0)


class BrokenHighs(highspy.Highs):
    """Fails at every run, and leaves zeros instead of bounds."""

    def run(self):
        return highspy.HighsStatus.kError


def test_solver_error_proves_nothing(monkeypatch):
    times_s = np.array([[4.0], [4.0], [4.0]])
    assert is_too_soon(times_s, [([1.0], 2.0)], 7.9)
    monkeypatch.setattr(highspy, "Highs", BrokenHighs)
    assert not is_too_soon(times_s, [([1.0], 2.0)], 7.9)


def test_job_longer_than_end_is_proof():
    assert is_too_soon(np.array([[4.0, 2.0]]), [([1.0, 2.0], 2.0)], 1.9)


@pytest.mark.parametrize("seed", range(12))
def test_proof_never_contradicts_packing(seed):
    rng = Random(seed)
    sizes = (1, 2)
    works = [rng.uniform(1, 9) for _ in range(rng.randint(2, 4))]
    times_s = np.array([[work, work / rng.choice((1.4, 2.0))] for work in works])
    gpus = rng.randint(2, 4)
    least = least_end_s(times_s.tolist(), sizes, gpus)
    limits = [([float(size) for size in sizes], float(gpus))]
    assert not is_too_soon(times_s, limits, least * 1.001)
    # Of so few jobs hardly any could be shared in parts by whole gangs.
    assert is_too_soon(times_s, limits, least * 0.9)
