"""The start of the engine `yarn` waits for Hadoop, and reports other errors at once."""

import asyncio
import itertools
import time

import pytest

from rm_plugin.engines import yarn
from themis.config.rm_settings import RmSettings, YarnSettings
from themis.errors import InputError, UnreachableError


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(yarn, "_TRY_AGAIN_S", 0.0)


def test_start_waits_until_hadoop_answers_and_logs_it_once(caplog):
    answers = [UnreachableError("the NameNode is unavailable"), UnreachableError("it is in safe mode"), None]

    async def work():
        if (error := answers.pop(0)) is not None:
            raise error
        return "there"

    assert asyncio.run(yarn._once_reachable(work)) == "there"
    assert caplog.text.count("waiting for Hadoop: the NameNode is unavailable") == 1
    assert "safe mode" not in caplog.text


def test_start_does_not_wait_for_wrong_settings():
    async def work():
        raise InputError("no such archive on HDFS")

    with pytest.raises(InputError):
        asyncio.run(yarn._once_reachable(work))


def test_start_pauses_while_yarn_cannot_list_its_nodes(monkeypatch, caplog):
    monkeypatch.setattr(yarn, "_TRY_AGAIN_S", 0.05)
    asked_s = []

    class Yarn:
        def nodes(self, _states):
            asked_s.append(time.monotonic())
            if len(asked_s) < 3:
                raise UnreachableError("YARN refuses the connection")
            return ()

    engine = yarn.YarnEngine(RmSettings(engine="yarn", yarn=YarnSettings(ship=False)), None)
    engine._client = Yarn()
    assert asyncio.run(engine.open()).machines == ()
    assert all(later - sooner >= 0.05 for sooner, later in itertools.pairwise(asked_s))
    assert caplog.text.count("YARN refuses the connection") == 1


class NoSuchQueue:
    """YARN, which ends the start at the first question."""

    def queue(self, name):
        raise InputError("no such queue", value=name)


@pytest.mark.parametrize(
    ("as_submitter", "said"),
    [
        (
            False,
            "app masters and tasks of all users are applications of themis in YARN, and can read each other's files",
        ),
        (True, "can run programs as any user for whom themis may act"),
    ],
)
def test_start_says_as_whom_tasks_run(monkeypatch, caplog, as_submitter, said):
    monkeypatch.setattr(yarn, "current_user", lambda: "themis")
    engine = yarn.YarnEngine(RmSettings(engine="yarn", yarn={"queue": "x", "as_submitter": as_submitter}), None)
    engine._client = NoSuchQueue()
    caplog.set_level("INFO")
    with pytest.raises(InputError):
        asyncio.run(engine.open())
    assert said in caplog.text
    assert ("applications of themis" in caplog.text) is not as_submitter
