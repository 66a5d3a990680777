"""Every line form of the ecosystem's page and of our own programs, and junk."""

import math

import pytest
from log_lines import parse_line

from am.profiler.log_format import LineFormat
from am.profiler.parser import MAX_RECORD_BYTES, SILENCE_RECORDS, LogReader
from am.profiler.records import (
    CheckpointSaved,
    ExamplesPerSecond,
    Imported,
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
        ("INFO:themis:imported seconds = 2.31, after = 0.2", Imported(seconds=2.31, after_s=0.2)),
        ("INFO:themis:restored iteration = 120, seconds = 0.4", Restored(iteration=120, seconds=0.4)),
        (
            "INFO:themis:replay model = resnet50, emulated, time_scale = 30",
            Replay(model="resnet50", time_scale=30.0),
        ),
        ("INFO:themis:restored iteration = 5, seconds = 1\r", Restored(iteration=5, seconds=1.0)),
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
        f"\ufffd{TF}loss = 2.1, step = 100",
        f"{TF}loss = 2.1, step = " + "9" * 5000,
        f"{TF}loss = " + "9" * 5000 + ", step = 1",
        f"{TF}" + "a = 1, " * 100_000,
    ],
)
def test_junk_and_partial_lines(line):
    assert parse_line(line) is None


def test_overlong_step_keeps_loss():
    assert parse_line(f"{TF}loss = 2.1, step = 1e30") == LossOnly(loss=2.1)


def read(data, **options):
    return LogReader(**options).read(data)


def test_invalid_utf8_affects_only_its_line():
    lines = [b"\xff\xff", b"INFO:tensorflow:global_step/sec: 2", b"\x80 INFO:tensorflow:global_step/sec: 2", b""]
    assert read(b"\n".join(lines)) == [StepsPerSecond(rate=2.0)]


def test_added_format_is_used():
    def epoch():
        return LineFormat(b"Epoch ", lambda line: LossOnly(loss=float(line.split()[1])))

    assert read(b"Epoch 3\nEpisode 4\n", formats=[epoch]) == [LossOnly(loss=3.0)]


def test_zero_bytes_are_ignored():
    hole = b"\0" * 1000 + b"INFO:tensorflow:loss = 2.0, step = 1\n"
    assert read(hole) == [StepLoss(step=1, loss=2.0)]
    wide = "first\nINFO:tensorflow:loss = 2.0, step = 1\n".encode("utf-16-le")
    assert read(wide) == [StepLoss(step=1, loss=2.0)]


def test_overlong_lines_are_skipped():
    assert read(b"INFO:tensorflow:loss = 2.0, step = 1" + b" " * MAX_RECORD_BYTES + b"x\n") == []


def test_the_last_drawing_of_a_line_counts():
    drawings = (
        b"\rINFO:tensorflow:x\b\b\r 3/8 - 1s - 2ms/step - loss: 1.0\b\b\b\r 4/8 - 1s - 2ms/step - loss: 0.5\b\b\r"
    )
    records = read(b"Epoch 1/1\n" + drawings)
    assert records[-1] == StepLoss(step=4, loss=0.5, mean_since=0)
    assert [record for record in records if isinstance(record, StepLoss)] == records[-1:]


LINE = b"INFO:tensorflow:loss = 0.5, step = 7 (1.000 sec)"
STEP_LOSS = StepLoss(step=7, loss=0.5, seconds=1.0)


@pytest.mark.parametrize(
    "drawn",
    [
        b"\r  7%|#   | 7/100 [00:01<00:09]\r" + b" " * 40 + b"\r" + LINE,
        b"  7%|#   | 7/100 [00:01<00:09]\r" + LINE,
        b" 3/10 [===>....] - ETA: 1s - loss: 0.5\r" + LINE,
        b"something\r7/100\r" + LINE + b"\r",
        b"\b\b\b\b" + LINE,
        b"\x1b[32m" + LINE + b"\x1b[0m",
        b"\x1b[32mINFO\x1b[0m" + LINE[4:],
        b"[0] \r 7/100 it\r" + LINE,
        b"[progress] 7/100\r[0] " + LINE,
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_is_read_as_a_terminal_shows_it(drawn, end):
    assert read(drawn + end) == [STEP_LOSS]


def test_tag_holds_for_all_drawings_of_its_line():
    """Else what another worker draws would be taken for a line without a tag."""
    bar = b"\r 1/8 [>..] - ETA: 1s - loss: 1.0\r 2/8 [>..] - ETA: 1s - loss: 1.0\n"
    reader = LogReader()
    assert len(reader.read(b"[1,0]<stdout>:Epoch 1/1\n[1,0]<stdout>:" + bar)) == 1
    assert reader.read(b"[1,1]<stdout>:" + bar) == []


@pytest.mark.parametrize(
    "time",
    [
        b"2026-01-01T00:00:00Z ",
        b"2026-01-01T00:00:00.123456789Z ",
        b"2026-01-01T00:00:00.123+01:00 ",
        b"2026-01-01T00:00:00+0100 ",
    ],
)
def test_time_before_line_is_ignored(time):
    assert read(time + LINE + b"\n" + time.replace(b"00:00:", b"00:01:") + LINE + b"\n") == 2 * [STEP_LOSS]
    assert read(time + b"Epoch 1/1\n" + time + b"\r 1/8 [>..] - ETA: 1s - loss: 1.0\n")[-1].step == 1


class TestWorkers:
    def line(self, tag, step, loss=1.0):
        return f"{tag}INFO:tensorflow:loss = {loss}, step = {step} (1.000 sec)\n".encode()

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("[1,0]<stdout>:", "[1,1]<stdout>:"),
            ("(worker pid=7) ", "(worker pid=8) "),
            ("worker-0: ", "worker-1: "),
            ("[worker 0] ", "[worker 1] "),
        ],
    )
    def test_only_one_worker_is_accepted(self, one, other):
        data = b"".join(self.line(tag, step, loss) for step in (10, 20) for tag, loss in ((one, 1.0), (other, 9.0)))
        assert [(record.step, record.loss) for record in read(data)] == [(10, 1.0), (20, 1.0)]

    @pytest.mark.parametrize("tag", ["[1,{}]<stdout>:", "(worker pid={}) ", "worker-{}: ", "[worker {}] "])
    def test_tag_after_time_identifies_worker(self, tag):
        data = b"".join(
            self.line(f"2026-01-01T00:00:{step}.{worker}Z {tag.format(worker)}", step, loss=worker)
            for step in (10, 20, 30)
            for worker in (0, 1)
        )
        assert [(record.step, record.loss) for record in read(data)] == [(10, 0.0), (20, 0.0), (30, 0.0)]

    def test_time_and_tag_hold_for_all_drawings_of_line(self):
        bar = b"\r 1/8 [>..] - ETA: 1s - loss: 1.0\r 2/8 [>..] - ETA: 1s - loss: 1.0\n"
        one, other = (b"2026-01-01T00:00:00Z worker-%d: " % worker for worker in (0, 1))
        assert [record.step for record in read(one + b"Epoch 1/1\n" + one + bar + other + bar)] == [2]

    def test_silent_worker_is_replaced(self):
        reader = LogReader()
        reader.read(self.line("[0] ", 1))
        others = [reader.read(self.line("[1] ", step)) for step in range(2, SILENCE_RECORDS + 10)]
        assert others[0] == []
        assert [record.step for record in others[-1]] == [SILENCE_RECORDS + 9]

    def test_times_do_not_identify_workers(self):
        data = self.line("[2026-07-28 12:00:01] ", 10) + self.line("[2026-07-28 12:00:02] ", 20)
        assert [record.step for record in read(data)] == [10, 20]


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
    assert read(stream.getvalue().encode()) == [
        Replay(model="vgg16", time_scale=30.0),
        Restored(iteration=100, seconds=0.25),
        StepLoss(step=120, loss=0.5),
        StepsPerSecond(rate=10.0),
        StepLoss(step=140, loss=0.25, seconds=2.0),
        Validation(step=140, loss=0.3, accuracy=0.9),
        SavingCheckpoint(iteration=140),
        CheckpointSaved(iteration=140, seconds=0.5, bytes=4096),
    ]
