"""After a round with missing answers or errors, the next one runs."""

import asyncio
from pathlib import Path

import pytest
from service_cases import SPEC, answer

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.service import round_runner as round_runner_module
from rm_plugin.service.memory_service import memory_service, until
from rm_plugin.service.round_runner import RoundRunner
from themis.config.rm_settings import RmSettings
from themis.wire import themis_pb2 as pb


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(round_runner_module, "RETRY_FIRST_S", 0.02)


def played(tmp_path, *, deaf_for=0, before=lambda rm: None, **choices):
    """The kinds of events once the app has a GPU."""

    async def scenario():
        async with memory_service(tmp_path, **choices) as rm:
            entry, session = await rm.registered(SPEC)
            before(rm)
            tasks = [
                asyncio.ensure_future(answer(rm, entry, session, deaf_for=deaf_for)),
                asyncio.ensure_future(rm.rounds.run()),
            ]
            await until(lambda: bool(rm.arbiter.table.live))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return rm

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def test_round_sends_the_app_its_leases(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, session = await rm.registered(SPEC)
            await rm.rounds._play(["test"])
            first = [message.leases for message in session._outgoing._queue if message.HasField("leases")]
            answering = asyncio.ensure_future(answer(rm, entry, session))
            sent = []
            send = session.send
            session.send = lambda message: (sent.append(message), send(message))
            await rm.rounds._play(["test"])
            answering.cancel()
            assert not first
            (update,) = [message.leases for message in sent if message.HasField("leases")]
            held = [lease.lease_id for lease in rm.arbiter.table.of_app(entry.app_id)]
            assert held and sorted(lease.lease_id for lease in update.leases) == sorted(held)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("deaf_for", [1, 3])
def test_round_without_report_is_repeated_while_gpus_are_free(tmp_path, monkeypatch, deaf_for):
    def before(rm):
        # Only rounds to which the app is deaf end without its answer.
        is_deaf = lambda: rm.kinds.count("round_started") <= deaf_for  # noqa: E731
        monkeypatch.setattr(RmSettings, "answer_time_s", staticmethod(lambda *_: 0.05 if is_deaf() else 60.0))

    rm = played(tmp_path, before=before, deaf_for=deaf_for)
    reasons = [event.detail["reasons"] for event in rm.store.events() if event.kind == "round_started"]
    assert reasons == [["app arrived"], *[["answers missing"]] * deaf_for]


def test_round_without_bids_has_no_auction(tmp_path):
    """An auction takes a process and seconds. The GPUs go to the app that did not bid."""
    asked = []

    class Auctioneer:
        async def run(self, market):
            asked.append(market)

    def before(rm):
        rm.rounds._auctioneer = Auctioneer()

    rm = played(tmp_path, before=before, policy="themis", bid_deadline_s=0.05)
    (detail,) = [event.detail for event in rm.store.events() if event.kind == "round_auctioned"]
    assert {name: detail[name] for name in ("status", "bidders", "solve_ms", "market")} == {
        "status": "no bids",
        "bidders": 0,
        "solve_ms": 0.0,
        "market": "",
    }
    assert not asked


def test_pause_grows_while_report_is_missing(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, report_deadline_s=0.01) as rm:
            await rm.registered(SPEC)
            rounds = asyncio.ensure_future(rm.rounds.run())
            await until(lambda: rm.kinds.count("round_started") >= 2)
            await asyncio.sleep(0.7)
            rounds.cancel()
            await asyncio.gather(rounds, return_exceptions=True)
            # After 0.02, 0.04, 0.08, .. s: not 20 rounds and more.
            assert rm.kinds.count("round_started") <= 8

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["begin_round", "settle", "what_stands", "next_lease_round_s"])
def test_error_in_arbiter_does_not_prevent_next_round(tmp_path, monkeypatch, name):
    fail_once(monkeypatch, Arbiter, name)
    rm = played(tmp_path)
    assert rm.kinds.count("round_ended") == rm.kinds.count("round_started")


@pytest.mark.parametrize("name", ["_begin", "_ask_reports", "_apply", "_end", "_gather", "_see_demand", "_plan_retry"])
def test_error_in_a_step_does_not_prevent_next_round(tmp_path, monkeypatch, name):
    fail_once(monkeypatch, RoundRunner, name)
    played(tmp_path)


@pytest.mark.parametrize("name", ["_notify", "_before_round"])
def test_error_in_a_called_part_does_not_prevent_next_round(tmp_path, name):
    def before(rm):
        setattr(rm.rounds, name, failing_once(getattr(rm.rounds, name)))

    played(tmp_path, before=before)


def fail_once(monkeypatch, owner, name):
    monkeypatch.setattr(owner, name, failing_once(getattr(owner, name)))


def failing_once(original):
    calls = []

    def call(*arguments, **named):
        calls.append(None)
        if len(calls) == 1:
            raise RuntimeError("a defect")
        return original(*arguments, **named)

    return call


@pytest.mark.parametrize(("apps", "time_s"), [(0, 2.0), (50, 3.0), (1000, 22.0)])
def test_report_deadline_grows_with_number_of_apps(apps, time_s):
    assert RmSettings.answer_time_s(2.0, apps) == pytest.approx(time_s)


def test_heartbeat_examines_no_other_app_and_no_gpu_list(tmp_path, monkeypatch):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, session = await rm.registered(SPEC)
            rm.rounds._reasons.clear()
            rm.rounds._see_demand()
            with monkeypatch.context() as patched:
                patched.setattr(type(rm.arbiter.table), "free_gpus", None)
                patched.setattr(type(rm.entries), "active", None)
                patched.setattr(Arbiter, "active_apps", None)
                await beat(rm, entry, session, 0)
                assert rm.rounds._reasons == []
                await beat(rm, entry, session, 3)
                assert rm.rounds._reasons == ["demand"]

    asyncio.run(scenario())


async def beat(rm, entry, session, unmet_gpus):
    """A heartbeat of the app, from its message to the acknowledgement."""
    await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, heartbeat=pb.Heartbeat(unmet_gpus=unmet_gpus)))


@pytest.mark.parametrize("has_free_gpus", [False, True])
def test_round_without_answers_is_repeated_only_while_gpus_are_free(tmp_path, has_free_gpus):
    async def scenario():
        async with memory_service(tmp_path, gpus=1) as rm:
            if not has_free_gpus:
                rm.arbiter.close_gpus(rm.arbiter.cluster.gpu_set)
            rm.rounds._unanswered = True
            rm.rounds._plan_retry()
            assert (rm.rounds._retry_at_s is not None) == has_free_gpus

    asyncio.run(scenario())


@pytest.mark.parametrize(("app_masters", "time_s"), [(1, 1.0), (500, 1.0), (2000, 4.0), (50_000, 5.0)])
def test_many_app_masters_send_heartbeats_less_often_but_six_times_in_their_expiry(app_masters, time_s):
    settings = RmSettings(cluster=Path("unused"), heartbeat_s=1.0, am_expiry_s=30.0)
    assert settings.heartbeat_time_s(app_masters) == pytest.approx(time_s)
