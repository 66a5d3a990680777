"""Keras' bars and lines by hand: steps over epochs and fits, what is no training, and what is no bar."""

import pytest

from am.profiler.keras_format import RATES_AN_EPOCH, KerasFormat
from am.profiler.parser import LogReader
from am.profiler.records import StepLoss, StepsPerSecond, Validation


def read(*lines):
    form = KerasFormat()
    return [record for line in lines for record in form.read(line)]


def steps(*lines):
    return [record.step for record in read(*lines) if isinstance(record, StepLoss)]


def rates(*lines):
    return [1.0 / record.rate for record in read(*lines) if isinstance(record, StepsPerSecond)]


def test_the_line_of_the_ecosystems_page():
    records = read("Epoch 3/10", "125/125 - 3s - 24ms/step - loss: 0.31 - accuracy: 0.91")
    assert records == [StepsPerSecond(rate=pytest.approx(1 / 0.024)), StepLoss(step=375, loss=0.31, mean_since=250)]


def test_a_bar_in_colours():
    bar = "\x1b[1m 63/125\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━━━\x1b[0m \x1b[1m1:02\x1b[0m 990us/step - loss: nan"
    (rate, step) = LogReader().read(f"Epoch 1/10\n{bar}\n".encode())
    assert rate.rate == pytest.approx(1 / 990e-6)
    assert (step.step, step.loss != step.loss) == (63, True)


def test_metrics_of_the_validation():
    line = "8/8 - 1s - 99ms/step - loss: 0.3 - my metric: 1 - val_loss: 0.4 - val_binary_accuracy: 0.5"
    assert read("Epoch 1/1", line)[-1] == Validation(step=8, loss=0.4, accuracy=0.5)
    assert read("Epoch 1/1", "8/8 - 1s - loss: 0.3 - val_auc: 1")[-1] == Validation(step=8, loss=None, accuracy=None)


def test_loss_by_other_name_or_missing():
    assert read("Epoch 1/1", "8/8 - 1s - val_loss: 9.0 - g_loss: 0.5 - d_loss: 0.25")[1] == StepLoss(
        step=8, loss=0.5, mean_since=0
    )
    assert read("Epoch 1/1", "8/8 - 1s - 99ms/step - accuracy: 0.5")[-1] == StepLoss(step=8, loss=None, mean_since=0)


class TestSteps:
    def test_bars_outside_epoch_are_ignored(self):
        done = "8/8 - 1s - loss: 1.0"
        assert steps(done, "Epoch 1/1", done, done, " 1/8 [>...] - ETA: 1s - loss: 3.0", done) == [8]

    def test_bar_redrawn_after_validation_counts_once(self):
        bar = "8/8 [====] - 1s 99ms/step - loss: 1.0"
        records = read("Epoch 1/2", bar, f"{bar} - val_loss: 2.0", f"{bar} - val_loss: 3.0", bar)
        assert [record for record in records if isinstance(record, Validation)] == [
            Validation(step=8, loss=2.0, accuracy=None)
        ]
        assert sum(isinstance(record, StepLoss) for record in records) == 1

    def test_second_fit_adds_steps(self):
        epoch, done = "Epoch 1/1", "8/8 - 1s - loss: 1.0"
        assert steps(epoch, done, epoch, done, epoch, "4/4 - 1s - loss: 1.0") == [8, 16, 20]

    def test_resumed_fit_adds_no_steps(self):
        done = "8/8 - 1s - loss: 1.0"
        assert steps("Epoch 1/1", done, "Epoch 2/2", done, "Epoch 3/4", done) == [8, 16, 24]

    def test_restarted_fit_adds_no_steps(self):
        done = "8/8 - 1s - loss: 1.0"
        assert steps("Epoch 1/3", done, "Epoch 2/3", "Epoch 1/3", done, "Epoch 2/3", done) == [8, 8, 16]

    def test_fit_restarted_after_whole_epoch_adds_no_steps(self):
        done = "8/8 - 1s - loss: 1.0"
        assert steps("Epoch 1/3", done, "Epoch 1/3", done, "Epoch 2/3", done) == [8, 8, 16]

    def test_two_workers_bars_in_one_log(self):
        one, two = "3/8 [=>..] - ETA: 1s - loss: 1.0", "2/8 [=>..] - ETA: 1s - loss: 1.0"
        assert steps("Epoch 1/3", "Epoch 1/3", one, two, one) == [3, 3]

    def test_unknown_epoch_length(self):
        bars = "12/Unknown 3s 24ms/step - loss: 1.0", "40/40 [==] - 3s 24ms/step - loss: 1.0"
        assert steps("Epoch 1/2", *bars, "Epoch 2/2", *bars) == [12, 40, 52, 80]
        # The length of the earlier epochs is unknown.
        assert steps("Epoch 5/9", *bars) == [200]


class TestPace:
    def test_bar_gives_ten_rates_per_epoch(self):
        bars = [f"{done}/100 [=>..] - 9s 24ms/step - loss: 1.0" for done in range(1, 101)]
        assert rates("Epoch 1/2", *bars) == pytest.approx([0.024] * RATES_AN_EPOCH)

    def test_first_step_gives_rate_only_if_alone(self):
        assert rates("Epoch 1/2", "1/5 [=>..] - ETA: 1s 24ms/step - loss: 1.0") == []
        assert rates("Epoch 1/2", "1/1 [==] - 1s 900ms/step - loss: 1.0") == pytest.approx([0.9])

    def test_finer_rounding_is_used(self):
        assert rates("Epoch 1/2", "1000/1000 - 60s - 2ms/step - loss: 1.0") == pytest.approx([0.06])
        assert rates("Epoch 1/2", "100/100 - 2s - 24ms/step - loss: 1.0") == pytest.approx([0.024])
        assert rates("Epoch 1/2", "1000/1000 - 0s - loss: 1.0") == []
        assert rates("Epoch 1/2", "10/10 - 1s - loss: 1.0 - 1s/epoch - 119ms/step") == pytest.approx([0.119])

    def test_rate_with_validation_counts_only_if_alone(self):
        end = "8/8 [==] - 9s 900ms/step - loss: 1.0 - val_loss: 1.0"
        assert rates("Epoch 1/1", "4/8 [=>..] - ETA: 1s 24ms/step - loss: 1.0", end) == pytest.approx([0.024])
        assert rates("Epoch 1/1", end) == pytest.approx([0.9])

    def test_epochs_of_unknown_length(self):
        bars = [f"{done}/Unknown 3s 24ms/step - loss: 1.0" for done in range(1, 100)]
        assert rates("Epoch 1/2", *bars) == pytest.approx([0.024] * 3)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "9/8 - 1s - loss: 1.0",
        "0/8 - 1s - loss: 1.0",
        "0/0 - 1s - loss: 1.0",
        "8/8 - 1s - loss: ",
        "8/8 - 1s - loss: 0.32026-11-21 15:42:11.1: I tensorflow/core",
        "8/8 - 1s - loss: 1.0 and more",
        "8/8 - loss: 1.0",
        "1/8 of all - 1s",
        "8/8 [==] - 5s 80us/sample - loss: 0.5",
        "Epoch 2/2: something else",
        "Epoch 00002: val_loss improved from inf to 0.4, saving model to best.h5",
    ],
)
def test_other_lines_are_no_bars(line):
    assert read("Epoch 1/10", line) == []
