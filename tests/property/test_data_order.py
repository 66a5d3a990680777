"""No sample is lost or repeated within a pass over the data, however often the job is resized or goes back."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tf_jobs.data import batch_indices, task_rows

STARTS = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 30)), min_size=1, max_size=12)
"""Tasks of each start of the job, and the iterations that it does before it is stopped."""


def used(seed, batch_size, samples, starts):
    """The samples in the order of the iterations, as the tasks of each start take them from the data."""
    done, taken = 0, []
    for tasks, iterations in starts:
        for iteration in range(done + 1, done + iterations + 1):
            batch = batch_indices(seed=seed, iteration=iteration, batch_size=batch_size, samples=samples)
            rows = (task_rows(batch_size=batch_size, task_index=index, tasks=tasks) for index in range(tasks))
            taken += [batch[own] for own in rows]
        done += iterations
    return np.concatenate(taken) if taken else np.empty(0, dtype=np.int64)


@given(seed=st.integers(0, 2**31 - 1), batch_size=st.integers(8, 70), samples=st.integers(1, 200), starts=STARTS)
def test_any_resizes_use_each_sample_once_a_pass(seed, batch_size, samples, starts):
    stream = used(seed, batch_size, samples, starts)
    assert len(stream) == batch_size * sum(iterations for _, iterations in starts)
    whole = len(stream) // samples
    for number in range(whole):
        assert sorted(stream[number * samples : (number + 1) * samples]) == list(range(samples))
    rest = stream[whole * samples :]
    assert len(set(rest)) == len(rest)


@given(seed=st.integers(0, 2**31 - 1), samples=st.integers(1, 200), starts=STARTS)
def test_the_order_does_not_depend_on_the_resizes(seed, samples, starts):
    total = sum(iterations for _, iterations in starts)
    assert np.array_equal(used(seed, 16, samples, starts), used(seed, 16, samples, [(1, total)]))


@given(batch_size=st.integers(8, 1000), tasks=st.integers(1, 8))
def test_tasks_share_a_batch_evenly(batch_size, tasks):
    parts = [task_rows(batch_size=batch_size, task_index=index, tasks=tasks) for index in range(tasks)]
    sizes = [part.stop - part.start for part in parts]
    assert sum(sizes) == batch_size
    assert max(sizes) - min(sizes) <= 1
    assert all(one.stop == two.start for one, two in pairwise(parts))
