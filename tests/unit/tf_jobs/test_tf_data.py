"""The digits and the order in which they are used."""

import importlib.util

import numpy as np
import pytest

from tf_jobs.assembly import build_model
from tf_jobs.catalog import PROGRAMS, program
from tf_jobs.data import batch_indices, load_digits
from tf_jobs.flags import parse
from tf_jobs.text_data import CONTEXT, alphabet, load_text

if importlib.util.find_spec("sklearn") is None:
    pytest.skip("the digits come with scikit-learn, in the extra 'tf'", allow_module_level=True)


def test_the_split_is_a_partition_and_always_the_same():
    first, second = load_digits(), load_digits()
    parts = (first.train, first.validation, first.test)
    assert [len(p.labels) for p in parts] == [1257, 270, 270]
    assert np.array_equal(first.train.inputs, second.train.inputs)
    pixels = {image.tobytes() + bytes([label]) for p in parts for image, label in zip(p.inputs, p.labels, strict=True)}
    assert len(pixels) > 1790, "parts overlap"
    assert first.train.inputs.shape == (1257, 8, 8)
    assert first.train.inputs.dtype == np.float32
    assert 0.0 <= first.train.inputs.min() < first.train.inputs.max() <= 1.0
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


def test_the_text_is_split_without_overlap_and_each_answer_is_the_next_character():
    text = load_text()
    assert [len(part.labels) for part in (text.train, text.validation, text.test)] == [1629, 198, 198]
    for part in (text.train, text.validation, text.test):
        assert part.inputs.shape == part.labels.shape == (len(part.labels), CONTEXT)
        assert np.array_equal(part.inputs[:, 1:], part.labels[:, :-1])
    shown = "".join(alphabet()[number] for number in text.train.inputs[0])
    assert shown == "Apache License Version 2.0, Janu"
    last = text.train.labels[-1].tobytes()
    assert last not in text.validation.inputs.tobytes()


@pytest.mark.parametrize("name", [known.name for known in PROGRAMS if known.kind == "real"])
def test_initial_parameters_fill_all_shapes_and_follow_the_seed(name):
    model = build_model(name, parse(program(name), ["--iterations", "1", "--hidden", "16"]))
    initial = model.initial(0)
    assert initial.shape == (sum(model.sizes),)
    assert initial.dtype == np.float32
    assert np.array_equal(initial, model.initial(0))
    assert not np.array_equal(initial, model.initial(1))
