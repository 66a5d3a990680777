"""Checks that `test_tf_keras_fits.py` runs: fits of a script one after another, over stops, and what `fit` refuses."""

import inspect
import json
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from am.checkpoints.folder import FolderStore
from tf_jobs import keras_elastic
from tf_jobs.context import read_context
from tf_jobs.keras_arguments import INSTEAD
from tf_jobs.keras_elastic import ElasticJob, JobStop
from tf_jobs.watchdog import Watchdog
from tf_jobs.workers import Alone, exchange

# Of Keras, with a newer NumPy than it was written for.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

X = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
Y = (X.sum(1) > 0).astype("int32")
STEPS = 9 + 6 + 4
"""Iterations of the script below: 3 epochs of 3, 2 of 3, and 4 by number."""


class Left(Exception):  # noqa: N818 - an end of the process
    """What ends the process elsewhere; the code is the argument."""


class StopAt(keras.callbacks.Callback):
    """Requests a stop during iteration number `after` of this start. The next iteration is the last."""

    def __init__(self, stop, after):
        super().__init__()
        self.notes = [stop, after]

    def on_train_batch_end(self, _batch, _logs=None):
        self.notes[1] -= 1
        if self.notes[1] == 0:
            self.notes[0].requested_by_peer()


def net(width=3):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(width, "tanh"), keras.layers.Dense(2)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


class Script:
    """Starts of one script that fits three times: a model, the same one again, and another."""

    def __init__(self, folder):
        self.folder, self.starts, self.steps = folder, 0, []
        self.store = FolderStore(folder / "ck")

    def job(self):
        self.starts += 1
        environment = {
            "THEMIS_JOB_ID": "j",
            "THEMIS_JOB_DIR": str(self.folder),
            "THEMIS_CHECKPOINT_URI": str(self.folder / "ck"),
            "THEMIS_INCARNATION": str(self.starts),
        }
        self.stop = JobStop()
        return ElasticJob(tf, read_context("keras", environment), Alone(), self.stop, Watchdog(60.0, "a test"))

    def start(self, stop_after=10**9):
        """Weights and histories after all fits, or the exit code."""
        job = self.job()
        keras.utils.set_random_seed(self.starts)
        often = {"checkpoint_every": 2, "log_every": 1, "callbacks": StopAt(self.stop, stop_after)}
        held_out = {"validation_data": (X[:8], Y[:8])}
        one, two, seen = net(), net(width=5), []
        if self.starts == 1:
            self.begun = [each.get_weights() for each in (one, two)]
        one.set_weights(self.begun[0])
        two.set_weights(self.begun[1])
        try:
            seen.append(job.fit(one, X, Y, 8, 3, **often, **held_out))
            one.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
            seen.append(job.fit(one, X, Y, batch_size=8, epochs=2, **often))
            seen.append(job.fit(two, X[:16], Y[:16], batch_size=8, iterations=4, **often, **held_out))
        except Left as left:
            return left.args[0]
        weights = np.concatenate([each.ravel() for model in (one, two) for each in model.get_weights()])
        return weights, [each.history for each in seen], [each.epoch for each in seen]

    def events(self):
        lines = [json.loads(line) for line in (self.folder / "history.jsonl").read_text().splitlines()]
        return [(e["incarnation"], e["event"], e.get("iteration", e.get("from_iteration"))) for e in lines]


@pytest.fixture(autouse=True)
def leaving(monkeypatch):
    def leave(code):
        raise Left(code)

    monkeypatch.setattr(keras_elastic, "_leave", leave)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The script, left alone."""
    script = Script(tmp_path_factory.mktemp("whole"))
    return script, script.start()


def test_every_fit_trains_and_the_iterations_of_the_job_go_on(whole, capfd):
    script, (_weights, reported, epochs) = whole
    assert [event for event in script.events() if event[1] in ("start", "end")] == [
        (1, "start", 0), (1, "end", 9), (1, "start", 9), (1, "end", 15), (1, "start", 15), (1, "end", STEPS),
    ]  # fmt: skip
    assert epochs == [[0, 1, 2], [0, 1], [0, 1]]
    assert [len(each["loss"]) for each in reported] == [3, 2, 2]
    assert [sorted(each) for each in reported] == [
        ["loss", "val_accuracy", "val_loss"],
        ["loss"],
        ["loss", "val_accuracy", "val_loss"],
    ]
    assert script.store.latest_iteration("j") == STEPS


@pytest.mark.parametrize("stops", [(1,), (5,), (9,), (10,), (3, 9, 2), (14,), (16,)])
def test_a_stopped_script_comes_to_the_same_weights_and_histories(whole, stops, tmp_path, capfd):
    script = Script(tmp_path)
    script.begun = whole[0].begun
    script.starts = 1  # The first start alone draws the weights.
    for after in stops:
        assert script.start(stop_after=after) == 75
    weights, reported, epochs = script.start()
    assert np.array_equal(weights, whole[1][0])
    assert reported == whole[1][1]
    assert epochs == whole[1][2]
    steps = [int(step) for step in re.findall(r"loss = \S+, step = (\d+)", capfd.readouterr().err)]
    assert steps == list(range(1, STEPS + 1)), "an iteration lost or repeated"


def test_a_script_that_is_done_trains_no_more(tmp_path, capfd):
    script = Script(tmp_path)
    first = script.start()
    capfd.readouterr()
    second = script.start()
    assert np.array_equal(first[0], second[0])
    assert first[1:] == second[1:]
    assert ", step = " not in capfd.readouterr().err


def test_a_stop_in_the_last_iteration_of_a_fit_is_heeded_once_it_has_ended(tmp_path, capfd):
    script = Script(tmp_path)
    job = script.job()
    with pytest.raises(Left, match="75"):
        job.fit(net(), X, Y, 8, 3, callbacks=StopAt(script.stop, 9))
    assert script.store.latest_iteration("j") == 9
    capfd.readouterr()
    assert len(script.job().fit(net(), X, Y, 8, 3).history["loss"]) == 3
    assert ", step = " not in capfd.readouterr().err


def test_a_stop_during_the_final_callbacks_is_obeyed(tmp_path):
    script = Script(tmp_path)
    job = script.job()
    asks = keras.callbacks.LambdaCallback(on_train_end=lambda _logs: script.stop.requested_by_peer())
    with pytest.raises(Left, match="75"):
        job.fit(net(), X, Y, 8, 3, callbacks=asks)
    assert script.store.latest_iteration("j") == 9


def test_a_stop_between_two_fits_begins_the_next_one_afresh(whole, tmp_path):
    script = Script(tmp_path)
    script.begun, script.starts = whole[0].begun, 1
    job, model = script.job(), net()
    model.set_weights(script.begun[0])
    job.fit(model, X, Y, 8, 3, validation_data=(X[:8], Y[:8]))
    assert [path.name for path in (tmp_path / "ck").iterdir()] == ["j"], "what an only fit leaves is as it was"
    assert "fit" not in script.store.latest("j").meta
    assert np.array_equal(script.start()[0], whole[1][0])


def test_a_checkpoint_written_before_there_were_histories_is_gone_on_from(tmp_path):
    script = Script(tmp_path)
    job = script.job()
    with pytest.raises(Left, match="75"):
        job.fit(net(), X, Y, 8, 3, callbacks=StopAt(script.stop, 4))
    newest = script.store.latest("j")
    script.store.fetch(newest, tmp_path)
    shutil.rmtree(tmp_path / "ck")
    script.store.save("j", newest.iteration, {"state.npz": tmp_path / "state.npz"}, newest.meta)
    (tmp_path / "scratch" / "0" / "callbacks.json").unlink()
    reported = script.job().fit(net(), X, Y, 8, 3)
    assert reported.epoch == [1, 2]
    assert script.store.latest_iteration("j") == 9


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"epochs": 4}, {}, "fit 1 of the script has another length than when the next one began: 12"),
        ({"epochs": 2}, {}, "fit 1 of the script has another length than when the next one began: 6"),
        ({"seed": 3}, {}, "has seed = 0"),
        ({}, {"seed": 3}, "has seed = 0"),
    ],
)
def test_changed_fits_are_refused_after_a_restart(first, second, message, tmp_path, capfd):
    def start(first, second):
        job = script.job()
        job.fit(net(), X, Y, **{"batch_size": 8, "epochs": 3} | first)
        job.fit(net(), X, Y, batch_size=8, epochs=2, **second)

    script = Script(tmp_path)
    start({}, {})
    with pytest.raises(Left, match="2"):
        start(first, second)
    assert message in capfd.readouterr().err


def test_another_model_in_a_later_fit_is_refused_after_a_restart(tmp_path, capfd):
    script = Script(tmp_path)
    job = script.job()
    job.fit(net(), X, Y, 8)
    job.fit(net(), X, Y, 8)
    job = script.job()
    job.fit(net(), X, Y, 8)
    with pytest.raises(Left, match="2"):
        job.fit(net(width=9), X, Y, 8)
    assert "has parameters = " in capfd.readouterr().err


DATASET = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)

DROPS = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)])
DROPS.compile("adam", "mse")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 0}, "batch_size is not a whole number of 1 or more: 0"),
        ({"batch_size": 30.5}, "batch_size is not a whole number of 1 or more: 30.5"),
        ({"epochs": None}, "epochs is not a whole number of 1 or more: 'None'"),
        ({"log_every": 0}, "log_every is not a whole number of 1 or more: 0"),
        ({"checkpoint_every": 0}, "checkpoint_every is not a whole number of 1 or more: 0"),
        ({"keep_checkpoints": 0}, "keep_checkpoints is not a whole number of 1 or more: 0"),
        ({"epochs": -1}, "epochs is not a whole number of 1 or more: -1"),
        ({"epochs": 0}, "epochs is not a whole number of 1 or more: 0"),
        ({"epochs": True}, "epochs is not a whole number of 1 or more: True"),
        ({"iterations": 0}, "iterations is not a whole number of 1 or more: 0"),
        ({"seed": -1}, "seed is not a whole number of 0 or more: -1"),
        ({"y": Y[:5]}, r"x and y of job.fit differ in their number of rows: {'x\[0\]': 24, 'y\[0\]': 5}"),
        ({"x": {"a": X, "b": X[:7]}}, "differ in their number of rows"),
        ({"x": X[:0], "y": Y[:0]}, "x of job.fit has no samples: 0"),
        ({"x": DATASET, "y": None}, "x of job.fit is not an array: "),
        ({"x": X.tolist()}, "x of job.fit is not an array: 'float'"),
        ({"y": None}, "y of job.fit"),
        ({"x": []}, r"x of job.fit holds no array: \[\]"),
        ({"validation_data": (X, Y, Y)}, "validation_data is not a pair: '3 values'"),
        ({"validation_data": DATASET}, "validation_data is not a pair: '_BatchDataset'"),
        ({"validation_data": (X, Y[:3])}, "x and y of validation_data differ"),
        ({"validation_split": 0.2}, "job.fit does not take: 'validation_split'; split the arrays"),
        ({"sample_weight": Y}, "does not take: 'sample_weight'"),
        ({"class_weight": {0: 1.0}}, "does not take: 'class_weight'"),
        ({"shuffle": False}, "does not take: 'shuffle'"),
        ({"steps_per_epoch": 0}, "does not take: 'steps_per_epoch'"),
        ({"initial_epoch": 3}, "does not take: 'initial_epoch'"),
        ({"batchsize": 8}, "unknown argument of job.fit: 'batchsize'; did you mean 'batch_size'?"),
        ({"model": X}, "the first argument of job.fit is no Keras model: 'ndarray'"),
        ({"model": keras.Sequential([keras.layers.Dense(1)])}, "the model is not compiled"),
        ({"ordered_parts": -1}, "ordered_parts is not a whole number of 0 or more: -1"),
        ({"ordered_parts": 9}, r"ordered_parts is out of range: 9; use 1 \(tasks\) to 8 \(batch_size\)"),
        ({"ordered_parts": 2, "model": DROPS}, "ordered_parts needs a model whose variables are all trained"),
        ({"callbacks": [print]}, "not a callback of Keras"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_one_line_and_exit_2(given, message, tmp_path, capfd):
    arguments = {"model": net(), "x": X, "y": Y, "batch_size": 8} | given
    with pytest.raises(Left, match="2"):
        Script(tmp_path).job().fit(**arguments)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("ERROR:themis:")
    assert re.search(message, line), line
    assert list(tmp_path.iterdir()) == [], "refused before anything is made"


def test_exchanges_between_tasks_are_traced_once_for_all_sizes():
    class Counted(Alone):
        traces = 0

        def total(self, tensor):
            self.traces += 1
            return super().total(tensor)

    tasks = Counted()
    for size in range(1, 7):
        values = np.arange(2.0 * size).reshape(2, size)
        assert np.array_equal(exchange(tf, tasks, values), values)
    assert tasks.traces == 1


def test_common_argument_types_are_accepted(tmp_path):
    reported = Script(tmp_path).job().fit(net(), X, Y, np.int64(8), 1, 0, callbacks=None)
    assert isinstance(reported, keras.callbacks.History)
    assert len(reported.history["loss"]) == 1


def test_the_defaults_of_keras_are_accepted(tmp_path):
    parameters = inspect.signature(keras.Model.fit).parameters
    defaults = {name: parameters[name].default for name in ("batch_size", *INSTEAD)}
    script = Script(tmp_path)
    script.job().fit(net(), X, Y, iterations=1, **defaults)
    assert script.store.latest("j").meta["batch_size"] == 32
    script.job().fit(net(), X, Y, iterations=1, validation_split=0, initial_epoch=np.int64(0))
