"""Checks that `test_tf_keras_callbacks.py` runs: what callbacks hear over starts and stops, and which are refused."""

import keras
import pytest

from tf_jobs.keras_callbacks import REFUSED, CalledBack, Length
from tf_jobs.learner import StepOutcome
from themis.errors import InputError


class Learner:
    """Losses are the iterations' numbers; held-out loss and accuracy are constant."""

    parameters = 7

    def step(self, iteration, *, stop):
        return StepOutcome(loss=float(iteration), stop=stop)

    def evaluate(self):
        return {"loss": 0.5, "accuracy": 0.75}


class Model:
    stop_training = False


class Heard(keras.callbacks.Callback):
    """Writes down what it is told."""

    def __init__(self):
        super().__init__()
        self.told = []

    def __getattribute__(self, name):
        if name.startswith("on_") and "batch" not in name:
            return lambda *arguments: self.told.append((name, *arguments))
        return super().__getattribute__(name)


def called_back(*callbacks, samples=4, batch_size=2, iterations=6, model=None, busy=lambda: None):
    length = Length(iterations=iterations, samples=samples, batch_size=batch_size)
    return CalledBack(Learner(), model or Model(), callbacks, length, busy)


def test_a_run_is_told_by_epochs():
    heard, busy = Heard(), []
    learner = called_back(heard, busy=lambda: busy.append(True))
    for iteration in range(1, 5):
        learner.step(iteration, stop=False)
    learner.ended()
    held_out = {"val_loss": 0.5, "val_accuracy": 0.75}
    assert heard.told == [
        ("on_train_begin", {}),
        ("on_epoch_begin", 0, {}),
        ("on_epoch_end", 0, {"loss": 1.5, **held_out}),
        ("on_epoch_begin", 1, {}),
        ("on_epoch_end", 1, {"loss": 3.5, **held_out}),
        ("on_train_end", {"loss": 3.5, **held_out}),
    ]
    assert busy == [True, True]
    assert heard.params == {"epochs": 3, "steps": 2, "verbose": 0}


def test_a_start_that_finds_everything_done_tells_nothing():
    heard = Heard()
    called_back(heard).ended()
    assert heard.told == []


def test_an_epoch_that_a_stop_has_cut_begins_once_more_where_it_was():
    heard = Heard()
    learner = called_back(heard)
    learner.step(4, stop=False)
    assert [name for name, *_ in heard.told] == ["on_train_begin", "on_epoch_begin", "on_epoch_end"]
    assert heard.told[1:] == [("on_epoch_begin", 1, {}), ("on_epoch_end", 1, heard.told[2][2])]
    assert heard.told[2][2]["loss"] == 4.0


def test_batches_that_lie_in_two_passes_end_the_first_of_them():
    length = Length(iterations=5, samples=100, batch_size=60)
    assert [length.place_of(iteration) for iteration in range(1, 6)] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert [length.ends_epoch(iteration) for iteration in range(1, 6)] == [False, True, False, True, True]
    assert (length.epochs, length.steps) == (3, 2)
    whole = Length(iterations=8, samples=8, batch_size=4)
    assert [whole.ends_epoch(iteration) for iteration in range(1, 5)] == [False, True, False, True]


def test_batches_are_told_with_their_loss():
    told = []
    learner = called_back(keras.callbacks.LambdaCallback(on_train_batch_end=lambda *each: told.append(each)))
    learner.step(3, stop=False)
    learner.step(4, stop=False)
    assert told == [(0, {"loss": 3.0}), (1, {"loss": 4.0})]


@pytest.mark.parametrize("name", REFUSED)
def test_what_saves_or_ends_a_run_is_refused(name, tmp_path):
    settings = {"BackupAndRestore": [str(tmp_path)]}
    with pytest.raises(InputError, match=name):
        called_back(getattr(keras.callbacks, name)(*settings.get(name, [])))


def test_what_is_no_callback_is_refused():
    with pytest.raises(InputError, match="not a callback of Keras: 'function'"):
        called_back(lambda: None)


def test_a_callback_that_wants_to_end_the_run_is_told_off():
    model = Model()

    class Ends(keras.callbacks.Callback):
        def on_epoch_end(self, _epoch, _logs=None):
            self.model.stop_training = True

    learner = called_back(Ends(), model=model)
    learner.step(1, stop=False)
    with pytest.raises(InputError, match="stop_training"):
        learner.step(2, stop=False)
