"""Logs whose lines have no times: the pace follows from when they are read."""

import pytest

from am.profiler.follower import LogFollower
from am.profiler.job_reader import JobReader
from am.profiler.records import StepsPerSecond


@pytest.fixture
def job(tmp_path):
    """Adds lines of these steps to a log, and returns the rates that are read at a time."""
    log = tmp_path / "log"
    reader = JobReader(LogFollower(log), [])

    def rates(now_s, *steps, before=""):
        with log.open("a") as file:
            file.write(before + "".join(f"step={step} loss=0.5\n" for step in steps))
        return [record.rate for record in reader.read(now_s) if isinstance(record, StepsPerSecond)]

    return rates


def test_rate_is_that_of_the_last_steps_of_two_readings(job):
    assert job(100.0, 10, 20) == []
    assert job(102.0, 30, 40) == [10.0]
    assert job(103.0, 45) == [5.0]


def test_readings_less_than_a_second_apart_count_together(job):
    assert job(100.0, 10) == []
    assert job(100.5, 20) == []
    assert job(102.0, 30) == [10.0]


def test_reading_without_a_new_step_gives_no_rate(job):
    assert job(100.0, 10) == []
    assert job(105.0) == []
    assert job(105.0, 10) == []
    assert job(110.0, 30) == [2.0]


def test_steps_that_go_back_begin_anew(job):
    assert job(100.0, 50) == []
    assert job(105.0, 10) == []
    assert job(110.0, 20) == [2.0]


def test_time_between_two_incarnations_gives_no_rate(job):
    assert job(100.0, 10) == []
    assert job(900.0, 20, before="INFO:themis:begun incarnation = 2\n") == []
    assert job(905.0, 30) == [2.0]


def test_lines_of_a_known_format_without_times_get_a_rate_until_one_has_a_time(job):
    line = "INFO:tensorflow:loss = 0.5, step = {}\n"
    assert job(100.0, before=line.format(10)) == []
    assert job(102.0, before=line.format(30)) == [10.0]
    assert job(104.0, before="INFO:tensorflow:loss = 0.5, step = 50 (1.000 sec)\n") == []
    assert job(106.0, before=line.format(70)) == []


def test_lines_with_times_need_no_rate(job):
    lines = "INFO:tensorflow:loss = 0.5, step = {} (1.000 sec)\n"
    assert job(100.0, before=lines.format(10) + lines.format(20)) == []
    assert job(105.0, before=lines.format(30)) == []
