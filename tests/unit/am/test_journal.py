"""The app master's journal: every prefix of it is readable, and only its last line may be torn."""

import contextlib
import json
import math
import resource
import subprocess
import sys

import pytest

from am.journal import JobRecord, Journal, JournalContent, JournalError
from am.tuners.port import Observation, ObservationKind
from themis.lifecycle import JobState

PROGRESS = Observation(kind=ObservationKind.PROGRESS, job_id="j0", iteration=5, loss=0.1 + 0.2)
FAILED = Observation(kind=ObservationKind.FAILED, job_id="j\n\u00e9", iteration=9, loss=math.inf)
RUNNING = JobRecord(
    job_id="j0", state=JobState.RUNNING, incarnation=2, iteration=40, restarts=1, stalls=1, longest_wait_s=1.5
)


def write(path):
    journal = Journal(path)
    journal.observation(PROGRESS)
    journal.job(JobRecord(job_id="j0", state=JobState.WAITING))
    journal.note("attempt", 1)
    journal.job(RUNNING)
    journal.observation(FAILED)
    journal.note("attempt", {"deep": [2]})
    journal.close()


def read(path):
    journal = Journal(path)
    journal.close()
    return journal.content


def test_new_journal_is_empty(tmp_path):
    assert read(tmp_path / "deep" / "journal") == JournalContent()


def test_journal_reads_back_written_lines(tmp_path):
    write(tmp_path / "journal")
    assert read(tmp_path / "journal") == JournalContent(
        observations=(PROGRESS, FAILED), jobs={"j0": RUNNING}, notes={"attempt": {"deep": [2]}}
    )


def test_jobs_of_earlier_versions_are_readable(tmp_path):
    line = {"job": "j0", "state": JobState.RUNNING.value, "incarnation": 2, "iteration": 40, "restarts": 1}
    (tmp_path / "journal").write_text(json.dumps({"job": line}) + "\n")
    known = {"job_id": "j0", "state": JobState.RUNNING, "incarnation": 2, "iteration": 40, "restarts": 1}
    assert read(tmp_path / "journal").jobs == {"j0": JobRecord(**known)}


def test_nan_survives(tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.observation(Observation(kind=ObservationKind.TARGET_REACHED, job_id="j0", iteration=5, loss=math.nan))
    journal.close()
    [observation] = read(tmp_path / "journal").observations
    assert math.isnan(observation.loss)


def test_truncated_journal_keeps_whole_lines(tmp_path):
    write(tmp_path / "journal")
    data = (tmp_path / "journal").read_bytes()
    for length in range(len(data) + 1):
        path = tmp_path / "cut"
        path.write_bytes(data[:length])
        journal = Journal(path)
        journal.note("went on", length)
        journal.close()
        whole = data[:length].count(b"\n")
        content = read(path)
        assert content.notes["went on"] == length
        assert len(content.observations) == (whole >= 1) + (whole >= 5)
        assert path.read_bytes().count(b"\n") == whole + 1


@pytest.mark.parametrize("line", [b"{", b"17", b"null", b'{"job": {"job": "j0"}}', b'{"observation": 3}', b"\xff\xfe"])
def test_damaged_middle_line_is_an_error(tmp_path, line):
    write(tmp_path / "journal")
    data = (tmp_path / "journal").read_bytes().split(b"\n")
    (tmp_path / "journal").write_bytes(b"\n".join([data[0], line, *data[1:]]))
    with pytest.raises(JournalError, match="line 2"):
        read(tmp_path / "journal")


def test_unusable_path_is_an_error(tmp_path):
    with pytest.raises(JournalError):
        Journal(tmp_path)


@contextlib.contextmanager
def a_full_disk(path, left_bytes):
    """Limit this process's files to a number of bytes above the size of this file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + left_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("left_bytes", [0, 1, 10, 70])
def test_lines_wait_in_their_order_while_the_disk_is_full(tmp_path, left_bytes):
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.note("kept", 1)
    with a_full_disk(path, left_bytes):
        journal.note("first", 2)
        journal.note("second", 3)
        assert path.read_bytes().endswith(b"\n")
    assert "second" not in path.read_text()
    journal.note("late", 4)
    assert list(read(path).notes.items()) == [("kept", 1), ("first", 2), ("second", 3), ("late", 4)]
    journal.close()


def test_lines_that_wait_are_written_at_the_end(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path)
    with a_full_disk(path, 0):
        journal.note("waits", 1)
    journal.close()
    assert read(path).notes == {"waits": 1}


def test_too_many_lines_that_wait_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("am.journal_store.MAX_WAITING_BYTES", 100)
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.note("kept", 1)
    with a_full_disk(path, 0):
        journal.note("waits", 2)
        with pytest.raises(JournalError, match="free some space"):
            journal.note("lost", "x" * 100)
    # What comes now must not stand behind a line that is missing.
    with pytest.raises(JournalError, match="cannot write the journal"):
        journal.note("late", 3)
    journal.close()
    assert read(path).notes == {"kept": 1}


def test_torn_line_stays_last_if_it_cannot_be_removed(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.note("kept", 1)

    def refuse(_descriptor, _length):
        raise OSError("read-only by now")

    with monkeypatch.context() as broken, a_full_disk(path, 10):
        broken.setattr("am.journal_store.os.ftruncate", refuse)
        with pytest.raises(JournalError):
            journal.note("lost", 2)
    with pytest.raises(JournalError):
        journal.note("late", 3)
    journal.close()
    assert not path.read_bytes().endswith(b"\n")
    assert read(path).notes == {"kept": 1}


WRITER = """
import sys
from pathlib import Path
from am.journal import Journal
journal = Journal(Path(sys.argv[1]))
number = journal.content.notes.get("number", 0)
while True:
    number += 1
    journal.note("number", number)
    print(number, flush=True)
"""


def test_killed_writer_loses_no_written_line(tmp_path):
    path = tmp_path / "journal"
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(50):
                writer.stdout.readline()
            writer.kill()
            said = writer.stdout.read()
        numbers = said[: said.rfind("\n") + 1].split()
        assert read(path).notes["number"] >= int(numbers[-1] if numbers else 1)
