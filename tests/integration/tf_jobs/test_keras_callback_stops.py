"""A script with callbacks is stopped in the middle of a long evaluation: it saves at once, and goes on as it would."""

import importlib.util
import signal
import sys
import time

import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("real training needs the extra 'tf'", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

EVALUATION_S = 60.0
SCRIPT = """\
import sys
import time
from tf_jobs.keras_elastic import join

job = join()
import keras
import numpy as np
import tensorflow as tf


def dawdle(x):
    print("evaluates", flush=True)
    time.sleep(float(sys.argv[1]))
    return x


class Dawdles(keras.layers.Layer):
    def call(self, x, training=False):
        if training:
            return x
        slow = tf.numpy_function(dawdle, [x], tf.float32)
        slow.set_shape(x.shape)
        return slow


def logs(name):
    return lambda epoch, logs: print(name, epoch, sorted(logs), float(model.optimizer.learning_rate), flush=True)


x = np.arange(32, dtype=np.float32).reshape(16, 2) / 32
held_out = np.zeros((200, 2), np.float32), np.zeros((200, 1), np.float32)
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), Dawdles()])
model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=False)
halves = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
logged = keras.callbacks.LambdaCallback(on_epoch_begin=logs("begins"), on_epoch_end=logs("ends"))
callbacks = [halves, logged] if job.chief else [halves]
job.fit(model, x, x.sum(1), batch_size=2, epochs=3, validation_data=held_out, callbacks=callbacks, log_every=1)
print("done")
"""


def until_evaluating(gang):
    deadline_s = time.monotonic() + 120.0
    while gang.log().count("evaluates") < 2:
        assert time.monotonic() < deadline_s, gang.log()[-2000:]
        time.sleep(0.05)


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_stop_in_a_long_evaluation_saves_at_once_and_the_epoch_ends_with_the_next_start(recorder, tasks, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    gang = recorder.Gang(tmp_path / "gang", [sys.executable, str(tmp_path / "train.py")])
    running = gang.start(str(EVALUATION_S / 100), tasks=tasks)
    until_evaluating(gang)
    for task in running:
        task.send_signal(signal.SIGTERM)
    asked_s = time.monotonic()
    assert gang.finish() == [75] * tasks, gang.log()
    assert time.monotonic() - asked_s < EVALUATION_S / 3
    assert "INFO:themis:checkpoint iteration = 8," in gang.log()
    assert [line.split()[:2] for line in gang.log().splitlines() if line.startswith(("begins", "ends"))] == [
        ["begins", "0"]
    ]
    gang.start("0", tasks=1)
    assert gang.finish() == [0], gang.log()
    reported = [line for line in gang.log().splitlines() if line.startswith(("begins", "ends"))]
    assert [line.split()[:2] for line in reported] == [
        [name, str(epoch)] for name, epoch in (("ends", 0), ("begins", 1), ("ends", 1), ("begins", 2), ("ends", 2))
    ]
    assert [float(line.split()[-1]) for line in reported] == [0.25, 0.125, 0.125, 0.0625, 0.0625]
    assert all("'loss', 'val_loss'" in line for line in reported if line.startswith("ends"))
    assert gang.log().splitlines()[-1] == "done"
