"""Proofs that an end is too soon: by hand, and never against what can be done."""

import itertools
import math
from random import Random

import numpy as np
import pytest

from bench.valuation_columns import is_too_soon
from bench.valuation_whole import is_too_soon_for_whole_gangs

PROOFS = (is_too_soon, is_too_soon_for_whole_gangs)


def least_end_s(times_s, sizes, gpus):
    """The least end over every division of so many GPUs and every assignment."""
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


def test_three_jobs_on_two_gpus_when_jobs_are_whole():
    times_s = np.array([[4.0], [4.0], [4.0]])
    limits = [([1.0], 2.0)]
    assert is_too_soon(times_s, limits, 7.9)
    assert not is_too_soon(times_s, limits, 8.0)
    # Jobs that may be cut would end at 6.
    assert not is_too_soon_for_whole_gangs(times_s, limits, 6.1)


def test_three_pairs_of_jobs_on_five_gpus_when_gangs_are_whole():
    times_s = np.array([[4.0]] * 5)
    limits = [([2.0], 5.0)]
    assert is_too_soon_for_whole_gangs(times_s, limits, 9.9)
    assert not is_too_soon_for_whole_gangs(times_s, limits, 10.1)


def test_a_job_that_alone_takes_longer():
    assert all(proof(np.array([[4.0, 2.0]]), [([1.0, 2.0], 2.0)], 1.9) for proof in PROOFS)


@pytest.mark.parametrize("seed", range(12))
def test_never_against_what_can_be_done(seed):
    rng = Random(seed)
    sizes = (1, 2)
    works = [rng.uniform(1, 9) for _ in range(rng.randint(2, 4))]
    times_s = np.array([[work, work / rng.choice((1.4, 2.0))] for work in works])
    gpus = rng.randint(2, 4)
    least = least_end_s(times_s.tolist(), sizes, gpus)
    limits = [([float(size) for size in sizes], float(gpus))]
    for proof in PROOFS:
        assert not proof(times_s, limits, least * 1.001)
        assert proof(times_s, limits, 0.5 * sum(works) / 2.0 / gpus)
