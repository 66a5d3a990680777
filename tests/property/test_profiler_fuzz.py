"""The profiler on any log and any event file: nothing crashes it, nothing makes progress run backwards.

No value of a job is then too large for a message: messages are built as in the app master.
"""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_lines import parse_line

from am.jobs.run import JobRun
from am.profiler.event_format import EventReader, Role
from am.profiler.event_message import EventError, read_event
from am.profiler.follower import LogFollower
from am.profiler.parser import LogReader
from am.profiler.profile import JobProfile
from am.profiler.records import StepLoss, believable
from am.status import job_status
from am.tuners.port import TunerPlan
from themis.apps import JobSpec
from themis.bids import AppReport, GangDemand
from themis.cluster import Level
from themis.wire.values import report_to_message

GOLDEN = Path(__file__).parents[1] / "golden" / "profiler"
LOGS = sorted(GOLDEN.glob("*.log"))
EVENT_FILES = sorted(GOLDEN.glob("*_events/**/*.tfevents.*"))

STARTS = [
    *("INFO:tensorflow:", "INFO:themis:", "I0728 12:00:01.123456 140 a.py:1] ", "[1,0]<stdout>:", "worker-1: ", ""),
    *(
        "Epoch ",
        "\r",
        "\x1b[1m",
        " 3/8 ",
        "8/8 - ",
        "9/Unknown ",
        "10\timages/sec: ",
        "Batch size: ",
        "[2026-01-01 1:01] ",
    ),
]
PIECES = [
    *(
        "loss = ",
        "step = ",
        "nan",
        "1e5",
        "-3",
        ", ",
        " (",
        " sec)",
        "Validation (step ",
        "): ",
        "seconds = ",
        "bytes = ",
    ),
    *("checkpoint iteration = ", "restored iteration = ", "global_step/sec: ", "Saving checkpoints for ", " into m."),
    *(
        "begun incarnation = ",
        "replay model = ",
        ", emulated, time_scale = ",
        "9" * 30,
        "7",
        "1/3",
        "3/3",
        "\u0663",
        "\0",
        "\b\b",
        "\r",
        "\n",
    ),
    *(" - loss: ", " - val_loss: ", "3s", "24ms/step", " - ", ": ", "[==>..]", "━━", "\x1b[0m", "ETA: 1:02", "Unknown"),
    *(" +/- 0.0 (jitter = 0.0)\t", "64 global", "\t", "0.5"),
    *(
        "{'a': 1,",
        "}",
        "| total_timesteps | ",
        "| ",
        "-----",
        " > EVALUATION",
        "Step ",
        "loss 3 ",
        "val ppl: ",
        "xent ",
        "%|",
    ),
]
LINES = st.builds(
    lambda start, pieces: start + "".join(pieces),
    st.sampled_from(STARTS),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=10),
)
REAL_LINES = st.sampled_from(sorted({line for path in LOGS for line in path.read_bytes().splitlines(keepends=True)}))
ANY_LOG = st.one_of(
    st.binary(max_size=200),
    st.lists(LINES, max_size=12).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass")),
    st.lists(st.one_of(REAL_LINES, st.binary(max_size=8)), max_size=30).map(b"".join),
)


HUGE_EPOCHS = b"".join(
    b"Epoch %d/999999999\n99999999999/99999999999 - 1s - 24ms/step - loss: 0.%d - val_loss: 0.5\n" % (epoch, epoch % 7)
    for epoch in range(999999990, 1000000000)
)


def assert_tellable(profile):
    """Build the job's messages to the ResourceManager: integers on the wire have 64 bits."""
    spec = JobSpec(job_id="j", iterations_total=60)
    job = JobRun(spec=spec, folder=Path(), profile=profile, follower=LogFollower(Path("log")))
    app = SimpleNamespace(search=SimpleNamespace(target_of=lambda job, plan: job.profile.iteration))
    plan = TunerPlan(phase=0, phases=(), targets={}, stopped=frozenset(), finished=False, best=None)
    assert job_status(app, job, plan).iteration == profile.iteration
    demand = GangDemand(
        job_id="j", min_gpus=1, max_gpus=1, unit_gpus=1, slowdown=profile.slowdown(), work_left_gpu_s=1.0,
        forecast=profile.forecast(1.0),
    )  # fmt: skip
    report = AppReport(app_id="a", round_id=1, rho=1.0, t_shared_s=1.0, t_ideal_s=1.0, demands=(demand,))
    report_to_message(report)


@settings(max_examples=150)
@given(st.lists(ANY_LOG, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
@example([b"Epoch 2/1\n1/1 - 1s\nEpoch 1/1\n1/1 - 1s"], [False] * 6)
@example([HUGE_EPOCHS], [False] * 6)
def test_any_log_is_read_and_progress_never_runs_backwards(logs, restarts):
    reader, profile = LogReader(), JobProfile()
    profile.started(1, Level.SLOT)
    progress, now_s = [0], 0.0
    for log, restart in zip(logs, restarts, strict=False):
        if restart:
            profile.started(2, Level.RACK)
        for record in believable(reader.read(log)):
            profile.feed(record)
            progress.append(profile.iteration)
        now_s += 1.0
        profile.look(now_s)
        assert profile.iteration_s is None or profile.iteration_s > 0.0
        assert profile.slowdown().slot >= 1.0
        assert_tellable(profile)
    assert all(before <= after for before, after in itertools.pairwise(progress))


@given(LINES)
def test_lines_that_nearly_fit_are_read(line):
    parse_line(line.encode("utf-8", "replace").decode("utf-8", "replace"))


def pieces_of(data, cuts):
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def profile_of(records):
    profile = JobProfile()
    for record in records:
        profile.feed(record)
    return profile.iteration, str(profile.loss), profile.validation_loss, profile.accuracy, profile.checkpoint


def tqdm_log():
    """What `tqdm.write` and `logging_redirect_tqdm` make: the bar is wiped out, a line written, the bar drawn again."""
    parts = []
    for step in range(10, 100, 10):
        bar = f"\r {step}%|{'#' * (step // 10):10}| {step}/100 [00:01<00:01, 49.90it/s]"
        line = f"INFO:tensorflow:loss = {1 / step:.4f}, step = {step} (1.000 sec)\n"
        parts += [bar, "\r" + " " * len(bar) + "\r", line, bar]
    return "".join(parts).encode()


DRAWN = {path.stem: path.read_bytes() for path in LOGS} | {"tqdm": tqdm_log()}


def test_lines_between_the_drawings_of_a_bar_are_read():
    assert profile_of(LogReader().read(DRAWN["tqdm"]))[:2] == (90, "0.0111")


@pytest.mark.parametrize("name", DRAWN)
@settings(max_examples=30)
@given(data=st.data())
def test_logs_give_equal_records_in_any_chunks(name, data):
    """As a follower hands them out: cut behind any line's end, or behind any drawing of a bar."""
    log = DRAWN[name]
    ends = [place + 1 for place, byte in enumerate(log) if byte in b"\r\n"]
    cuts = data.draw(st.lists(st.sampled_from(ends), max_size=12))
    reader = LogReader()
    records = [record for part in pieces_of(log, cuts) for record in reader.read(part)]
    assert profile_of(records) == profile_of(LogReader().read(log))


@pytest.mark.parametrize("path", EVENT_FILES, ids=lambda path: "-".join(path.parts[-3:-1]))
@settings(max_examples=30)
@given(cuts=st.lists(st.integers(0), max_size=8))
def test_real_event_files_give_equal_records_in_any_chunks(path, cuts):
    file = path.read_bytes()
    for role in Role:
        reader = EventReader(role)
        assert [record for part in pieces_of(file, cuts) for record in reader.read(part)] == EventReader(role).read(
            file
        )


@settings(max_examples=100)
@given(
    st.sampled_from(EVENT_FILES), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=5), st.integers(0)
)
def test_corrupt_event_files_give_a_subset_of_their_records(path, wrong, length):
    file = bytearray(path.read_bytes())
    whole = EventReader(Role.TRAINING).read(bytes(file))
    for place, byte in wrong:
        file[place % len(file)] = byte
    reported = EventReader(Role.TRAINING).read(bytes(file[: length % (len(file) + 1)]))
    # The checksums leave out what is wrong; only seconds since a line before may then be others.
    known = {(record.step, record.loss) for record in whole if isinstance(record, StepLoss)}
    assert {(record.step, record.loss) for record in reported if isinstance(record, StepLoss)} <= known


@settings(max_examples=150)
@given(st.binary(max_size=120))
def test_any_bytes_are_an_event_or_none(data):
    try:
        read_event(data)
    except EventError:
        return


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_read_as_event_files(parts):
    reader = EventReader(Role.EVALUATION)
    for part in parts:
        reader.read(part)
