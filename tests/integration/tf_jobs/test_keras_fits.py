"""A Keras script that fits twice, stopped in each fit and resized: every fit goes on where it was."""

import importlib.util
import re
import signal
import sys

import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("real training needs the extra 'tf'", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

SCRIPT = """\
import time
from tf_jobs.keras_elastic import join

job = join()
import keras
import numpy as np

x = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
y = x.sum(1)
slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_: time.sleep(0.05))
for fold in range(2):
    keras.utils.set_random_seed(fold)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    held = np.arange(120) % 2 == fold
    history = job.fit(model, x[~held], y[~held], 6, 8, validation_data=(x[held], y[held]), callbacks=slow, log_every=1)
    if job.chief:
        print("fold", fold, len(history.history["loss"]), f"{history.history['val_loss'][-1]:.4f}", flush=True)
"""
ITERATIONS = 2 * 80


def folds(log):
    return re.findall(r"^fold (\d) (\d+) (\S+)$", log, re.MULTILINE)


def test_folds_are_stopped_and_resized_and_end_as_undisturbed_ones(recorder, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "train.py")]
    gang, seen = recorder.Gang(tmp_path / "resized", command), {}
    # The first start is stopped in the first fold, the second, which ends that one, in the second.
    for tasks, until in ((1, 20), (2, ITERATIONS // 2), (1, 0)):
        running = gang.start(tasks=tasks)
        if until:
            gang.until_iterations(until)
            running[-1].send_signal(signal.SIGTERM)
        assert gang.finish() == [75 if until else 0] * tasks, gang.log()
        assert not seen.keys() & gang.losses().keys(), "an iteration repeated"
        seen |= gang.losses()
    resized = folds(gang.log())
    assert sorted(seen) == list(range(1, ITERATIONS + 1))
    alone = recorder.Gang(tmp_path / "alone", command)
    alone.start()
    assert alone.finish() == [0], alone.log()
    assert [each[:2] for each in resized] == [("0", "8"), ("1", "8")]
    for one, two in zip(resized, folds(alone.log()), strict=True):
        assert float(one[2]) == pytest.approx(float(two[2]), rel=1e-2)
    assert [seen[step] for step in sorted(seen)] == pytest.approx(
        [loss for _, loss in sorted(alone.losses().items())], rel=1e-3
    )
