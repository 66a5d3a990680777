"""Checks that `test_tf_keras_callbacks.py` runs: what callbacks hear over starts and stops, and which are refused."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from tf_jobs.context import read_context
from tf_jobs.flags import Values
from tf_jobs.keras_callbacks import CALLBACKS_NAME, REFUSED, CalledBack, Length
from tf_jobs.learner import StepOutcome
from tf_jobs.workers import Alone, PeerLostError
from themis.errors import InputError


class Learner:
    """Losses are the iterations' numbers; held-out loss and accuracy are constant. The model's rate is its state."""

    parameters = 7

    def __init__(self, model, peer_stops=False):
        self.model, self.peer_stops, self.batches = model, peer_stops, 0

    def step(self, iteration, *, stop):
        return StepOutcome(loss=float(iteration), stop=stop)

    def evaluate(self, goes_on=lambda: True):
        for _ in range(5):
            self.batches += 1
            if not goes_on():
                break
        return {"loss": 0.5, "accuracy": 0.75}

    def any_task(self, holds):
        return holds or self.peer_stops

    def snapshot(self):
        rate = str(self.model.optimizer.learning_rate)

        def write(folder):
            (folder / "state").write_text(rate)
            return {"state": folder / "state"}

        return write

    def read_state(self, folder):
        self.model.optimizer.learning_rate = float((folder / "state").read_text())


class Model:
    def __init__(self):
        self.stop_training = False
        self.optimizer = SimpleNamespace(learning_rate=1.0)


class Stop:
    def __init__(self, after=10**9):
        self.asked, self.after = 0, after

    def requested(self):
        self.asked += 1
        return self.asked > self.after

    def requested_by_peer(self):
        self.after = 0


class Heard(keras.callbacks.Callback):
    """Records its calls."""

    def __init__(self):
        super().__init__()
        self.notes = SimpleNamespace(collected=[])

    @property
    def collected(self):
        return self.notes.collected

    @property
    def names(self):
        return [name for name, *_ in self.collected]

    def __getattribute__(self, name):
        if name.startswith("on_") and "batch" not in name:
            return lambda *arguments: self.collected.append((name, *arguments))
        return super().__getattribute__(name)


def called_back(
    *callbacks, samples=4, batch_size=2, iterations=6, model=None, busy=lambda: None, stop=None, peer_stops=False
):
    length = Length(iterations=iterations, samples=samples, batch_size=batch_size)
    model = model or Model()
    return CalledBack(Learner(model, peer_stops), model, callbacks, length, busy, stop or Stop())


def saved(learner, folder):
    """What a checkpoint of the learner holds, in a folder of its own."""
    folder = folder / str(len(list(folder.iterdir())))
    folder.mkdir()
    assert set(learner.snapshot()(folder)) == {"state", CALLBACKS_NAME}
    return folder


def run(make, folder, *, stops=(), **settings):
    """Run to the end over stops after these iterations; the last model and callback."""
    done, before = 0, None
    for end in (*stops, settings["iterations"]):
        model, callback = Model(), make()
        learner = called_back(callback, model=model, **settings)
        if before is not None:
            learner.read_state(before)
        for iteration in range(done + 1, end + 1):
            learner.step(iteration, stop=iteration == end)
        done, before = end, saved(learner, folder)
    learner.ended()
    return model, callback


def test_callbacks_see_a_run_by_epochs():
    heard, busy = Heard(), []
    learner = called_back(heard, busy=lambda: busy.append(True))
    for iteration in range(1, 7):
        learner.step(iteration, stop=False)
    learner.ended()
    held_out = {"val_loss": 0.5, "val_accuracy": 0.75}
    assert heard.collected == [
        ("on_train_begin", {}),
        ("on_epoch_begin", 0, {}),
        ("on_epoch_end", 0, {"loss": 1.5, **held_out}),
        ("on_epoch_begin", 1, {}),
        ("on_epoch_end", 1, {"loss": 3.5, **held_out}),
        ("on_epoch_begin", 2, {}),
        ("on_epoch_end", 2, {"loss": 5.5, **held_out}),
        ("on_train_end", {"loss": 5.5, **held_out}),
    ]
    assert len(busy) >= 15, "at each batch of the evaluations"
    assert heard.params == {"epochs": 3, "steps": 2, "verbose": 0}


def test_the_history_goes_on_over_starts_as_if_there_had_been_one(tmp_path):
    def done(*stops):
        (folder := tmp_path / str(len(list(tmp_path.iterdir())))).mkdir()
        last, before = 0, None
        for end in (*stops, 6):
            learner = called_back()
            if before is not None:
                learner.read_state(before)
            for iteration in range(last + 1, end + 1):
                learner.step(iteration, stop=False)
            last, before = end, saved(learner, folder)
        again = called_back()
        again.read_state(before)
        collected = []
        for each in (learner, again):
            each.ended()
            collected.append((each.history.epoch, each.history.history))
        assert collected[0] == collected[1], "also where a start finds everything done"
        return collected[0]

    held_out = {"val_loss": [0.5] * 3, "val_accuracy": [0.75] * 3}
    assert done() == ([0, 1, 2], {"loss": [1.5, 3.5, 5.5], **held_out})
    assert done(3) == done()
    assert done(2, 4, 5) == done()


def test_a_finished_run_calls_no_callbacks():
    heard = Heard()
    called_back(heard).ended()
    assert heard.collected == []


def test_an_epoch_that_a_stop_has_cut_goes_on_where_it_was(tmp_path):
    first, heard = called_back(Heard()), Heard()
    for iteration in (1, 2, 3):
        first.step(iteration, stop=False)
    second = called_back(heard)
    second.read_state(saved(first, tmp_path))
    for iteration in (4, 5):
        second.step(iteration, stop=False)
    assert heard.names == ["on_train_begin", "on_epoch_end", "on_epoch_begin"]
    assert heard.collected[1] == ("on_epoch_end", 1, {"loss": 3.5, "val_loss": 0.5, "val_accuracy": 0.75})
    assert heard.collected[2] == ("on_epoch_begin", 2, {})


@pytest.mark.parametrize("stops", [(5, 15, 25), (10, 20), (10, 11), tuple(range(1, 40))])
def test_a_schedule_by_the_rate_before_is_the_same_over_stops(stops, tmp_path):
    def halves():
        return keras.callbacks.LearningRateScheduler(lambda _epoch, rate: rate * 0.5)

    model, _ = run(halves, tmp_path, stops=stops, samples=100, batch_size=10, iterations=40)
    assert model.optimizer.learning_rate == 1 / 16


@pytest.mark.parametrize("stops", [(), (5, 15, 25), (10, 20), (10, 11), tuple(range(1, 60))])
def test_a_plateau_counts_on_over_stops(stops, tmp_path):
    def plateau():
        return keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=3, cooldown=1)

    model, callback = run(plateau, tmp_path, stops=stops, samples=100, batch_size=10, iterations=60)
    # The first of the six equal losses is the best; the fourth is the third without an improvement.
    assert model.optimizer.learning_rate == 0.5
    assert (callback.best, callback.wait, callback.cooldown_counter) == (0.5, 2, 0)


def test_settings_are_in_no_checkpoint(tmp_path):
    class Counts(keras.callbacks.Callback):
        def __init__(self, task):
            super().__init__()
            self.task, self.epochs, self.seen, self.table = task, 0, [], np.zeros(3)

        def on_epoch_end(self, epoch, _logs=None):
            self.epochs += np.int64(1)
            self.seen.append({"epoch": epoch, "loss": float("nan")})
            self.table[0] += 1.0

    chief, model = Counts(0), Model()
    first = called_back(Heard(), chief, model=model)
    for iteration in range(1, 6):
        first.step(iteration, stop=False)
    folder = saved(first, tmp_path)
    chief.seen.clear()
    peer = Counts(1)
    second = called_back(peer)
    second.read_state(folder)
    second.step(6, stop=False)
    assert (peer.task, peer.epochs, [each["epoch"] for each in peer.seen]) == (1, 2, [0, 1])


@pytest.mark.parametrize("value", [np.zeros(2), (1, 2), {1: 2.0}, {1}, [np.zeros(2)]])
def test_callback_state_that_cannot_be_saved_is_refused(value):
    class Keeps(keras.callbacks.Callback):
        def on_epoch_end(self, _epoch, _logs=None):
            self.kept = value

    learner = called_back(Keeps())
    for iteration in (1, 2):
        learner.step(iteration, stop=False)
    with pytest.raises(InputError, match=r"what no checkpoint holds: 'Keeps\.kept'"):
        learner.step(3, stop=False)


class TestStops:
    def test_one_at_an_epochs_end_is_saved_first_and_the_epoch_ends_with_the_next_start(self, tmp_path):
        heard, stop = Heard(), Stop()
        learner = called_back(heard, stop=stop)
        for iteration in (1, 2):
            assert learner.step(iteration, stop=iteration == 2).stop is (iteration == 2)
        assert learner._learner.batches == 0
        folder = saved(learner, tmp_path)
        again = called_back(Heard(), heard)
        again.read_state(folder)
        again.step(3, stop=False)
        assert heard.names == ["on_train_begin", "on_epoch_begin", "on_train_begin", "on_epoch_end", "on_epoch_begin"]
        assert heard.collected[3][2]["loss"] == 1.5

    @pytest.mark.parametrize("batches", [0, 1, 3])
    def test_one_in_the_middle_of_the_evaluation_ends_it(self, batches):
        heard = Heard()
        learner = called_back(heard, stop=Stop(after=batches))
        for iteration in (1, 2):
            learner.step(iteration, stop=False)
        with pytest.raises(PeerLostError, match="asked to stop"):
            learner.step(3, stop=False)
        assert learner._learner.batches == batches
        assert heard.names == ["on_train_begin", "on_epoch_begin"]

    def test_one_while_a_peer_is_lost_behind_an_epochs_beginning_repeats_nothing(self, tmp_path, monkeypatch):
        def halves():
            return keras.callbacks.LearningRateScheduler(lambda _epoch, rate: rate * 0.5)

        def lost(iteration, *, stop):
            raise PeerLostError("gone")

        first, model, heard = called_back(halves()), Model(), Heard()
        for iteration in (1, 2):
            first.step(iteration, stop=False)
        monkeypatch.setattr(first._learner, "step", lost)
        with pytest.raises(PeerLostError, match="gone"):
            first.step(3, stop=True)
        second = called_back(halves(), heard, model=model)
        second.read_state(saved(first, tmp_path))
        second.step(3, stop=False)
        assert heard.names == ["on_train_begin"]
        assert model.optimizer.learning_rate == 0.25

    def test_one_that_only_a_peer_has_heard_of_is_everyones(self):
        stop = Stop()
        learner = called_back(stop=stop, peer_stops=True)
        for iteration in (1, 2):
            learner.step(iteration, stop=False)
        assert not stop.requested()
        with pytest.raises(PeerLostError):
            learner.step(3, stop=False)
        assert stop.requested()


def test_an_evaluation_ends_between_two_batches_when_it_is_asked_to():
    import tensorflow as tf

    from tf_jobs.keras_learner import KerasLearner

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    data, asked = (np.zeros((20, 2)), np.ones((20, 1))), []
    values = Values({"seed": 0, "batch_size": 2, "ordered_parts": 0})
    learner = KerasLearner(tf, model, data, data, values, read_context("keras", {}), Alone())
    learner.evaluate(lambda: asked.append(True) or len(asked) < 3)
    assert len(asked) == 3
    assert learner.evaluate(lambda: asked.append(True) or True)["loss"] == pytest.approx(1.0)
    assert len(asked) == 13
    assert [learner.any_task(holds) for holds in (True, False)] == [True, False]


def test_a_checkpoint_of_a_run_without_callbacks_will_do(tmp_path):
    (tmp_path / "state").write_text("0.25")
    heard, model = Heard(), Model()
    learner = called_back(heard, model=model)
    learner.read_state(tmp_path)
    for iteration in (3, 4, 5):
        learner.step(iteration, stop=False)
    assert heard.names == ["on_train_begin", "on_epoch_begin", "on_epoch_end", "on_epoch_begin"]
    assert model.optimizer.learning_rate == 0.25


def test_batches_that_lie_in_two_passes_end_the_first_of_them():
    length = Length(iterations=5, samples=100, batch_size=60)
    assert [length.place_of(iteration) for iteration in range(1, 6)] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert [length.ends_epoch(iteration) for iteration in range(1, 6)] == [False, True, False, True, True]
    assert (length.epochs, length.steps) == (3, 2)
    whole = Length(iterations=8, samples=8, batch_size=4)
    assert [whole.ends_epoch(iteration) for iteration in range(1, 5)] == [False, True, False, True]


def test_callbacks_receive_batches_with_their_loss():
    collected = []
    learner = called_back(keras.callbacks.LambdaCallback(on_train_batch_end=lambda *each: collected.append(each)))
    learner.step(3, stop=False)
    learner.step(4, stop=False)
    assert collected == [(0, {"loss": 3.0}), (1, {"loss": 4.0})]


@pytest.mark.parametrize("name", REFUSED)
def test_callbacks_that_save_or_end_a_run_are_refused(name, tmp_path):
    settings = {"BackupAndRestore": [str(tmp_path)]}
    with pytest.raises(InputError, match=name):
        called_back(getattr(keras.callbacks, name)(*settings.get(name, [])))


def test_functions_are_refused_as_callbacks():
    with pytest.raises(InputError, match="not a callback of Keras: 'function'"):
        called_back(lambda: None)


def test_a_callback_that_ends_the_run_is_refused():
    model = Model()

    class Ends(keras.callbacks.Callback):
        def on_epoch_end(self, _epoch, _logs=None):
            self.model.stop_training = True

    learner = called_back(Ends(), model=model)
    for iteration in (1, 2):
        learner.step(iteration, stop=False)
    with pytest.raises(InputError, match="stop_training"):
        learner.step(3, stop=False)
