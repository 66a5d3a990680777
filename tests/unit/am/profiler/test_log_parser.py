"""Every line form of the ecosystem's page and of our own programs, and junk."""

import math

import pytest

from am.profiler.parser import parse_line, parse_lines
from am.profiler.records import (
    CheckpointSaved,
    ExamplesPerSecond,
    LossOnly,
    Replay,
    Restored,
    SavingCheckpoint,
    StepLoss,
    StepsPerSecond,
    Validation,
)

TF = "INFO:tensorflow:"
ABSL = "I0728 12:00:01.123456 140735 basic_session_run_hooks.py:262] "


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (f"{TF}loss = 6.3980675, step = 0", StepLoss(step=0, loss=6.3980675)),
        (f"{TF}loss = 2.1, step = 100 (1.234 sec)", StepLoss(step=100, loss=2.1, seconds=1.234)),
        (f"{ABSL}loss = 2.1, step = 100 (1.234 sec)", StepLoss(step=100, loss=2.1, seconds=1.234)),
        (f"{TF}step = 7, loss = 1e-05 (0.100 sec)", StepLoss(step=7, loss=1e-5, seconds=0.1)),
        (f"{TF}global_step = 9, learning_rate = 0.1, loss = -.5", StepLoss(step=9, loss=-0.5)),
        (f"{TF}loss = inf, step = 3", StepLoss(step=3, loss=math.inf)),
        (f"{TF}loss = 6.39, learning_rate = 0.1", LossOnly(loss=6.39)),
        (f"{TF}loss = 6.39, learning_rate = 0.1 (2.000 sec)", LossOnly(loss=6.39)),
        (f"{TF}global_step/sec: 2.34092", StepsPerSecond(rate=2.34092)),
        (f"{TF}Average examples/sec: 354.236 (38.6479), step = 110", ExamplesPerSecond(step=110, mean_rate=354.236)),
        (
            f"{TF}Validation (step 1): loss = 1220.6445, global_step = 1, accuracy = 0.1",
            Validation(step=1, loss=1220.6445, accuracy=0.1),
        ),
        (f"{TF}Validation (step 4): loss = 2.5, global_step = 4", Validation(step=4, loss=2.5)),
        (
            f"{TF}Saving dict for global step 200: accuracy = 0.97, global_step = 200, loss = 0.08",
            Validation(step=200, loss=0.08, accuracy=0.97),
        ),
        (f"{TF}Saving checkpoints for 120 into model.ckpt.", SavingCheckpoint(iteration=120)),
        (
            "INFO:themis:checkpoint iteration = 120, seconds = 0.012, bytes = 12345",
            CheckpointSaved(iteration=120, seconds=0.012, bytes=12345),
        ),
        ("INFO:themis:restored iteration = 120, seconds = 0.4", Restored(iteration=120, seconds=0.4)),
        (
            "INFO:themis:replay model = resnet50, emulated, time_scale = 30",
            Replay(model="resnet50", time_scale=30.0),
        ),
        (b"INFO:themis:restored iteration = 5, seconds = 1\r\n", Restored(iteration=5, seconds=1.0)),
    ],
)
def test_known_lines(line, record):
    assert parse_line(line) == record


def test_nan_losses():
    record = parse_line(f"{TF}loss = nan, step = 12")
    assert record.step == 12
    assert math.isnan(record.loss)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "hello",
        "loss = 2.1, step = 100",
        "WARNING:tensorflow:loss = 2.1, step = 100",
        TF,
        f"{TF}Create CheckpointSaverHook.",
        f"{TF}loss = 2.1, step = ",
        f"{TF}loss = 2.1, ste",
        f"{TF}loss = two, step = 100",
        f"{TF}loss = 2.1; step = 100",
        f"{TF}global_step/sec: fast",
        f"{TF}global_step/sec: 2.3e",
        f"{TF}Validation (step x): loss = 1",
        f"{TF}Validation (step 1): loss = 1, note = later",
        "INFO:themis:checkpoint iteration = 120, seconds = 0.012",
        "INFO:themis:checkpoint iteration = -1, seconds = 0.012, bytes = 3",
        "INFO:themis:restored iteration = 1.5, seconds = 0.4",
        "INFO:themis:something new = 1",
        b"\xff\xfe\x00INFO:tensorflow:loss = 2.1, step = 100",
        f"{TF}loss = 2.1, step = " + "9" * 5000,
        f"{TF}loss = " + "9" * 5000 + ", step = 1",
        f"{TF}" + "a = 1, " * 100_000,
    ],
)
def test_junk_and_partial_lines(line):
    assert parse_line(line) is None


def test_a_step_too_long_for_a_number_leaves_the_loss():
    assert parse_line(f"{TF}loss = 2.1, step = 1e30") == LossOnly(loss=2.1)


def test_bytes_that_are_no_text_spoil_only_their_line():
    lines = [b"\xff\xff", b"INFO:tensorflow:global_step/sec: 2", b"\x80 INFO:tensorflow:global_step/sec: 2"]
    assert parse_lines(lines) == [StepsPerSecond(rate=2.0)]


def test_another_format_is_one_more_function():
    def parse_keras(line):
        return LossOnly(loss=1.0) if line.startswith("Epoch") else None

    assert parse_line("Epoch 3/10", formats=[parse_keras]) == LossOnly(loss=1.0)


def test_our_own_programs_lines_are_read():
    import io

    from tf_jobs.logs import TrainingLog

    stream = io.StringIO()
    log = TrainingLog(stream)
    log.replay("vgg16", 30.0)
    log.restored(100, 0.25)
    log.loss(120, 0.5, 10.0)
    log.loss(140, 0.25, 12.0)
    log.validation(140, 0.3, 0.9)
    log.checkpoint(140, "ckpt-140", 0.5, 4096)
    assert parse_lines(stream.getvalue().split("\n")) == [
        Replay(model="vgg16", time_scale=30.0),
        Restored(iteration=100, seconds=0.25),
        StepLoss(step=120, loss=0.5),
        StepsPerSecond(rate=10.0),
        StepLoss(step=140, loss=0.25, seconds=2.0),
        Validation(step=140, loss=0.3, accuracy=0.9),
        SavingCheckpoint(iteration=140),
        CheckpointSaved(iteration=140, seconds=0.5, bytes=4096),
    ]
