"""How long HDFS is waited for, on a clock of the tests."""

from itertools import islice

import pytest
import requests
from hdfs.util import HdfsError

from themis.hadoop.webhdfs_errors import (
    HdfsExistsError,
    HdfsMissingError,
    HdfsRefusedError,
    HdfsUnreachableError,
    ShortReadError,
    is_transient,
)
from themis.hadoop.webhdfs_retry import ONCE, Patience, RetryRule

REFUSED = requests.exceptions.ConnectionError("refused")


class Time:
    """Sleeping passes the time; so may an attempt."""

    def __init__(self):
        self.now_s = 100.0
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_s += seconds


def patience(rule, time):
    return Patience(rule, now_s=lambda: time.now_s, sleep=time.sleep)


def test_waits_double_up_to_the_longest():
    rule = RetryRule(first_wait_s=0.5, factor=2.0, longest_wait_s=3.0)
    assert list(islice(rule.waits_s(), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_it_gives_up_at_the_deadline_and_not_before():
    time = Time()
    waiting = patience(RetryRule(first_wait_s=1.0, longest_wait_s=4.0, deadline_s=10.0), time)
    with pytest.raises(HdfsUnreachableError, match=r"reading: HDFS has been unreachable for 10 s: '/a'; .*refused"):
        while True:
            waiting.failed(REFUSED, "reading", "/a")
    assert time.slept == [1.0, 2.0, 4.0, 3.0]


def test_progress_resets_the_deadline_and_the_waits():
    time = Time()
    waiting = patience(RetryRule(first_wait_s=1.0, deadline_s=3.0), time)
    for _ in range(4):
        waiting.failed(REFUSED, "reading", "/a")
        waiting.failed(REFUSED, "reading", "/a")
        waiting.progressed()
    assert time.slept == [1.0, 2.0] * 4


def test_the_time_that_attempts_take_counts():
    time = Time()
    waiting = patience(RetryRule(first_wait_s=1.0, deadline_s=10.0), time)
    waiting.failed(REFUSED, "reading", "/a")
    time.now_s += 60.0
    with pytest.raises(HdfsUnreachableError, match="61 s"):
        waiting.failed(REFUSED, "reading", "/a")


def test_a_long_wait_is_logged_once_until_progress(caplog):
    time = Time()
    waiting = patience(RetryRule(first_wait_s=1.0, longest_wait_s=1.0, deadline_s=60.0), time)
    for _ in range(3):
        waiting.failed(REFUSED, "reading", "/a")
    assert not caplog.records
    for _ in range(9):
        waiting.failed(REFUSED, "reading", "/a")
    (reported,) = caplog.messages
    assert (
        reported == "reading: HDFS has been unreachable for 3 s: '/a'; ConnectionError: refused; tried again for 57 s"
    )
    waiting.progressed()
    for _ in range(9):
        waiting.failed(REFUSED, "writing", "/a")
    assert [message.split(":")[0] for message in caplog.messages] == ["reading", "writing"]


def test_once_waits_for_nothing():
    time = Time()
    with pytest.raises(HdfsUnreachableError):
        patience(ONCE, time).failed(REFUSED, "reading", "/a")
    assert time.slept == []


@pytest.mark.parametrize(
    ("exception", "kind"),
    [
        ("FileNotFoundException", HdfsMissingError),
        ("FileAlreadyExistsException", HdfsExistsError),
        ("AccessControlException", HdfsRefusedError),
    ],
)
def test_permanent_errors_are_raised_at_once(exception, kind):
    time = Time()
    with pytest.raises(kind, match=r"first line$") as raised:
        patience(RetryRule(), time).failed(HdfsError("first line\n\tat java", exception=exception), "writing", "/a")
    assert type(raised.value) is kind
    assert time.slept == []


def test_defects_are_not_dressed_up():
    with pytest.raises(ZeroDivisionError):
        patience(RetryRule(), Time()).failed(ZeroDivisionError(), "writing", "/a")


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        requests.exceptions.ReadTimeout(),
        requests.exceptions.ChunkedEncodingError(),
        ShortReadError(),
        HdfsError("x", exception="SafeModeException"),
        HdfsError("x", exception="StandbyException"),
        HdfsError("Failed to find datanode, suggest to check cluster health.", exception="IOException"),
        # The NameNode was killed: a DataNode reports the error of whichever call was in progress.
        HdfsError("Failed on local exception: java.io.IOException: Broken pipe", exception="IOException"),
        HdfsError("Failed on local exception: java.io.IOException: Connection reset", exception="IOException"),
    ],
)
def test_transient_errors_are_retried(error):
    assert is_transient(error)


@pytest.mark.parametrize("error", [HdfsError("x", exception="IOException"), HdfsError(b"<html>"), OSError("disk")])
def test_permanent_errors_are_not_retried(error):
    assert not is_transient(error)
