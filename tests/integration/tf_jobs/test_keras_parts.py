"""A Keras script with parts in order is resized: no bit of it differs from the same script left alone."""

import importlib.util
import sys

import numpy as np
import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("real training needs the extra 'tf'", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPT = """\
import sys
from tf_jobs.keras_elastic import join

job = join()
import keras
from sklearn.datasets import load_digits

keras.utils.set_random_seed(1)
x, y = load_digits(return_X_y=True)
x = x.reshape(-1, 8, 8, 1) / 16
layers = [
    keras.Input((8, 8, 1)),
    keras.layers.Conv2D(16, 3, activation="relu"),
    keras.layers.MaxPooling2D(),
    keras.layers.Flatten(),
    keras.layers.Dense(10),
]
model = keras.Sequential(layers)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
job.fit(model, x, y, batch_size=50, iterations=int(sys.argv[2]), log_every=1, ordered_parts=4)
"""


def state(folder):
    """The arrays of the newest checkpoint."""
    newest = max((folder / "checkpoints" / "j").glob("0*"))
    with np.load(newest / "state.npz", allow_pickle=False) as arrays:
        return newest.name, {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize(("starts", "iterations"), [(4, 20), pytest.param(11, 8, marks=pytest.mark.nightly)])
def test_resizes_of_a_script_change_no_bit(recorder, tmp_path, monkeypatch, starts, iterations):
    monkeypatch.setattr(recorder, "MIN_ITERATIONS", iterations)
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "train.py")]
    resized = recorder.play(recorder.Gang(tmp_path / "resized", command), recorder.TASKS[:starts], ())
    assert [point.iteration for point in resized] == list(range(1, len(resized) + 1)), "an iteration lost or repeated"
    alone = recorder.alone(recorder.Gang(tmp_path / "alone", command), len(resized), ())
    assert [point.loss for point in resized] == [point.loss for point in alone]
    assert state(tmp_path / "resized") == state(tmp_path / "alone"), "weights and optimizer's state"
    assert alone[-1].loss < 0.9 * alone[0].loss, "a curve to compare"
