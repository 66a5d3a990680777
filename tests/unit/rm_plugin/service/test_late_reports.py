"""A round waits while answers come in. The last report of an app spares a question, and counts for a late app."""

import asyncio
import time

import pytest
from msgspec.structs import replace
from service_cases import _DEMAND, _PHASE, CLUSTER, SPEC, answer

from rm_plugin.arbiter.core import Arbiter, LeasePolicy
from rm_plugin.arbiter.round_values import Decision, RoundSettings
from rm_plugin.arbiter.rounds import RoundResult
from rm_plugin.service.last_reports import LastReports
from rm_plugin.service.memory_service import memory_service, until
from rm_plugin.service.round_runner import answered
from themis.bids import AppReport, PlacedGang, RhoOf
from themis.cluster import Allocation, Level
from themis.wire import themis_pb2 as pb
from themis.wire.values import report_to_message

KEEP_S = 30.0


def report(app_id, round_id):
    return AppReport(app_id=app_id, round_id=round_id, rho=2.0)


@pytest.fixture
def arbiter():
    made = Arbiter(CLUSTER, LeasePolicy(), RoundSettings(), seed=0, grid_origin_s=0.0)
    made.add_app("a", now_s=0.0)
    return made


@pytest.mark.parametrize(("at_s", "counts"), [(129.0, True), (130.0, True), (131.0, False)])
def test_last_report_counts_for_a_bounded_time(arbiter, at_s, counts):
    last = LastReports(KEEP_S, {}.get)
    first, _ = arbiter.begin_round(100.0)
    last.take(first, {"a": report("a", first.round_id)})
    later, _ = arbiter.begin_round(at_s)
    last.take(later, {})
    assert last.of_late(later, ["a", "b"]) == ({"a": report("a", later.round_id)} if counts else {})


def test_last_report_does_not_count_once_the_app_holds_other_gpus(arbiter):
    last = LastReports(KEEP_S, {}.get)
    first, _ = arbiter.begin_round(100.0)
    last.take(first, {"a": report("a", first.round_id)})
    gang = PlacedGang(gpus=Allocation((("m0", 1),)), level=Level.SLOT)
    arbiter.settle(RoundResult(snapshot=first, decision=Decision(auction={"a": (gang,)})), now_s=100.0)
    later, _ = arbiter.begin_round(101.0)
    assert last.of_late(later, ["a"]) == {}


def test_last_report_does_not_count_once_its_gpus_are_on_offer(arbiter):
    last = LastReports(KEEP_S, {}.get)
    first, _ = arbiter.begin_round(100.0)
    gang = PlacedGang(gpus=Allocation((("m0", 1),)), level=Level.SLOT)
    arbiter.settle(RoundResult(snapshot=first, decision=Decision(auction={"a": (gang,)})), now_s=100.0)
    (lease,) = arbiter.table.of_app("a")
    renewable_at_s = lease.expires_at_s - LeasePolicy().checkpoint_lead_s
    before, _ = arbiter.begin_round(renewable_at_s - 1.0)
    last.take(before, {"a": report("a", before.round_id)})
    later, _ = arbiter.begin_round(renewable_at_s)
    assert before.standing("a").kept == later.standing("a").renewable == gang.gpus
    assert last.of_late(later, ["a"]) == {}


def test_app_that_ended_is_forgotten(arbiter):
    last = LastReports(KEEP_S, {}.get)
    first, _ = arbiter.begin_round(100.0)
    last.take(first, {"a": report("a", first.round_id)})
    arbiter.end_app("a", now_s=101.0, reason="the app ended")
    last.take(arbiter.begin_round(101.0)[0], {})
    assert not last._last


@pytest.mark.parametrize(("at_s", "spared"), [(100.0, True), (101.0, True), (101.1, False)])
def test_app_is_not_asked_again_within_a_heartbeat(arbiter, at_s, spared):
    last = LastReports(KEEP_S, {}.get)
    first, _ = arbiter.begin_round(100.0)
    last.take(first, {"a": report("a", first.round_id)})
    later, _ = arbiter.begin_round(at_s)
    last.take(later, {})
    expected = {"a": report("a", later.round_id)} if spared else {}
    assert last.recent(later, ["a", "b"], 1.0, RhoOf.NO_APP) == expected


def test_app_with_news_is_asked_until_it_reports(arbiter):
    last = LastReports(KEEP_S, {}.get)
    first, _ = arbiter.begin_round(100.0)
    last.take(first, {"a": report("a", first.round_id)})
    last.note_news("a")
    assert last.recent(first, ["a"], 1.0, RhoOf.NO_APP) == {}
    assert last.of_late(first, ["a"])
    last.take(first, {"a": report("a", first.round_id)})
    assert last.recent(first, ["a"], 1.0, RhoOf.NO_APP)


def test_app_is_asked_if_the_policy_uses_its_rho_or_the_machines_are_others(arbiter):
    last = LastReports(KEEP_S, {}.get)
    arbiter.add_app("b", now_s=0.0)
    first, _ = arbiter.begin_round(100.0)
    last.take(first, {"a": report("a", first.round_id), "b": _wanting("b", first.round_id)})
    assert last.recent(first, "ab", 1.0, RhoOf.NO_APP).keys() == {"a", "b"}
    assert last.recent(first, "ab", 1.0, RhoOf.APPS_WITH_DEMAND).keys() == {"a"}
    assert last.recent(first, "ab", 1.0, RhoOf.EVERY_APP) == {}
    other = replace(first, cluster=replace(first.cluster))
    assert last.recent(other, "ab", 1.0, RhoOf.NO_APP) == {}


def test_app_is_asked_if_the_engine_grants_it_another_number_of_gpus(arbiter):
    limits = {"a": 2}
    last = LastReports(KEEP_S, limits.get)
    first, _ = arbiter.begin_round(100.0)
    last.take(first, {"a": report("a", first.round_id)})
    assert last.recent(first, ["a"], 1.0, RhoOf.NO_APP)
    limits.clear()
    assert last.recent(first, ["a"], 1.0, RhoOf.NO_APP) == {}


def test_rounds_in_a_row_ask_an_app_once_unless_it_has_news(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, session = await rm.registered(SPEC)
            answering = asyncio.ensure_future(answer(rm, entry, session))

            async def is_asked():
                await rm.rounds._play(["test"])
                reported = [event.detail for event in rm.store.events() if event.kind == "round_reported"][-1]
                assert not reported["absent"]
                assert reported["rho"] == {entry.app_id: 2.0}
                assert reported.get("not_asked", []) in ([], [entry.app_id])
                return "not_asked" not in reported

            assert await is_asked()
            # It has a GPU now.
            assert await is_asked()
            assert not await is_asked()
            assert not await is_asked()
            await rm.manager.sessions.receive(
                entry, session, pb.AmMessage(id=100, heartbeat=pb.Heartbeat(unmet_gpus=1))
            )
            assert await is_asked()
            await rm.manager.sessions.receive(
                entry, session, pb.AmMessage(id=101, heartbeat=pb.Heartbeat(unmet_gpus=1))
            )
            assert not await is_asked()
            rm.clock.advance_to(rm.clock.now_s() + rm.manager.app_masters.heartbeat_s() + 0.1)
            assert await is_asked()
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_news_that_come_while_others_answer_are_asked_for(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, report_deadline_s=10.0) as rm:
            early, its_session = await rm.registered(SPEC)
            late, other_session = await rm.registered(replace(SPEC, name="other"))
            round_id = rm.arbiter._next_round_id
            playing = asyncio.ensure_future(rm.rounds._play(["test"]))
            await until(lambda: its_session._reports and other_session._reports)
            await rm.manager.sessions.receive(early, its_session, _says_no_demand(early, round_id))
            news = pb.AmMessage(id=2, heartbeat=pb.Heartbeat(unmet_gpus=1))
            await rm.manager.sessions.receive(early, its_session, news)
            await rm.manager.sessions.receive(late, other_session, _says_no_demand(late, round_id))
            await playing
            again = asyncio.ensure_future(rm.rounds._play(["test"]))
            await until(lambda: its_session._reports)
            assert not other_session._reports
            again.cancel()
            await asyncio.gather(again, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("is_new", [False, True], ids=["gives a GPU back", "new attempt"])
def test_app_is_asked_once_it_gives_gpus_back_or_registers(tmp_path, is_new):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, session = await rm.registered(SPEC)
            snapshot, _ = rm.arbiter.begin_round(rm.clock.now_s())
            rm.rounds._last_reports.take(snapshot, {entry.app_id: _wanting(entry.app_id, snapshot.round_id)})
            if is_new:
                rm.manager.sessions._take_session(entry, session)
            else:
                await rm.manager.sessions.receive(
                    entry, session, pb.AmMessage(id=5, release=pb.Release(reason="unused"))
                )
            assert not rm.rounds._last_reports.recent(snapshot, [entry.app_id], 1.0, RhoOf.NO_APP)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_news_of_apps_that_ended_are_forgotten(arbiter):
    last = LastReports(KEEP_S, {}.get)
    last.note_news("a")
    last.note_news("z")
    first, _ = arbiter.begin_round(100.0)
    last.take(first, {"a": report("a", first.round_id)})
    assert last._news == {"a": 1}


def _says_no_demand(entry, round_id):
    said = replace(_wanting(entry.app_id, round_id), demands=())
    return pb.AmMessage(id=1, rho=report_to_message(said))


def test_late_app_gets_gpus_by_its_last_report(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, report_deadline_s=0.1, bid_deadline_s=0.1) as rm:
            entry, session = await rm.registered(SPEC)
            rm.arbiter.close_gpus(rm.arbiter.cluster.gpu_set)
            answering = asyncio.ensure_future(answer(rm, entry, session))
            rounds = asyncio.ensure_future(rm.rounds.run())
            snapshot, _ = rm.arbiter.begin_round(rm.clock.now_s())
            await asyncio.sleep(0)
            answering.cancel()
            wanted = _wanting(entry.app_id, snapshot.round_id)
            rm.rounds._last_reports.take(snapshot, {entry.app_id: wanted})
            # Longer ago than a heartbeat, so that the round asks.
            rm.clock.advance_to(snapshot.now_s + rm.manager.app_masters.heartbeat_s() + 0.1)
            rm.arbiter.close_gpus(frozenset())
            rm.rounds.trigger("test")
            await until(lambda: bool(rm.arbiter.table.live))
            rounds.cancel()
            await asyncio.gather(rounds, answering, return_exceptions=True)
            reported = [event.detail for event in rm.store.events() if event.kind == "round_reported"]
            assert reported[-1]["absent"] == reported[-1]["kept"] == [entry.app_id]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def _wanting(app_id, round_id):
    return AppReport(
        app_id=app_id, round_id=round_id, rho=2.0, t_shared_s=20.0, t_ideal_s=10.0,
        demands=(_DEMAND,), phases_left=(_PHASE,),
    )  # fmt: skip


# ---- how long a round waits -----------------------------------------------------------------------------------------


def waited_s(answer_at_s, *, pause_s=0.1, max_s=10.0, stall_s=0.0):
    """How long `answered` waits for answers at these times and one that never comes; and how many were done."""

    async def scenario():
        loop = asyncio.get_running_loop()
        waiting = [loop.create_future() for _ in (*answer_at_s, None)]
        for future, at_s in zip(waiting, answer_at_s, strict=False):
            loop.call_later(at_s, future.set_result, None)
        if stall_s:
            loop.call_later(0.01, time.sleep, stall_s)
        begun_s = loop.time()
        await answered(waiting, pause_s=pause_s, max_s=max_s)
        return loop.time() - begun_s, sum(future.done() for future in waiting)

    return asyncio.run(scenario())


def test_round_waits_as_long_as_answers_come_in():
    seconds, done = waited_s([0.05 * number for number in range(1, 9)])
    assert done == 8
    assert seconds > 0.4


def test_round_waits_no_longer_than_its_bound_though_answers_come_in():
    seconds, done = waited_s([0.05 * number for number in range(1, 40)], max_s=0.3)
    assert done < 39
    assert 0.3 <= seconds < 1.5


def test_stall_of_the_service_itself_is_no_pause_of_the_apps():
    assert waited_s([0.05, 0.06], stall_s=0.5)[1] == 2


def test_round_does_not_wait_once_all_have_answered():
    async def scenario():
        loop = asyncio.get_running_loop()
        only = loop.create_future()
        loop.call_later(0.01, only.set_result, None)
        await answered([only], pause_s=60.0, max_s=60.0)
        await answered([], pause_s=60.0, max_s=60.0)

    asyncio.run(asyncio.wait_for(scenario(), 30))
