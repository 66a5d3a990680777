"""Lines of any training program: what is read from them, and what never is."""

import math
from pathlib import Path

import pytest

from am.profiler.cost_format import read_cost
from am.profiler.line_places import LinePlace
from am.profiler.parser import LogReader
from am.profiler.profile import JobProfile
from am.profiler.records import Diverged, LossOnly, Metric, StepLoss, Validation
from themis.apps import MetricSpec
from themis.cluster import Level

NO_METRICS = Path(__file__).parents[3] / "golden" / "profiler" / "text" / "no_metrics.txt"


def read(text, iterations=0, metric=None):
    reader = LogReader(metric=metric)
    reader.expect(iterations)
    return reader.read(text.encode() + b"\n")


def steps(records):
    return [(record.step, record.loss) for record in records if isinstance(record, StepLoss)]


def held_out(records):
    return [(record.step, record.loss, record.accuracy) for record in records if isinstance(record, Validation)]


def test_head_of_a_table_may_have_single_spaces():
    assert steps(read("Epoch Loss Accuracy\n1 0.5 0.8\n2 0.25 0.9")) == [(1, 0.5), (2, 0.25)]


def test_accuracy_behind_an_accuracy_of_errors_is_read():
    (found,) = held_out(read("step 5 val_loss: 0.5 val_err_acc: 0.3 val_acc: 0.7"))
    assert found == (5, 0.5, 0.7)


@pytest.mark.parametrize(
    "line",
    [
        "step=40 loss=0.6912",
        "Step: 40, Loss: 0.6912",
        "step 40/100 - loss 0.6912 - lr 0.1",
        "loss = 0.6912, step = 40",
        '{"step": 40, "loss": 0.6912}',
        '{"level": "info", "global_step": 40, "train/loss": 0.6912, "lr": 5e-05}',
        "{'step': 40, 'loss': '0.6912', 'epoch': '0.4'}",
        "{'step': 40, 'loss': np.float64(0.6912)}",
        "step 40 loss tensor(0.6912, device='cuda:0')",
        "2026-11-25 10:00:04 INFO train: step 40 loss 0.6912",
        "2026-01-01 10:00:00,123 - train - INFO - step 40 loss 0.6912",
        "[2026-01-01 10:00:00,123][trainer][INFO] - iter: 40, train_loss: 0.6912, val_acc: 0.5",
        "INFO:root:step=40 loss=0.6912",
        "I0728 12:00:01.123456 140 train.py:262] step 40, loss 0.6912",
        "2026-01-01 10:00:00.123 | INFO     | __main__:main:12 - step=40 | loss=0.6912",
        "[rank0]: step=40 loss=0.6912",
        "[default0]:step=40 loss=0.6912",
        "(RayTrainWorker pid=1234) step=40 loss=0.6912",
        "worker 0 | step=40 loss=0.6912",
        "\x1b[36m(train_fn pid=12345)\x1b[0m step=40 loss=\x1b[1m0.6912\x1b[0m",
        "\x1b[32m2026-01-01 10:00:00\x1b[0m step=40 loss=0.6912",
        "Iteration 40, loss = 0.6912",
        "iter 40: loss 0.6912, time 10.00ms, mfu -100.00%",
        "[1,    40] loss: 0.6912",
        "Epoch [1/6], Step [40/100], Loss: 0.6912",
        "Epoch: [0][ 40/100]\tTime  0.1 (0.2)\tData  0.0 (0.1)\tLoss 6.912e-01 (7.0e+00)\tAcc@1   0.00 (  0.10)",
        "Train Epoch: 1 [40/60000 (1%)]\tLoss: 0.6912",
        "Epoch[1] Iteration[40/938] Loss: 0.6912",
        "Train: 0 [  40/1251 (  3%)]  Loss: 0.6912 (6.9)  Time: 0.1s",
        "01/01 00:00:00 - mmengine - INFO - Epoch(train)  [1][  40/7330]  lr: 2e-02  loss: 0.6912  loss_cls: 0.7",
        "[01/01 00:00:00 d2.utils.events]:  eta: 0:10:00  iter: 40  total_loss: 0.6912  loss_cls: 0.7  lr: 1e-4",
        " iteration       40/  500000 | learning rate: 1.0E-04 | lm loss: 6.912E-01 | loss scale: 1.0 | grad norm: 2",
        " 40%|████      | 40/100 [00:01<00:02, 30.00it/s, loss=0.6912]",
        "Epoch 0:  40%|████      | 40/100 [00:01<00:02, 30.00it/s, v_num=0, train_loss=0.6912]",
        " 39%|███▉      | 39/100 [00:01<00:02, 30.00it/s]step=40 loss=0.6912",
        "\r 39%|███▉      | 39/100 [00:01<00:02, 30.00it/s]\r                       \rstep=40 loss=0.6912",
        "[39]\ttrain-logloss:0.6912",
        "Cost after iteration 40: 0.6912",
        "step 40, cost: 0.6912",
    ],
)
def test_step_and_training_loss(line):
    assert steps(read(line)) == [(40, 0.6912)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Epoch 2/6 train_loss=0.6912 val_loss=0.7001 acc=0.770", (2, 0.7001, 0.77)),
        ("epoch: 2 - loss: 0.69 - val_loss: 0.7001 - val_accuracy: 77.0%", (2, 0.7001, 0.77)),
        ('{"epoch": 2, "train_loss": 0.69, "valid_loss": 0.7001, "valid_acc": 0.77, "acc": 0.9}', (2, 0.7001, 0.77)),
        ("Validation Results - Epoch: 2  Avg accuracy: 0.77 Avg loss: 0.7001", (2, 0.7001, 0.77)),
        ("{'eval_loss': 0.7001, 'eval_accuracy': 0.77, 'eval_runtime': 1.2, 'epoch': 2.0}", (2, 0.7001, 0.77)),
        ("Epoch: 002 | Train loss: 0.69 | Test loss: 0.7001 | Test acc: 77.00%", (2, 0.7001, 0.77)),
        ("step 2: train loss 0.6912, val loss 0.7001", (2, 0.7001, None)),
        ("Test set: Average loss: 0.7001, Accuracy: 7700/10000 (77%)", (0, 0.7001, 0.77)),
        ("validation loss: 0.7001", (0, 0.7001, None)),
        ("Test: [97/97]  Loss 0.6 (0.7001)  Acc@1 78.00 (77.00)", (0, 0.7001, 0.77)),
        ("epoch 2 train: loss=0.69 acc=0.9 | val: loss=0.7001 acc=0.77", (2, 0.7001, 0.77)),
        ('{"epoch": 2, "split": "val", "loss": 0.7001, "acc": 0.77}', (2, 0.7001, 0.77)),
        # The first accuracy is not said to be of training.
        ("Epoch 2/6 loss: 0.69 acc: 0.9 val_loss: 0.7001 val_acc: 0.77", (2, 0.7001, 0.77)),
        ("2026-11-25 10:00:04 [INFO] (run.py:12) Test: loss 0.7001", (0, 0.7001, None)),
    ],
)
def test_held_out_values(line, expected):
    assert held_out(read(line)) == [expected]


def test_steps_of_epochs_add_up():
    lines = ["[1,   300] loss: 0.9", "[1,   600] loss: 0.8", "[2,   300] loss: 0.7", "[2,   600] loss: 0.6"]
    assert [step for step, _ in steps(read("\n".join(lines)))] == [300, 600, 900, 1200]


@pytest.mark.parametrize(
    ("lines", "counted"),
    [
        # A count that begins again at a new epoch is one of the epoch, also if each epoch has one line only.
        (("epoch 1 step 100 loss 0.9", "epoch 2 step 100 loss 0.8", "epoch 3 step 100 loss 0.7"), [100, 200, 300]),
        (("epoch 1 step 50 loss 0.9", "epoch 1 step 100 loss 0.8", "epoch 2 step 50 loss 0.7"), [50, 100, 150]),
        # One that goes on is over all epochs.
        (("epoch 1 step 50 loss 0.9", "epoch 2 step 150 loss 0.8", "epoch 3 step 250 loss 0.7"), [50, 150, 250]),
        # One that says of how many is of the epoch, also in the first line that is seen.
        (("epoch 1 step 100/100 loss 0.9", "epoch 2 step 40/100 loss 0.8"), [100, 140]),
        (("epoch 2 step 40/100 loss 0.9",), [140]),
        (("[1/3][40/100] loss 0.9", "[2/3][40/100] loss 0.8"), [40, 140]),
        # Of two counts in a line, the one over all epochs.
        (("epoch 2 batch 40 global_step 340 loss 0.9",), [340]),
        (("epoch 2 global_step 340 batch 40 loss 0.9",), [340]),
    ],
)
def test_a_step_counts_over_all_epochs_or_in_each(lines, counted):
    assert [step for step, _ in steps(read("\n".join(lines)))] == counted


def test_bars_drawn_once_an_epoch_add_up():
    bar = " 100%|████| 50/50 [00:01<00:00, 30.00it/s, loss={}]"
    assert steps(read("\n".join(bar.format(loss) for loss in (0.9, 0.8)))) == [(50, 0.9), (100, 0.8)]


def test_bars_with_more_steps_than_the_job_has_iterations_are_epochs():
    bar = "{:3}%|██  | {}/50 [00:01<00:00, 30.00it/s, loss={}]"
    drawn = [(50, 25, 0.9), (100, 50, 0.8), (50, 25, 0.7), (100, 50, 0.6)]
    lines = "\n".join(bar.format(*each) for each in drawn)
    assert steps(read(lines, 8)) == [(0, 0.9), (1, 0.8), (1, 0.7), (2, 0.6)]


def test_count_in_brackets_behind_the_epoch_is_of_its_steps():
    assert steps(read("Epoch:[1/2](100/44160) loss:7.140 lr:0.00055", 2)) == [(0, 7.14)]


def test_named_logger_before_a_level_is_no_text():
    assert held_out(read("2026-01-01 00:00:11,123 - root - INFO - validate step: 10  loss:  7.2")) == [(10, 7.2, None)]


def test_sum_of_losses_counts_before_its_parts():
    line = "step 40 box loss: 1.2 loss: 4.3 val_box_loss: 1.3 val_loss: 4.4"
    assert steps(read(line)) == [(40, 4.3)]
    assert held_out(read(line)) == [(40, 4.4, None)]


def test_head_of_an_epoch_counts_for_its_lines():
    text = "Epoch 1\n-------\nloss: 2.30  [   64/60000]\nTest Error: \n Accuracy: 45.0%, Avg loss: 2.15\n"
    records = read(text + "Epoch 2\n-------\nloss: 2.1  [   64/60000]")
    assert steps(records) == [(64, 2.3), (60000, None), (60064, 2.1)]
    assert held_out(records) == [(60000, 2.15, 0.45)]


MNIST = "Train Epoch: {} [{}/60000 ({:.0f}%)]\tLoss: 0.7"


@pytest.mark.parametrize(("iterations", "at"), [(3, (1, 2)), (10**6, (60000, 120000))])
def test_held_out_loss_behind_the_last_line_of_an_epoch_is_of_its_end(iterations, at):
    lines = []
    for epoch in (1, 2):
        lines += [MNIST.format(epoch, done, done / 600) for done in (58880, 59520)]
        lines.append("Test set: Average loss: 0.5, Accuracy: 9000/10000 (90%)")
    assert held_out(read("\n".join(lines), iterations)) == [(step, 0.5, 0.9) for step in at]


@pytest.mark.parametrize(("iterations", "at"), [(3, 0), (10**6, 30080)])
def test_held_out_loss_amid_an_epoch_is_of_the_last_step(iterations, at):
    lines = [MNIST.format(1, done, done / 600) for done in (29440, 30080)]
    assert held_out(read("\n".join((*lines, "Test set: Average loss: 0.5")), iterations)) == [(at, 0.5, None)]


def test_iterations_are_epochs_from_the_head_on_that_counts_as_many():
    text = (
        "Beginning of Epoch 1/2, Total Micro Batches 58\nEpoch: 0, Step: 1, loss = 3.0\nEpoch: 0, Step: 2, loss = 2.5"
    )
    assert steps(read(text, 2)) == [(0, 3.0), (0, 2.5)]


@pytest.mark.parametrize("head", ["Eval begin...", "***** Evaluating perplexity, Epoch 1/3 *****", "Start validation"])
def test_lines_behind_the_head_of_an_evaluation_are_held_out_while_they_count_to_the_same_total(head):
    lines = ("Epoch 1/3", "step 50/50 - loss: 0.7", head, "step 4/8 - loss: 0.6", "step 8/8 - loss: 0.5")
    records = read("\n".join((*lines, "step 10/50 - loss: 0.4")), 150)
    assert held_out(records) == [(50, 0.6, None), (50, 0.5, None)]
    assert [loss for _, loss in steps(records) if loss is not None] == [0.7, 0.4]


def test_name_of_a_class_behind_the_name_of_a_set_is_a_loss():
    text = "[step=40/100]\n    train/CrossEntropyLoss=0.7\n    eval/c4_en-validation/CE loss=0.8"
    records = read(text)
    assert (steps(records), held_out(records)) == ([(40, 0.7)], [(40, 0.8, None)])


@pytest.mark.parametrize(("second", "loss"), [(0.5, 0.5), (0.7, None)])
def test_catboost_metric_is_a_loss_if_its_best_falls(second, loss):
    line = "{}:\tlearn: {}\ttest: {}\tbest: {} ({})\ttotal: 1ms\tremaining: 9ms"
    records = read("\n".join(line.format(at, value, value, value, at) for at, value in enumerate((0.6, second))))
    assert steps(records) == [(1, None), (2, loss)]
    assert held_out(records) == ([] if loss is None else [(2, loss, None)])


@pytest.mark.parametrize(("iterations", "step"), [(6, 1), (600, 140)])
def test_iterations_are_epochs_if_the_job_was_asked_for_as_many(iterations, step):
    assert steps(read("Epoch 2/6 [40/100] loss: 0.7", iterations)) == [(step, 0.7)]


def test_dictionaries_with_parts_of_epochs_take_their_step_from_the_bar():
    text = " 40%|████      | 40/100 [00:01<00:02, 30.00it/s]\n{'loss': 0.7, 'epoch': 0.4}"
    assert steps(read(text, 100)) == [(40, None), (40, 0.7)]
    assert steps(read(text, 90)) == [(0, 0.7)]


@pytest.mark.parametrize("name", ["", "Training: ", "steps:", "[rank0]: "])
def test_bar_of_as_many_steps_as_iterations_is_progress(name):
    bar = f"{name} 40%|████      | 40/100 [00:01<00:02, 30.00it/s]"
    assert steps(read(bar, 100)) == [(40, None)]
    assert read(bar, 99) == read(f"Map {bar}", 100) == []


def test_bar_alone_does_not_say_that_the_job_is_done_nor_one_that_began_again():
    bar = "{:3}%|█   | {}/10 [00:01<00:02, 30.00it/s]"
    assert steps(read("\n".join(bar.format(10 * done, done) for done in (8, 9, 10, 1, 5)), 10)) == [
        (8, None),
        (9, None),
    ]


def test_held_out_loss_behind_a_bar_of_all_steps_is_of_the_step_of_the_bar():
    bar, line = "{:3}%|██  | {}/300 [00:20<00:40, 5.00it/s]", "epoch {}: perplexity: 22.12 eval_loss: {}"
    text = "\n".join((bar.format(33, 100), line.format(0, 3.1), bar.format(67, 200), line.format(1, 3.0)))
    assert held_out(read(text, 300)) == [(100, 3.1, None), (200, 3.0, None)]
    # A bar of epochs counts an epoch only after its line.
    text = "\n".join((bar.format(0, 0), line.format(0, 3.1), bar.format(0, 1), line.format(1, 3.0)))
    assert held_out(read(text, 300)) == [(1, 3.1, None), (2, 3.0, None)]


@pytest.mark.parametrize(
    "line",
    [
        "Step 40: d_loss=0.693 g_loss=0.812",
        "step 40 loss_D: 0.693 loss_G: 0.812",
        "[0/5][40/1583]\tLoss_D: 2.0937\tLoss_G: 5.2060\tD(x): 0.5704\tD(G(z)): 0.6680 / 0.0090",
        "iter 40 | Critic loss: 0.69 | Generator loss: 0.81",
        "step 40 lossD 0.69 lossG 0.81",
        '{"step": 40, "loss/gen": 0.69, "loss/disc": 0.81}',
    ],
)
def test_losses_of_two_adversaries_are_progress_only(line):
    assert read(line) == [StepLoss(step=40, loss=None)]


def test_losses_of_two_adversaries_that_are_no_numbers_count():
    (record,) = read("step 5 d_loss nan g_loss nan")
    assert record.step == 5 and math.isnan(record.loss)


def test_losses_of_two_adversaries_without_a_step_are_nothing():
    assert read("10 [D loss: 0.69, acc.: 51.56%] [G loss: 0.81]") == []


def test_another_loss_beside_those_of_two_adversaries_counts():
    assert steps(read("step 40 d_loss 0.6 g_loss 0.8 loss 0.5")) == [(40, 0.5)]
    assert steps(read("step 40 gen_loss 0.6")) == [(40, 0.6)]


def test_tables_with_a_head():
    text = (
        "epoch     train_loss  valid_loss  accuracy  time    \n"
        "0         0.412       0.391       0.85      00:10     \n1         0.312       0.291       0.95      00:10     "
    )
    assert held_out(read(text)) == [(1, 0.391, 0.85), (2, 0.291, 0.95)]
    text = "      Epoch    GPU_mem   box_loss   cls_loss       Size\n      1/100      2.2G      1.2      3.1        640"
    assert steps(read(text)) == [(1, 4.3)]


@pytest.mark.parametrize("line", ["Saving the model to models/digits now", "x"])
def test_table_ends_with_a_line_of_another_kind(line):
    head, row = "epoch     train_loss  valid_loss", "{}         0.412       0.391"
    assert len(held_out(read("\n".join((head, row.format(0), "----------", row.format(1)))))) == 2
    assert len(held_out(read("\n".join((head, row.format(0), line, row.format(1)))))) == 1


@pytest.mark.parametrize("word", ["nan", "NaN", "NAN", "inf", "-Infinity"])
def test_losses_that_are_no_numbers_are_read_in_any_case(word):
    [(step, loss)] = steps(read(f"step=40 loss={word}"))
    assert (step, math.isfinite(loss)) == (40, False)


@pytest.mark.parametrize(
    "line",
    [
        "Loss is nan, stopping training",
        "loss is NaN, leaving",
        "RuntimeError: NaN loss during training.",
        "tensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError: NaN loss during training.",
        "FloatingPointError: Loss became infinite or NaN at iteration=10!",
        "ValueError: The loss returned in `training_step` is nan.",
        "Batch 5: Invalid loss, terminating training",
    ],
)
def test_words_of_divergence(line):
    assert read(line) == [Diverged()]


def test_every_line_without_a_metric_is_left_alone():
    lines = NO_METRICS.read_text().splitlines()
    assert len(lines) > 60
    wrong = {line: found for line in lines if (found := read(line, 100))}
    assert wrong == {}
    # Not in their order either: a head of an epoch or of a table does not make metrics of them.
    assert read("\n".join(lines), 100) == []


def test_another_format_wins_once_it_has_a_step():
    reader = LogReader()
    reader.read(b"INFO:tensorflow:loss = 0.5, step = 10\n")
    assert reader.read(b"step=40 loss=0.1\n") == []


def test_one_worker_of_several_is_followed():
    text = "[rank1]: step=10 loss=0.5\n[rank0]: step=10 loss=0.7\n[rank1]: step=20 loss=0.4"
    assert steps(read(text)) == [(10, 0.5), (20, 0.4)]


def test_lines_are_counted():
    reader = LogReader()
    reader.read(b"hello\n\nINFO:themis:begun incarnation = 2\nstep=1 loss=0.3\nstep=1 loss is low\n")
    assert (reader.lines_seen, reader.lines_read, reader.first_line) == (3, 1, "hello")


@pytest.mark.parametrize("metric", [None, MetricSpec(name="val_loss")])
def test_line_with_a_training_and_a_held_out_loss_counts_once(metric):
    reader = LogReader(metric=metric)
    reader.read(b"epoch 1 train_loss=0.3 val_loss=0.4\nEpoch 1/2\n10/10 - 1s - loss: 0.3 - val_loss: 0.4\n")
    assert (reader.lines_seen, reader.lines_read) == (3, 2)


def test_step_without_loss_is_not_a_line_with_a_metric():
    reader = LogReader()
    reader.read(b'INFO:themis:report {"step": 3}\n')
    assert (reader.lines_seen, reader.lines_read) == (1, 0)


def values(text, **metric):
    return [(each.step, each.value) for each in read(text, metric=MetricSpec(**metric)) if isinstance(each, Metric)]


@pytest.mark.parametrize(
    ("line", "metric"),
    [
        ("step 40 rmse 0.25", {"name": "rmse"}),
        ('{"step": 40, "rmse": 0.25}', {"name": "rmse"}),
        ("step=40 | valid/mIoU: 0.25", {"name": "valid/mIoU"}),
        ("Step 40/1000; acc:  12.3; xent: 0.25; lr: 0.1", {"name": "xent"}),
        ("iter 40 >> score <0.25>", {"regex": r"score <([0-9.]+)>"}),
        ("40 >> score <0.25>", {"regex": r"(?P<step>\d+) >> score <(?P<value>[0-9.]+)>"}),
        ("INFO:tensorflow:rmse = 0.25, loss = 0.5, step = 40", {"name": "rmse"}),
    ],
)
def test_declared_metric(line, metric):
    assert values(line, **metric) == [(40, 0.25)]


@pytest.mark.parametrize(
    "metric", [{"name": "SCORE", "mode": "max"}, {"regex": r"^ *\d+ +(?P<step>\d+) .* (?P<value>[\d.]+)$"}]
)
def test_declared_metric_is_a_column_of_a_table_or_what_a_regular_expression_finds_in_its_rows(metric):
    table = ["E    #       LOSS NER  ENTS_F  SCORE ", "---  ------  --------  ------  ------"]
    rows = ["  0       0     53.67    0.00    0.17", "  5      50    503.85  100.00    0.25", "saved 50 rows"]
    assert values("\n".join([*table, *rows]), **metric) == [(0, 0.17), (50, 0.25)]


@pytest.mark.parametrize(
    ("line", "loss", "held_out"),
    [
        ("Epoch 3: RMSE = 0.5", 0.5, None),
        ("epoch 3 MSE: 0.5", 0.5, None),
        ("Epoch 3 | val_mae: 0.6", None, 0.6),
        ("epoch 3: train RMSE 0.5, test RMSE 0.6", 0.5, 0.6),
        ("Epoch 3 training cost: 0.5 - val cost: 0.6", 0.5, 0.6),
        ("Iter 3 .. NLL: 0.5", 0.5, None),
        ("iter: 3, nll 0.5", 0.5, None),
        ("Epoch 3 | train PPL 112.3 | val PPL 130.2", 112.3, 130.2),
        ("step 3 perplexity 112.3", 112.3, None),
    ],
)
def test_errors_of_regressions_are_losses(line, loss, held_out):
    profile = JobProfile()
    for record in LogReader().read(f"{line}\n".encode()):
        profile.feed(record)
    assert profile.iteration == 3
    assert profile.loss == pytest.approx(math.nan if loss is None else loss, nan_ok=True)
    assert profile.validation_loss == held_out


def test_errors_beside_named_losses_are_left_out():
    records = LogReader().read(b"epoch 1 loss=0.7\nEpoch 1: RMSE = 3.5\nepoch 2 loss=0.6\n")
    assert records == [StepLoss(step=1, loss=0.7), StepLoss(step=2, loss=0.6)]


@pytest.mark.parametrize(
    ("line", "iteration"),
    [
        ("<eval > ep 03/08 | ce -> 0.5102 | top1 30.0%", 3),
        ("Epoch 3/8 | ce 0.5 | top1 30.0%", 3),
        ("epoch 2.5 top1 30.0", None),
        ("Epoch 3/8 [40/100] top1 30.0", None),
        ("Test: [97/97] top1 30.0", None),
    ],
)
def test_epoch_of_a_line_with_the_declared_metric_is_progress(line, iteration):
    reader = LogReader(metric=MetricSpec(name="top1", mode="max"))
    reader.expect(8)
    *steps, metric = reader.read(f"{line}\n".encode())
    assert metric.value == 30.0
    assert steps == ([] if iteration is None else [StepLoss(step=iteration, loss=None)])


def test_declared_metric_of_a_step_within_an_epoch_has_no_step():
    assert values("Epoch 2 Step 40/100 rmse 0.25", name="rmse") == [(None, 0.25)]
    assert values("|    ep_rew_mean          | 22.1        |", name="ep_rew_mean") == [(None, 22.1)]


def test_declared_metric_is_no_other_one():
    assert values("step 40 val_rmse 0.25 rmse_scale 3", name="rmse") == []


def test_declared_metric_is_read_beside_a_known_format():
    text = "Epoch 1/2\n10/10 - 1s - 5ms/step - loss: 0.3 - my_auc: 0.75\n"
    records = read(text, metric=MetricSpec(name="my_auc", mode="max"))
    assert steps(records) == [(10, 0.3)]
    assert [record for record in records if isinstance(record, Metric)] == [Metric(value=0.75)]


def test_value_that_is_no_number_is_no_metric():
    assert values("score <low>", regex=r"score <(\w+)>") == []


def test_losses_without_steps_count():
    assert read("loss: 0.5") == [LossOnly(loss=0.5)]


def test_profile_keeps_the_newest_metric():
    profile = JobProfile()
    profile.started(1, Level.SLOT)
    for record in (Metric(value=3.0, step=20), Metric(value=9.0, step=10), Metric(value=2.0)):
        profile.feed(record)
    assert profile.metric == 2.0


def golden(name, iterations):
    reader = LogReader(metric=None)
    reader.expect(iterations)
    return reader.read((NO_METRICS.parent / name).read_bytes())


@pytest.mark.parametrize(("iterations", "counted"), [(60, (20, 40, 60)), (3, (1, 2, 3))])
def test_lightning_bars_count_steps_or_epochs(iterations, counted):
    records = golden("lightning_tqdm.log", iterations)
    assert list(dict.fromkeys(steps(records))) == list(zip(counted, (0.384, 0.287, 0.241), strict=True))
    assert held_out(records)[-1] == (iterations, 0.254, None)


@pytest.mark.parametrize("iterations", [60, 3])
def test_rich_bar_of_lightning_counts_epochs_from_zero(iterations):
    records = golden("lightning_rich.log", iterations)
    assert (steps(records), held_out(records)) == ([(iterations, 0.241)], [(iterations, 0.254, None)])


def test_steps_of_the_hugging_face_trainer_are_those_of_its_bar():
    records = golden("trainer_bars.log", 60)
    counted = [step for step, _ in steps(records)]
    # Two lines came before the bar was drawn for the first time.
    assert counted[2:] == sorted(counted[2:]) and counted[-1] == 60
    assert held_out(records) == [(20, 0.6927, None), (40, 0.6923, None), (60, 0.6922, None)]


@pytest.mark.parametrize("name", ["trainer_bars.log", "trainer_lines.log"])
def test_hugging_face_trainer_counts_epochs_if_the_job_does(name):
    records = golden(name, 3)
    assert steps(records)[-1] == (3, 0.6921)
    assert held_out(records) == [(1, 0.6927, None), (2, 0.6923, None), (3, 0.6922, None)]


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("Epoch: 0004 cost= 0.502", LinePlace(epoch=4)),
        ("Cost after epoch 4: 0.502", LinePlace(epoch=4)),
        ("Cost after iteration 4: 0.502", LinePlace(step=4)),
        ("step 4, cost: 0.502", LinePlace(step=4)),
    ],
)
def test_cost_is_of_the_step_or_the_epoch_that_its_line_names(line, place):
    found = read_cost(line)
    assert (found.place, found.loss) == (place, 0.502)
