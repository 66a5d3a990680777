"""Notations that few programs have: letters for sets, odd places of steps, parts in lists, lines of progress only."""

import pytest

from am.profiler.parser import LogReader
from am.profiler.records import LossOnly, StepLoss, Validation


def read(text, iterations=0):
    reader = LogReader()
    reader.expect(iterations)
    return reader.read(text.encode() + b"\n")


def losses(records):
    return [record.loss for record in records if isinstance(record, StepLoss | LossOnly) and record.loss is not None]


def held_out(records):
    return [record.loss for record in records if isinstance(record, Validation)]


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 2/9 | T loss: 0.5 | V loss: 0.6",
        "epoch 2 t_loss 0.5 v_loss 0.6",
        "epoch 2 tr_loss 0.5 vl_loss 0.6",
        "epoch 2 trainloss=0.5 validloss=0.6",
        "Epoch 2 | TrLoss: 0.5 | VaLoss: 0.6",
    ],
)
def test_losses_of_sets_by_letters_are_not_added(line):
    records = read(line)
    assert (losses(records), held_out(records)) == ([0.5], [0.6])


def test_loss_of_a_value_function_is_of_training():
    records = read("step 3 pi_loss 0.5 v_loss 0.25")
    assert (losses(records), held_out(records)) == ([0.75], [])


@pytest.mark.parametrize(
    "line",
    [
        "loss@400=0.5",
        "n_iter=400 loss=0.5",
        "step#:     400  learning rate: 0.1   average loss: 0.5",
        "[ 400 ] loss 0.5",
        "Round 400: loss 0.5",
        "after 400 iterations, loss: 0.5",
        '{"current_steps": 400, "total_steps": 900, "loss": 0.5}',
        "{'loss': 0.5, 'epoch': 0.1, 'global_step/max_steps': '400/900'}",
        "Progress on:train 0.4kit/1.0kit rate:5.1it/s remaining:28:48 elapsed:03:55 postfix:loss:0.5",
        "01/01/21 - 10:00.00AM, iter: 400, cost: 0.5",
        "Step 400, BoxLoss=0.25, ClassLoss=0.25",
    ],
)
def test_step_of_a_loss(line):
    assert read(line, 1000) == [StepLoss(step=400, loss=0.5)]


def test_parts_of_a_loss_in_a_list_are_added():
    text = "Step      Train loss              Test loss\n1000      [0.25, 0.5]    [0.5, 1.0]"
    records = read(text)
    assert (losses(records), held_out(records)) == ([0.75], [1.5])


def test_set_in_the_type_of_a_record_counts():
    assert held_out(read('{"_type": "val_epoch", "epoch": "1/20", "loss": 0.5}')) == [0.5]
    assert losses(read('{"_type": "train_epoch", "epoch": "1/20", "loss": 0.5}')) == [0.5]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("Step: 12000. Time Elapsed: 33.3 s. Mean Reward: 1.2. Std of Reward: 0.7. Training.", 12000),
        ("global_step=123, episodic_return=[22.]", 123),
        ("Episode 10\tLast reward: 22.00\tAverage reward: 12.34", 10),
        ("[1000] reward 12.3 / length 500 / fps 30", 1000),
        ("End of epoch 3 / 200 \t Time Taken: 12 sec", 3),
        ("[epoch:  0, iter:     100, lr:(1.000e-04,)] l_g_pix: 3.4e-02 l_d_real: 6.9e-01", 100),
    ],
)
def test_line_of_progress_has_no_loss(line, step):
    assert read(line, 100000) == [StepLoss(step=step, loss=None)]


def test_iterations_of_an_epoch_of_unknown_length_do_not_end_a_job_that_counts_epochs():
    line = "(epoch: 1, iters: {}, time: 0.1, data: 0.2) G_GAN: 1.2 G_L1: 23.4 D_real: 0.6 D_fake: 0.7"
    records = read("\n".join((line.format(100), line.format(200), "End of epoch 1 / 200 \t Time Taken: 9 sec")), 200)
    assert [record.step for record in records] == [0, 0, 1]
