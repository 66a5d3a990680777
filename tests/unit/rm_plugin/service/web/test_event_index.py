"""The event index: which rounds and events it keeps, and how it follows the log."""

import asyncio
import json

from web_cases import RmCase, run

from rm_plugin.service.web import event_index
from rm_plugin.service.web.event_index import APPS_KEPT, EVENTS_KEPT, ROUNDS_KEPT, EventIndex
from rm_plugin.service.web.round_record import round_document, round_text


def index_of(case):
    index = EventIndex(case.recorder)
    for event in case.recorder.events(0, "", 1_000_000):
        index.take(event)
    return index


def test_follow_reads_old_and_new_events(monkeypatch):
    monkeypatch.setattr(event_index, "_CHUNK", 3)
    monkeypatch.setattr(event_index, "_PAUSE_S", 0.0)

    async def scenario():
        case = RmCase(((1,),))
        for number in range(10):
            case.recorder.record("client", detail={"number": number})
        index = EventIndex(case.recorder)
        follow = asyncio.get_running_loop().create_task(index.follow())
        await asyncio.wait_for(index.ready(), 30)
        assert index.totals.events == 10
        case.round(1, {"a": 1.0}, offered=["a"], won={"a": 1})
        async with asyncio.timeout(30):
            while index.totals.events < 17:
                await asyncio.sleep(0)
        assert [record.outcome for record in index.rounds()] == ["granted"]
        follow.cancel()

    run(scenario)


def test_follow_is_ready_if_log_is_multiple_of_chunk(monkeypatch):
    monkeypatch.setattr(event_index, "_CHUNK", 2)

    async def scenario():
        case = RmCase(((1,),))
        for _ in range(4):
            case.recorder.record("client")
        index = EventIndex(case.recorder)
        follow = asyncio.get_running_loop().create_task(index.follow())
        await asyncio.wait_for(index.ready(), 30)
        assert index.totals.events == 4
        follow.cancel()

    run(scenario)


def test_newest_rounds_are_kept_and_all_are_counted():
    async def scenario():
        case = RmCase(((1,),))
        for round_id in range(1, ROUNDS_KEPT + 6):
            case.round(round_id, {"a": 1.0}, offered=["a"], won={"a": 1})
        index = index_of(case)
        assert [record.round_id for record in index.rounds(2)] == [ROUNDS_KEPT + 5, ROUNDS_KEPT + 4]
        assert len(index.rounds(10_000)) == ROUNDS_KEPT
        assert index.totals.rounds == {"granted": ROUNDS_KEPT + 5}

    run(scenario)


def test_fewer_rounds_are_kept_of_many_apps(monkeypatch):
    monkeypatch.setattr(event_index, "REPORTS_KEPT", 9)

    async def scenario():
        case = RmCase(((1,),))
        for round_id in range(1, 8):
            case.round(round_id, {"a": 1.0, "b": 2.0}, offered=["a"], won={"a": 1})
        assert [record.round_id for record in index_of(case).rounds()] == [7, 6, 5, 4, 3]

    run(scenario)


def test_round_that_has_ended_is_json_once():
    async def scenario():
        case = RmCase(((1,),))
        case.round(1, {"a": 1.0}, offered=["a"], won={"a": 1})
        (record,) = index_of(case).rounds()
        text = round_text(record)
        assert json.loads(text) == round_document(record)
        assert round_text(record) is text
        record.outcome, record.text = "", ""
        assert round_text(record) is not round_text(record)

    run(scenario)


def test_abandoned_round_shows_only_known_fields():
    async def scenario():
        case = RmCase(((1,),))
        head = {"round_id": 7}
        case.recorder.record(
            "round_started",
            detail={**head, "reasons": ["demand"], "free": {"m00": 1}, "renewable": {}, "active": ["a"]},
        )
        case.recorder.record("round_ended", detail={**head, "duration_ms": 0.0, "outcome": "abandoned"})
        case.recorder.record("round_ended", detail={"round_id": 99, "duration_ms": 0.0, "outcome": "abandoned"})
        (record,) = index_of(case).rounds()
        assert (record.outcome, record.granted, record.auction, record.duration_s) == ("abandoned", False, None, 0.0)

    run(scenario)


def test_newest_events_of_app_exclude_progress():
    async def scenario():
        case = RmCase(((1,),))
        for number in range(EVENTS_KEPT + 5):
            case.recorder.record("checkpoint", app_id="a", detail={"iteration": number, "seconds": 1.0})
            case.recorder.record("job_progress", app_id="a", detail={"iteration": number})
        events = index_of(case).events_of("a")
        assert [event.detail["iteration"] for event in events] == list(range(EVENTS_KEPT + 4, 4, -1))
        assert {event.kind for event in events} == {"checkpoint"}

    run(scenario)


def test_apps_with_oldest_events_are_dropped():
    async def scenario():
        case = RmCase(((1,),))
        for number in range(APPS_KEPT):
            case.recorder.record("tuner", app_id=f"a{number}")
        case.recorder.record("tuner", app_id="a0")
        case.recorder.record("tuner", app_id="new")
        index = index_of(case)
        assert len(index.events_of("a0")) == 2
        assert index.events_of("a1") == []
        assert len(index.events_of("new")) == 1

    run(scenario)


def test_leases_that_change_together_are_one_event():
    async def scenario():
        case = RmCase(((4,),))
        case.running("many")
        case.grant(app_0001={"m00": 3})
        case.clock.advance_to(case.clock.now_s() + 1.0)
        case.grant(round_id=2, app_0001={"m00": 1})
        later, first, _submitted = index_of(case).events_of("app-0001")
        assert first.detail["gpu"] == ["m00/0", "m00/1", "m00/2"]
        assert later.detail["gpu"] == "m00/3"

    run(scenario)
