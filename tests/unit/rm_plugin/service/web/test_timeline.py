"""The time line of an app, folded from its events."""

import asyncio

import pytest
from web_cases import RmCase

from rm_plugin.service.store import StoredEvent
from rm_plugin.service.web import timeline
from rm_plugin.service.web.timeline import Timeline, Timelines, timeline_document


def fold(*events):
    line = Timeline()
    line.take(
        StoredEvent(sequence=number, time_s=at_s, kind=kind, app_id="app-0001", detail=detail)
        for number, (at_s, kind, detail) in enumerate(events, 1)
    )
    return line


def started(at_s, job="job-0", gpus=2):
    return at_s, "tasks_started", {"job_id": job, "gpus": [f"m0/{index}" for index in range(gpus)]}


def ended(at_s, job="job-0"):
    return at_s, "tasks_ended", {"job_id": job}


def spans(found):
    return [(span.name, span.from_s, span.to_s, span.gpus) for span in found]


def test_job_has_a_span_for_each_start():
    line = fold(started(1.0), ended(4.0), started(6.0, gpus=4))
    assert spans(line.jobs) == [("job-0", 1.0, 4.0, 2), ("job-0", 6.0, None, 4)]


def test_renewed_lease_is_one_span():
    lease = {"lease_id": 7, "gpu": "m0/3"}
    line = fold((1.0, "lease_granted", lease), (5.0, "lease_renewed", lease), (9.0, "lease_released", lease))
    assert spans(line.leases) == [("m0/3", 1.0, 9.0, 1)]


def test_jobs_end_with_their_attempt():
    line = fold(started(1.0), started(1.0, "job-1"), (3.0, "am_lost", {"attempt": 1}))
    assert [span.to_s for span in line.jobs] == [3.0, 3.0]


def test_pause_is_a_span_until_the_app_is_resumed():
    line = fold((2.0, "app_state", {"state": "PAUSED"}), (8.0, "app_resumed", {"user": "ada"}))
    assert spans(line.pauses) == [("", 2.0, 8.0, 1)]


def test_pause_ends_with_a_kill():
    line = fold((2.0, "app_state", {"state": "PAUSED"}), (8.0, "app_state", {"state": "KILLED"}))
    assert [span.to_s for span in line.pauses] == [8.0]


@pytest.mark.parametrize("kind", ["tasks_started", "tasks_ended", "lease_granted", "lease_released", "app_state"])
def test_events_without_their_detail_do_no_harm(kind):
    fold((1.0, kind, {}), (2.0, kind, {"gpus": 3, "lease_id": []} if kind == "tasks_started" else {}))


def test_oldest_spans_are_dropped(monkeypatch):
    monkeypatch.setattr(timeline, "MAX_SPANS", 2)
    line = fold(*[event for at_s in range(0, 30, 10) for event in (started(at_s), ended(at_s + 5))])
    assert [span.from_s for span in line.jobs] == [10, 20]
    assert timeline_document(line, 30.0)["jobs"][-1] == {"job_id": "job-0", "from_s": 20, "to_s": 25, "gpus": 2}


def test_line_is_read_once_and_goes_on_from_there(monkeypatch):
    monkeypatch.setattr(timeline, "_EVENTS_A_READ", 2)
    monkeypatch.setattr(timeline, "APPS_KEPT", 1)

    async def scenario():
        case = RmCase(((4,),))
        lines = Timelines(case.recorder)
        for _, kind, detail in (started(1.0), ended(2.0), started(3.0)):
            case.recorder.record(kind, app_id="app-0001", detail=detail)
        both = await asyncio.gather(lines.of("app-0001"), lines.of("app-0001"))
        assert [len(line.jobs) for line in both] == [2, 2]
        case.recorder.record("tasks_ended", app_id="app-0001", detail={"job_id": "job-0"})
        assert (await lines.of("app-0001")).jobs[-1].to_s is not None
        await lines.of("app-0002")
        assert list(lines._kept) == ["app-0002"]

    asyncio.run(scenario())
