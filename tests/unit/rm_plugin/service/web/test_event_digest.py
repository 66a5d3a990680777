"""The digest of the log: what it keeps, how it follows, what it forgets."""

import asyncio

from web_cases import RmCase, run

from rm_plugin.service.web import digest as digest_module
from rm_plugin.service.web.digest import APPS_KEPT, EVENTS_KEPT, ROUNDS_KEPT, EventDigest


def digest_of(case):
    digest = EventDigest(case.recorder)
    for event in case.recorder.events(0, "", 1_000_000):
        digest.take(event)
    return digest


def test_reads_what_was_there_and_what_comes(monkeypatch):
    monkeypatch.setattr(digest_module, "_CHUNK", 3)
    monkeypatch.setattr(digest_module, "_PAUSE_S", 0.0)

    async def scenario():
        case = RmCase(((1,),))
        for number in range(10):
            case.recorder.record("client", detail={"number": number})
        digest = EventDigest(case.recorder)
        follow = asyncio.get_running_loop().create_task(digest.follow())
        await asyncio.wait_for(digest.ready(), 5)
        assert digest.totals.events == 10
        case.round(1, {"a": 1.0}, offered=["a"], won={"a": 1})
        async with asyncio.timeout(5):
            while digest.totals.events < 17:
                await asyncio.sleep(0)
        assert [record.outcome for record in digest.rounds()] == ["granted"]
        follow.cancel()

    run(scenario)


def test_a_log_whose_length_is_a_whole_number_of_parts_is_read_to_its_end(monkeypatch):
    monkeypatch.setattr(digest_module, "_CHUNK", 2)

    async def scenario():
        case = RmCase(((1,),))
        for _ in range(4):
            case.recorder.record("client")
        digest = EventDigest(case.recorder)
        follow = asyncio.get_running_loop().create_task(digest.follow())
        await asyncio.wait_for(digest.ready(), 5)
        assert digest.totals.events == 4
        follow.cancel()

    run(scenario)


def test_keeps_the_newest_rounds_and_counts_all():
    async def scenario():
        case = RmCase(((1,),))
        for round_id in range(1, ROUNDS_KEPT + 6):
            case.round(round_id, {"a": 1.0}, offered=["a"], won={"a": 1})
        digest = digest_of(case)
        assert [record.round_id for record in digest.rounds(2)] == [ROUNDS_KEPT + 5, ROUNDS_KEPT + 4]
        assert len(digest.rounds(10_000)) == ROUNDS_KEPT
        assert digest.totals.rounds == {"granted": ROUNDS_KEPT + 5}

    run(scenario)


def test_a_round_that_was_broken_off_is_told_as_far_as_it_came():
    async def scenario():
        case = RmCase(((1,),))
        head = {"round_id": 7}
        case.recorder.record(
            "round_started",
            detail={**head, "reasons": ["demand"], "free": {"m00": 1}, "renewable": {}, "active": ["a"]},
        )
        case.recorder.record("round_ended", detail={**head, "duration_ms": 0.0, "outcome": "abandoned"})
        case.recorder.record("round_ended", detail={"round_id": 99, "duration_ms": 0.0, "outcome": "abandoned"})
        (record,) = digest_of(case).rounds()
        assert (record.outcome, record.granted, record.auction, record.duration_s) == ("abandoned", False, None, 0.0)

    run(scenario)


def test_keeps_the_newest_events_of_each_app_without_progress():
    async def scenario():
        case = RmCase(((1,),))
        for number in range(EVENTS_KEPT + 5):
            case.recorder.record("checkpoint", app_id="a", detail={"iteration": number, "seconds": 1.0})
            case.recorder.record("job_progress", app_id="a", detail={"iteration": number})
        events = digest_of(case).events_of("a")
        assert [event.detail["iteration"] for event in events] == list(range(EVENTS_KEPT + 4, 4, -1))
        assert {event.kind for event in events} == {"checkpoint"}

    run(scenario)


def test_forgets_the_apps_to_which_nothing_happened_longest():
    async def scenario():
        case = RmCase(((1,),))
        for number in range(APPS_KEPT):
            case.recorder.record("tuner", app_id=f"a{number}")
        case.recorder.record("tuner", app_id="a0")
        case.recorder.record("tuner", app_id="new")
        digest = digest_of(case)
        assert len(digest.events_of("a0")) == 2
        assert digest.events_of("a1") == []
        assert len(digest.events_of("new")) == 1

    run(scenario)
