"""Blocks of reinforcement learning, and epochs by a letter."""

import math

import pytest

from am.profiler.line_places import LinePlace, line_place
from am.profiler.parser import LogReader
from am.profiler.records import Metric, StepLoss
from themis.apps import MetricSpec

HEAD = "      Learning iteration 7/100 \n\n"


def read(text, metric=None):
    reader = LogReader(metric=metric)
    reader.expect(100)
    return reader.read(text.encode() + b"\n")


def test_losses_of_a_block_are_progress_only():
    assert read(f"{HEAD}   Mean surrogate loss: -0.1\n   Mean entropy loss: 16.7\n") == [StepLoss(step=7, loss=None)]


def test_loss_of_a_block_that_is_no_number_counts_and_the_block_goes_on():
    records = read(f"{HEAD}   Mean surrogate loss: nan\n   Mean entropy loss: 16.7\n")
    assert [math.isnan(record.loss) for record in records[1:]] == [True]


def test_another_line_ends_a_block():
    assert read(f"{HEAD}   Mean reward: 3.1\nstep 8 loss 0.5")[1:] == [StepLoss(step=8, loss=0.5)]


def test_reward_of_a_block_may_be_declared():
    records = read(f"{HEAD}   Mean reward: 3.1\n", MetricSpec(name="Mean reward", mode="max"))
    assert records == [StepLoss(step=7, loss=None), Metric(value=3.1, step=None)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[e2] loss 1", LinePlace(epoch=2)),
        ("[e2/9] loss 1", LinePlace(epoch=2, epochs=9)),
        ("12:00 [e2/9][b4/50] loss 1", LinePlace(epoch=2, epochs=9, step=4, steps=50, in_epoch=True)),
        ("[e1/s80] loss 1", LinePlace(epoch=1, step=80)),
        ("e1 i80 | loss 1", LinePlace(epoch=1, step=80)),
        # The first letter of a level of glog, and names.
        ("e1123 10:00:00 1 train.cc:12] loss 1", LinePlace()),
        ("[e2e] loss 1", LinePlace()),
        ("file1 b2 loss 1", LinePlace()),
    ],
)
def test_epochs_by_a_letter(text, place):
    assert line_place(text, text.index("loss")) == place
