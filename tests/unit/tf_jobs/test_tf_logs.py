"""The exact log lines, which profilers parse."""

import io

from tf_jobs.logs import TrainingLog


def test_lines_are_exactly_the_estimators():
    stream = io.StringIO()
    log = TrainingLog(stream)
    log.replay("resnet50", 30.0)
    log.restored(100, 0.4)
    log.loss(101, 0.69314718, 10.0)
    log.loss(120, 0.5, 11.2344)
    log.loss(140, float("nan"), 13.0)
    log.copied(140, 0.0013)
    log.checkpoint(140, "folder", 0.0123, 12345)
    log.validation(140, 0.1234, 0.9722)
    log.validation(140, 0.1234, None)
    assert stream.getvalue().splitlines() == [
        "INFO:themis:replay model = resnet50, emulated, time_scale = 30",
        "INFO:themis:restored iteration = 100, seconds = 0.400",
        "INFO:tensorflow:loss = 0.6931472, step = 101",
        "INFO:tensorflow:global_step/sec: 15.3921",
        "INFO:tensorflow:loss = 0.5, step = 120 (1.234 sec)",
        "INFO:tensorflow:global_step/sec: 11.3276",
        "INFO:tensorflow:loss = nan, step = 140 (1.766 sec)",
        "INFO:themis:copied iteration = 140, stalled = 0.001300",
        "INFO:tensorflow:Saving checkpoints for 140 into folder.",
        "INFO:themis:checkpoint iteration = 140, seconds = 0.012, bytes = 12345",
        "INFO:tensorflow:Validation (step 140): loss = 0.1234, global_step = 140, accuracy = 0.9722",
        "INFO:tensorflow:Validation (step 140): loss = 0.1234, global_step = 140",
    ]


def test_every_line_is_flushed():
    class Counting(io.StringIO):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    stream = Counting()
    TrainingLog(stream).loss(1, 0.5, 0.0)
    assert stream.flushes == 1
