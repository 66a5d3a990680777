"""Claims of the AlloX paper that are false, each with a small counterexample (docs/explanation/allox.md)."""

import numpy as np
import pytest
from scipy.optimize import linprog


def fluid(speedups, cpus=1, gpus=1):
    """Lemma 3.4's setting: divisible jobs, one speedup per user, alpha = 0, so that all progress is equal and largest.

    Returns the common progress, the shares (users x [of all CPUs, of all GPUs]), and the progress that a user would
    have with all CPUs and with all GPUs.
    """
    users = len(speedups)
    # Progress of a user that holds all CPUs or all GPUs, as `progress.value_of` counts it.
    rate = np.array([(cpus / gpus / b, 1.0) if b >= 1 else (1.0, gpus * b / cpus) for b in speedups])
    rows = np.zeros((users, 2 * users + 1))
    for user in range(users):
        rows[user, [2 * user, 2 * user + 1]] = rate[user]
    rows[:, -1] = -1.0
    totals = np.zeros((2, 2 * users + 1))
    totals[0, 0:-1:2] = totals[1, 1:-1:2] = 1.0
    cost = np.zeros(2 * users + 1)
    cost[-1] = -1.0
    found = linprog(cost, A_ub=totals, b_ub=[1, 1], A_eq=rows, b_eq=np.zeros(users), bounds=[(0, None)] * len(cost))
    return found.x[-1], found.x[:-1].reshape(users, 2), rate


def shortfalls(speedups, cpus=1, gpus=1):
    """By how much each user's progress is below that of an equal share of everything, and below another's bundle."""
    common, shares, rate = fluid(speedups, cpus, gpus)
    equal = rate.sum(axis=1) / len(speedups)
    others = np.array([[rate[i] @ shares[j] for j in range(len(speedups))] for i in range(len(speedups))])
    return equal - common, others.max(axis=1) - common


def test_lemma_3_4_three_users_on_one_cpu_and_one_gpu():
    common, _, _ = fluid([1.2, 9.0, 9.0])
    below_share, envy = shortfalls([1.2, 9.0, 9.0])
    assert common == pytest.approx(0.521, abs=5e-4)
    assert common + below_share[0] == pytest.approx(0.611, abs=5e-4)
    assert below_share[0] == pytest.approx(0.090, abs=1e-3)
    assert envy.max() == pytest.approx(0.27, abs=0.01)


def test_lemma_3_4_two_users_on_two_cpus_and_one_gpu():
    """The smallest cluster where it fails: a user of speedup 1.5 gets the GPU, but half of everything is worth more."""
    common, shares, _ = fluid([0.5, 1.5], cpus=2, gpus=1)
    below_share, envy = shortfalls([0.5, 1.5], cpus=2, gpus=1)
    assert shares.round(9).tolist() == [[1, 0], [0, 1]]
    assert common == pytest.approx(1.0)
    assert below_share[1] == pytest.approx(1 / 6)
    assert envy[1] == pytest.approx(1 / 3)


@pytest.mark.parametrize("speedups", [(0.5, 2.0), (1.2, 9.0), (0.1, 0.9), (1.0, 50.0)])
def test_lemma_3_4_holds_for_two_users_on_one_cpu_and_one_gpu(speedups):
    below_share, envy = shortfalls(speedups)
    assert max(*below_share, *envy) == pytest.approx(0.0, abs=1e-9)


def test_lemma_3_3_a_lie_pays():
    """Users A and B with speedups 2 and 4 on one CPU and one GPU. A claims 4 - epsilon, and gets more of the GPU."""
    _, honest, _ = fluid([2.0, 4.0])
    _, lying, _ = fluid([4.0 - 1e-6, 4.0])
    true_rate = np.array([1.0, 2.0])
    assert true_rate @ honest[0] == pytest.approx(1.5)
    assert true_rate @ lying[0] == pytest.approx(1.75, abs=1e-5)


@pytest.mark.parametrize("speedup", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("users", [2, 3, 5])
def test_lemma_3_4_holds_for_equal_speedups(speedup, users):
    below_share, envy = shortfalls([speedup] * users, cpus=3, gpus=2)
    assert max(*below_share, *envy) == pytest.approx(0.0, abs=1e-9)
