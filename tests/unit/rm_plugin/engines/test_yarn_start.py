"""The start of the engine `yarn` waits for Hadoop, and reports other errors at once."""

import asyncio

import pytest

from rm_plugin.engines import yarn
from themis.errors import InputError, UnreachableError


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(yarn, "_TRY_AGAIN_S", 0.0)


def test_start_waits_until_hadoop_answers_and_logs_it_once(caplog):
    answers = [UnreachableError("the NameNode is unavailable"), UnreachableError("it is in safe mode"), None]

    def work():
        if (error := answers.pop(0)) is not None:
            raise error
        return "there"

    assert asyncio.run(yarn._once_reachable(work)) == "there"
    assert caplog.text.count("waiting for Hadoop: the NameNode is unavailable") == 1
    assert "safe mode" not in caplog.text


def test_start_does_not_wait_for_wrong_settings():
    def work():
        raise InputError("no such archive on HDFS")

    with pytest.raises(InputError):
        asyncio.run(yarn._once_reachable(work))
