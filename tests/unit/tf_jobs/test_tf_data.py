"""The digits and the order in which they are used."""

import importlib.util

import numpy as np
import pytest

from tf_jobs.catalog import program
from tf_jobs.data import batch_indices, load_digits
from tf_jobs.flags import parse
from tf_jobs.models import build_model

if importlib.util.find_spec("sklearn") is None:
    pytest.skip("the digits come with scikit-learn, in the extra 'tf'", allow_module_level=True)


def test_the_split_is_a_partition_and_always_the_same():
    first, second = load_digits(), load_digits()
    parts = (first.train, first.validation, first.test)
    assert [len(p.labels) for p in parts] == [1257, 270, 270]
    assert np.array_equal(first.train.images, second.train.images)
    pixels = {image.tobytes() + bytes([label]) for p in parts for image, label in zip(p.images, p.labels, strict=True)}
    assert len(pixels) > 1790, "parts overlap"
    assert first.train.images.shape == (1257, 8, 8)
    assert first.train.images.dtype == np.float32
    assert 0.0 <= first.train.images.min() < first.train.images.max() <= 1.0
    assert set(first.validation.labels) == set(range(10))


def test_each_pass_uses_every_sample_once():
    samples, batch = 10, 4
    stream = np.concatenate(
        [batch_indices(seed=1, iteration=i, batch_size=batch, samples=samples) for i in range(1, 6)]
    )
    assert sorted(stream[:samples]) == sorted(stream[samples:]) == list(range(samples))
    assert list(stream[:samples]) != list(stream[samples:]), "passes have orders of their own"


def test_batches_depend_on_the_seed_and_may_exceed_the_data():
    one = batch_indices(seed=1, iteration=3, batch_size=5, samples=100)
    assert not np.array_equal(one, batch_indices(seed=2, iteration=3, batch_size=5, samples=100))
    big = batch_indices(seed=1, iteration=1, batch_size=25, samples=10)
    assert sorted(np.bincount(big)) == [2] * 5 + [3] * 5


@pytest.mark.parametrize("name", ["digits_cnn", "digits_dense", "digits_lstm"])
def test_initial_parameters_fill_all_shapes_and_follow_the_seed(name):
    model = build_model(name, parse(program(name), ["--iterations", "1", "--hidden", "16"]))
    initial = model.initial(0)
    assert initial.shape == (sum(model.sizes),)
    assert initial.dtype == np.float32
    assert np.array_equal(initial, model.initial(0))
    assert not np.array_equal(initial, model.initial(1))
