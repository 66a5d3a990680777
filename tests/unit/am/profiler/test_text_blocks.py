"""Records over several lines, heads of blocks, and which of several losses count."""

import pytest

from am.profiler.held_out_heads import depth_of
from am.profiler.line_blocks import LineBlocks
from am.profiler.line_places import LinePlace
from am.profiler.loss_kinds import LossKinds
from am.profiler.parser import LogReader
from am.profiler.records import LossOnly, StepLoss, Validation


def read(text, iterations=0):
    reader = LogReader()
    reader.expect(iterations)
    return reader.read(text.encode() + b"\n")


def steps(records):
    return [(record.step, record.loss) for record in records if isinstance(record, StepLoss)]


def held_out(records):
    return [(record.step, record.loss) for record in records if isinstance(record, Validation)]


def joined(*lines):
    blocks = LineBlocks()
    return [text for line in lines for text in blocks.read(line)]


@pytest.mark.parametrize(
    "lines",
    [
        ("{'box_loss': 0.3,", " 'step': 40,", " 'total_loss': 0.9}"),
        ("INFO:tensorflow:{'box_loss': 0.3,", " 'step': 40,", " 'total_loss': 0.9}"),
        ("{", '  "step": 40,', '  "train": {', '    "box_loss": 0.3,', '    "loss": 0.9', "  }", "}"),
    ],
)
def test_dictionary_over_several_lines_is_one_record(lines):
    assert read("\n".join(lines)) == [StepLoss(step=40, loss=0.9)]


def test_step_above_a_dictionary_is_its_step():
    text = "INFO:tensorflow:Step 200 per-step time 0.3s\nINFO:tensorflow:{'a_loss': 0.3,\n 'total_loss': 0.9}"
    assert read(text) == [StepLoss(step=200, loss=0.9)]


def test_lines_of_a_dictionary_that_another_line_interrupts_are_read_one_by_one():
    assert joined("{'a': 1,", " 'b': 2,", "step=40 loss=0.5") == ["{'a': 1,", " 'b': 2,", "step=40 loss=0.5"]


def test_a_dictionary_that_does_not_end_is_given_up():
    lines = ["{", *(f"'name{number}': 1," for number in range(200))]
    assert joined(*lines) == [*lines[:-1], "'name199': 1,"]


TABLE = ["------------------", "| time/      |   |", "|    total_timesteps | 4096 |", "| train/ |  |"]


def test_rows_of_a_name_and_a_value_are_one_record():
    text = "\n".join((*TABLE, "|    policy_loss | 0.1 |", "|    loss | 0.9 |", "------------"))
    assert read(text) == [StepLoss(step=4096, loss=0.9)]


def test_timesteps_of_a_table_without_a_loss_are_progress():
    text = "\n".join((*TABLE, "|    fps | 12 |", "|    lr | 0.1 |", "------------"))
    assert read(text) == [StepLoss(step=4096, loss=None)]


def test_rows_without_a_ruler_below_are_no_record():
    assert read("\n".join((*TABLE, "| a | 1 |", "|    loss | 0.9 |", "the end"))) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Step 50/100000; acc: 5.5; ppl: 1000.1; xent: 6.9; lr: 0.1", (50, 6.9)),
        ("step 50 rmse 0.5 lr 0.1", (50, 0.5)),
        ("Ep. 1 : Up. 1000 : Sen. 64,123 : Cost 7.9 * 1,512", (1000, 7.9)),
        ("Epoch[0] Train-cross-entropy=0.9", (1, 0.9)),
        ("Train loss 10 2.5 Grad Norm 1.1", (10, 2.5)),
        ("step 50 box_loss 0.5 cls_loss 0.25", (50, 0.75)),
        ("step 50 batch_loss 0.5 loss 0.25", (50, 0.25)),
        ("step_num: 50 | loss_value: 0.5", (50, 0.5)),
        ("[ 200] train loss -> 0.5", (200, 0.5)),
        ("Iter 100 | Time 0.1(0.1) | Bit/dim 4.5(4.6)", (100, 4.5)),
        ("train_step=100\ntrain_loss=0.7", (100, 0.7)),
        (" it | train loss | test loss\n----+------\n100 | 0.7        | 0.75", (100, 0.7)),
        ("Epoch #2: 10it [00:05, env_step=20000, loss=0.5]", (20000, 0.5)),
        ("-- STEP: 24/1170 -- GLOBAL_STEP: 25 loss: 0.5", (25, 0.5)),
    ],
)
def test_losses_and_their_steps(line, expected):
    assert steps(read(line, 10**6 if expected[0] > 1 else 5)) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step 40 loss 0.9\nValidation perplexity: 12.5", (40, 12.5)),
        ("step 40 loss 0.9\nval loss: 0.5 (-0.1)", (40, 0.5)),
        ("step 40 loss 0.9\nval loss: 0.5 (+0.1)", (40, 0.5)),
        ("step 40 loss 0.9\nval loss: 0.5 (0.4)", (40, 0.4)),
        ("step 40 loss 0.9\nTest: Total time 3 s\nAveraged stats: loss: 0.5 (0.4)", (40, 0.4)),
        ("step 40 loss 0.9\n > EVALUATION\n   --> STEP: 3\n     | > loss: 0.5", (40, 0.5)),
        (
            "step 40 loss 0.9\nINFO:root:Eval metrics at step 40\nINFO:root:\t+ a: 1\nINFO:root:\t+ loss: 0.5",
            (40, 0.5),
        ),
        ("step 40 | train: loss 0.9 acc 0.7 | dev: loss 0.5 acc 0.8", (40, 0.5)),
        ("step 40 tr_loss 0.9 va_loss 0.5", (40, 0.5)),
        ("step 40 loss 0.9\nEpoch 1 validation: err-top1=0.5", (1, 0.5)),
        ("[40] collection=train loss=0.9\n[40] collection=training_eval/c4 loss=0.5", (40, 0.5)),
        ("          Training |  Validation\nloss      |     0.9  |   0.5", (0, 0.5)),
    ],
)
def test_held_out_losses(text, expected):
    assert held_out(read(text)) == [expected]


def test_summary_behind_training_is_of_training():
    text = "Test: [1/1] loss 0.5\nEpoch: [1] [9/9] loss: 0.9\nEpoch: [1] Total time: 3\nAveraged stats: loss: 0.9 (0.8)"
    assert [loss for _, loss in held_out(read(text))] == [0.5]


def test_block_ends_where_its_indentation_ends():
    text = "Step 40 took 3 s\n  a loss: 0.5\nloss: 0.4"
    assert read(text) == [StepLoss(step=40, loss=0.5), LossOnly(loss=0.4)]


def test_losses_without_a_step_beside_lines_of_rounds_do_not_count():
    text = "v3 (iou_loss = 0.5, total_loss = 0.7)\n 7: 2.1, 2.3 avg loss, 0.1 rate, 1.2 seconds, 64 images"
    assert read(f"{text}\n{text}") == [LossOnly(loss=0.7), StepLoss(step=7, loss=2.3), StepLoss(step=7, loss=2.3)]


@pytest.mark.parametrize(("expected", "step"), [(1000, 100), (0, None)])
def test_share_of_the_run_is_progress_if_the_iterations_are_known(expected, step):
    [record] = read("Progress:  10.0% words/sec/thread:  512 lr:  0.09 avg.loss:  2.1 ETA:   0h", expected)
    assert getattr(record, "step", None) == step


def test_share_of_the_run_is_no_progress_if_there_are_earlier_phases():
    reader = LogReader()
    reader.expect(1000, 10)
    assert reader.read(b"Progress:  10.0% avg.loss:  2.1\n") == [LossOnly(loss=2.1)]


def test_step_of_a_bar_is_that_of_the_line_that_was_printed_over_it():
    bar, wipe = "\r {0}%|##   | {0}/100 [00:10<01:30,  1.01s/it]", "\r            \r"
    text = "\n".join(f"{bar.format(done)}{wipe}{{'loss': 0.{done}, 'epoch': 0.{done}}}" for done in (10, 20))
    assert [step for step in steps(read(text, 100)) if step[1] is not None] == [(10, 0.1), (20, 0.2)]


def place(step):
    return LinePlace(step=step)


def test_better_kind_of_loss_replaces_one_and_a_worse_one_does_so_after_three_places():
    kinds = LossKinds()
    assert [kinds.counts(kind, place(1)) for kind in ("part", "total", "part", "rmse")] == [True, True, False, False]
    assert [kinds.counts("part", place(step)) for step in (2, 2, 3, 4, 5)] == [False, False, False, True, True]
    assert not kinds.counts("rmse", LinePlace())


def test_of_two_errors_the_first_one_counts():
    kinds = LossKinds()
    assert [kinds.counts(kind, place(1)) for kind in ("xent", "ppl", "xent")] == [True, False, True]


@pytest.mark.parametrize(
    ("line", "depth"),
    [("a", 0), ("  a", 2), ("\ta", 8), ("INFO:tensorflow:\ta", 8), ("INFO:root: a", 1), ("INFO: a", 0)],
)
def test_depth(line, depth):
    assert depth_of(line) == depth


@pytest.mark.parametrize("text", ["{" * 4000, "{'a': 1," * 500, "| a | 1 " * 500, "ppl " * 1000, "train_" * 700])
def test_long_lines_are_read_in_linear_time(text):
    reader = LogReader()
    assert reader.read(text.encode()[:4000] + b"\n") == []
