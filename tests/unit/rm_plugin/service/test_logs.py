"""Logs for clients: only regular files of the app's own jobs, whatever a task puts into the folder."""

import os
import threading

import pytest
from capped_cases import capped_log

from rm_plugin.service.logs import _TAIL_BYTES, LogFollower
from themis.errors import UnknownNameError
from themis.files import MAX_NAMES, names_below

JOBS = ("job-0", "job-1")


@pytest.fixture
def folder(tmp_path):
    app = tmp_path / "apps/app-0001"
    for job in JOBS:
        (app / "jobs" / job).mkdir(parents=True)
    (app / "am-1.log").write_text("begun\n")
    (app / "jobs/job-0/task-0.log").write_text("step 1\nhal")
    return app


def shown(follower):
    return [(chunk.source, chunk.text) for chunk in follower.read()]


def in_time(work):
    """Return the result of work, which must not block for ever."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(30)
    assert results, "it waits for ever"
    return results[0]


def test_whole_lines_are_read_once(folder):
    follower = LogFollower(folder, JOBS)
    assert shown(follower) == [("am", "begun\n"), ("job-0/task-0", "step 1\n")]
    with (folder / "jobs/job-0/task-0.log").open("a") as log:
        log.write("f\n")
    assert shown(follower) == [("job-0/task-0", "half\n")]
    assert shown(follower) == []


def test_unfinished_line_is_read_at_the_end(folder):
    follower = LogFollower(folder, JOBS, "job-0")
    assert shown(follower) == [("job-0/task-0", "step 1\n")]
    assert [chunk.text for chunk in follower.read(to_the_end=True)] == ["hal"]
    assert follower.read(to_the_end=True) == []


@pytest.mark.parametrize(
    ("text", "lines", "tail"),
    [
        ("a\nb\nc\n", 2, "b\nc\n"),
        ("a\nb\nc", 2, "b\nc"),
        ("a\nb\n", 2, "a\nb\n"),
        ("a\nb\n", 9, "a\nb\n"),
        ("a\n\n\n", 2, "\n\n"),
        ("", 1, ""),
        ("x" * 70_000 + "\nlast\n" + "y" * 70_000 + "\n", 2, "last\n" + "y" * 70_000 + "\n"),
    ],
)
def test_tail_begins_with_the_last_lines(folder, text, lines, tail):
    (folder / "jobs/job-0/task-0.log").write_text(text)
    follower = LogFollower(folder, JOBS, "job-0", lines)
    assert "".join(chunk.text for chunk in follower.read(to_the_end=True)) == tail


def test_tail_reads_logs_that_come_later_whole(folder):
    follower = LogFollower(folder, JOBS, "", 1)
    (folder / "jobs/job-1/task-0.log").write_text("one\ntwo\n")
    assert ("job-1/task-0", "one\ntwo\n") in shown(follower)


def test_pipe_instead_of_log_is_skipped(folder):
    os.mkfifo(folder / "jobs/job-1/task-0.log")
    os.mkfifo(folder / "am-2.log")
    assert in_time(lambda: shown(LogFollower(folder, JOBS))) == [("am", "begun\n"), ("job-0/task-0", "step 1\n")]


@pytest.mark.parametrize("link", ["am-2.log", "jobs/job-1/task-0.log"])
def test_link_instead_of_log_is_not_followed(folder, tmp_path, link):
    (tmp_path / "secret").write_text("token\n")
    (folder / link).symlink_to(tmp_path / "secret")
    assert "token" not in str(shown(LogFollower(folder, JOBS)))


def test_link_instead_of_job_folder_is_not_followed(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret.log").write_text("token\n")
    (folder / "jobs/job-1").rmdir()
    (folder / "jobs/job-1").symlink_to(other)
    assert "token" not in str(shown(LogFollower(folder, JOBS)))
    assert shown(LogFollower(folder, JOBS, "job-1")) == []


@pytest.mark.parametrize("job_id", ["..", ".", "../..", "../../app-0002", "job-0/..", "job-9", "/etc", "a\0"])
def test_unknown_job_has_no_logs(folder, job_id):
    (folder / "jobs" / "job-9").mkdir()
    with pytest.raises(UnknownNameError, match="unknown job with a log"):
        LogFollower(folder, JOBS, job_id)


def test_folder_of_unknown_job_is_ignored(folder):
    (folder / "jobs/job-9").mkdir()
    (folder / "jobs/job-9/task-0.log").write_text("not of a job\n")
    assert "not of a job" not in str(shown(LogFollower(folder, JOBS)))


def test_long_log_is_read_in_parts(folder):
    (folder / "jobs/job-0/task-0.log").write_text("x" * 99 + "\n")
    with (folder / "jobs/job-1/task-0.log").open("w") as log:
        log.writelines("y" * 999 + "\n" for _ in range(6_000))
    follower = LogFollower(folder, JOBS, "job-1")
    first = sum(len(text) for _, text in shown(follower))
    assert 4_000_000 < first < 4_400_000
    assert first + sum(len(text) for _, text in shown(follower)) == 6_000_000


def test_logs_show_the_kept_part_of_a_capped_log(folder):
    path = folder / "jobs/job-1/task-0.log"
    kept = capped_log(path)
    chunks = LogFollower(folder, JOBS, "job-1").read()
    gone_bytes = path.stat().st_size - len(kept)
    assert chunks[0].text == f"themis: {gone_bytes} bytes of older output are not kept (task_log_mb)\n"
    assert "".join(chunk.text for chunk in chunks[1:]) == kept


def test_followed_logs_skip_the_hole_of_a_capped_log(folder):
    path = folder / "jobs/job-0/task-0.log"
    follower = LogFollower(folder, JOBS, "job-0")
    follower.read()
    kept = capped_log(path)
    assert "".join(chunk.text for chunk in follower.read()).endswith(kept)
    assert follower.read() == []


def test_last_lines_of_a_log_of_exabytes_of_nothing_are_found_in_time(folder):
    log = folder / "jobs/job-0/task-0.log"
    with log.open("ab") as file:
        file.truncate(2**40)
    follower = in_time(lambda: LogFollower(folder, JOBS, "job-0", tail_lines=5))
    assert follower._offsets == {("jobs", "job-0", "task-0.log"): 2**40 - _TAIL_BYTES}
    with log.open("ab") as file:
        file.write(b"\none\ntwo\n")
    follower = in_time(lambda: LogFollower(folder, JOBS, "job-0", tail_lines=2))
    assert shown(follower) == [("job-0/task-0", "one\ntwo\n")]


def test_folder_with_too_many_names_is_read_in_part(folder, monkeypatch):
    monkeypatch.setattr("themis.files.MAX_NAMES", 3)
    for place in range(9):
        (folder / "jobs/job-1" / f"task-{place}.log").touch()
    assert len(names_below(folder, "jobs", "job-1")) == 3 < MAX_NAMES
