"""The line between two incarnations in a job's log, and what its reader makes of it: live, and all at once."""

from __future__ import annotations

import psutil
import pytest

from am.jobs import incarnation_marker
from am.jobs.incarnation_marker import mark_incarnation
from am.profiler.follower import LogFollower
from am.profiler.job_reader import JobReader
from am.profiler.parser import SILENCE_RECORDS
from am.profiler.profile import JobProfile
from am.profiler.themis_format import begun_line
from themis.cluster import Level


def fit(epochs, *, whole=True, first=1):
    """A `fit` of 100 steps an epoch, in lines; one that is not whole was killed in its last epoch."""
    heads = [f"Epoch {epoch}/{epochs}\n" for epoch in range(first, epochs + 1)]
    lines = "".join(f"{head}100/100 - 3s - 24ms/step - loss: 0.5\n" for head in heads)
    return lines if whole else lines[: lines.rindex("100/100")]


def steps(begin, end, tag=""):
    return "".join(f"{tag}INFO:tensorflow:loss = 0.5, step = {step} (1.000 sec)\n" for step in range(begin, end, 10))


class Story:
    """A job whose incarnations write to one log, and its profile: read as they write, or by the next attempt."""

    def __init__(self, log):
        self.log = log
        self.reader, self.profile = JobReader(LogFollower(log), []), JobProfile()
        self.reached = []

    def run(self, text, incarnation):
        mark_incarnation(self.log, incarnation)
        self.profile.started(1, Level.SLOT)
        with self.log.open("a") as file:
            file.write(text)
        for record in [*self.reader.read(0.0), *self.reader.catch_up(0.0)]:
            self.profile.feed(record)
        self.reached.append(self.profile.iteration)

    def read_at_once(self):
        profile = JobProfile()
        for record in JobReader(LogFollower(self.log), []).catch_up(0.0):
            profile.feed(record)
        return profile.iteration


@pytest.mark.parametrize(
    ("incarnations", "reached"),
    [
        ([fit(2) + fit(4)], [600]),
        ([fit(2) + fit(4, whole=False), fit(2) + fit(4)], [500, 600]),
        ([fit(2) + fit(4, whole=False)] * 3 + [fit(2), fit(2) + fit(4)], [500, 500, 500, 500, 600]),
        # Killed after its last bar, in a final evaluation.
        ([fit(3) + "40/40 - 1s - 5ms/step - loss: 0.4\n", fit(3)], [300, 300]),
        # One epoch a fit, over and over.
        ([fit(1) * 3 + "Epoch 1/1\n", fit(1) * 3, fit(1) * 4], [300, 300, 400]),
        # It goes on where it was, as it should: with `initial_epoch`.
        ([fit(4, whole=False), fit(6, first=4)], [300, 600]),
        # It goes on with what is left, as a fit of its own: nothing in the log says so, and progress stands still.
        ([fit(4, whole=False), fit(1)], [300, 300]),
        # Bars before the first epoch of an incarnation are no training, though the one before died in the midst of one.
        ([fit(2, whole=False), "100/100 - 3s - 24ms/step - loss: 0.5\n"], [100, 100]),
    ],
)
def test_keras_progress_counts_for_each_incarnation(tmp_path, incarnations, reached):
    story = Story(tmp_path / "log")
    for incarnation, text in enumerate(incarnations, start=1):
        story.run(text, incarnation)
    assert story.reached == reached
    assert story.read_at_once() == reached[-1]


def test_the_lines_of_a_worker_with_another_tag_are_read_after_a_restart(tmp_path):
    story = Story(tmp_path / "log")
    story.run(steps(10, 60, "(worker pid=7) "), 1)
    story.run(steps(60, 80, "(worker pid=9) "), 2)
    assert story.reached == [50, 70]
    assert story.read_at_once() == 70
    # Within one incarnation another worker is not believed so soon.
    story.run(steps(80, 90, "(worker pid=4) ") + steps(90, 90 + 10 * SILENCE_RECORDS, "(worker pid=5) "), 3)
    assert story.reached[-1] == 80


def test_the_batch_size_is_that_of_the_incarnation(tmp_path):
    story = Story(tmp_path / "log")
    rates = "1\timages/sec: 64.0 +/- 0.0 (jitter = 0.0)\t7.5\n2\timages/sec: 64.0 +/- 0.0 (jitter = 0.0)\t7.5\n"
    story.run("Batch size:  64 global\n" + rates, 1)
    assert story.profile.iteration_s == 1.0
    story.profile.started(2, Level.SLOT)
    story.run("Batch size:  128 global\n" + rates * 3, 2)
    assert story.profile.iteration_s_at(1, Level.SLOT) == pytest.approx(2.0)


def test_an_empty_log_and_none_are_not_marked(tmp_path, caplog):
    log = tmp_path / "log"
    mark_incarnation(log, 1)
    assert not log.exists()
    log.touch()
    mark_incarnation(log, 1)
    assert log.read_bytes() == b""
    assert not caplog.text


@pytest.mark.parametrize(("left", "end"), [(b"whole\n", b""), (b"torn", b"\n"), (b"t", b"\n"), (b"bar\b\b\r", b"\n")])
def test_the_mark_has_a_line_of_its_own(tmp_path, left, end):
    log = tmp_path / "log"
    log.write_bytes(left)
    mark_incarnation(log, 2)
    assert log.read_bytes() == left + end + b"INFO:themis:begun incarnation = 2\n"


def test_marks_leave_no_file_open(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"whole\n")
    for incarnation in range(2, 12):
        mark_incarnation(log, incarnation)
    # Not by the number of open files: what other tests left may be closed meanwhile.
    assert str(log) not in [file.path for file in psutil.Process().open_files()]


def test_concurrent_appends_are_kept(tmp_path, monkeypatch):
    log = tmp_path / "log"
    log.write_bytes(b"first\n")
    with log.open("ab", buffering=0) as other:

        def line_told_late(incarnation):
            # The end of the log has been looked at, nothing is written yet.
            other.write(b"a word as long as a line that would lie over it\n")
            return begun_line(incarnation)

        monkeypatch.setattr(incarnation_marker, "begun_line", line_told_late)
        mark_incarnation(log, 2)
        other.write(b"last\n")
    assert log.read_text().splitlines() == [
        "first",
        "a word as long as a line that would lie over it",
        "INFO:themis:begun incarnation = 2",
        "last",
    ]


def test_a_log_that_cannot_be_written_costs_the_mark_alone(tmp_path, caplog):
    mark_incarnation(tmp_path, 2)
    assert "the start of incarnation 2 is not marked" in caplog.text
