"""The start reads a snapshot of the log and the events after it, and knows the same as from the whole log."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from service_cases import ServiceCase, job_event

from rm_plugin.arbiter.core import MASTER_UNAVAILABLE
from rm_plugin.service import recorder
from rm_plugin.service.log_summary import SNAPSHOT, LogSummary, OpenLease, _snapshot, read_summary
from rm_plugin.service.recorder import Recorder
from rm_plugin.service.store import StoredEvent
from rm_plugin.service.store_memory import MemoryStore
from themis.clock import VirtualClock

APPS = st.sampled_from(["", "app-0001", "app-0002"])
KINDS = st.sampled_from(
    (
        *("lease_granted", "lease_released", "lease_revoked", "lease_renewed", "app_state", "unreadable"),
        *("round_started", "round_reported", "round_granted", "round_ended", "am_started"),
    )
)
EVENTS = st.builds(
    lambda kind, app_id, time_s, number, state, memory: StoredEvent(
        sequence=0,
        kind=kind,
        app_id=app_id,
        time_s=time_s,
        detail={
            "lease_id": number,
            "round_id": number,
            "state": state,
            "memory": memory,
            "waits": None if memory is None else {"app-0001": {"job_id": "job-0", "reason": "its turn"}},
            "reason": MASTER_UNAVAILABLE,
            "rho": {"app-0001": 1.0},
        },
    ),
    KINDS,
    APPS,
    st.floats(0, 100),
    st.one_of(st.integers(1, 4), st.just("x")),
    st.sampled_from(["RUNNING", "FINISHED", "HALF", None]),
    st.sampled_from([None, {"rounds": 2}, [1.5]]),
)


def written(store, events):
    with store.transaction() as changes:
        for event in events:
            changes.append_event(event.kind, event.time_s, app_id=event.app_id, detail=event.detail)


@given(before=st.lists(EVENTS, max_size=12), after=st.lists(EVENTS, max_size=12))
def test_snapshot_and_rest_tell_the_same_as_whole_log(before, after):
    store = MemoryStore()
    written(store, before)
    with store.transaction() as changes:
        changes.put_meta(SNAPSHOT, read_summary(store).to_text())
    written(store, after)
    whole = LogSummary()
    whole.take(store.events())
    assert read_summary(store) == whole


def take(*events):
    summary = LogSummary()
    for sequence, (kind, app_id, time_s, detail) in enumerate(events, start=1):
        event = StoredEvent(sequence=sequence, kind=kind, app_id=app_id, time_s=time_s, detail=detail)
        summary.take([event])
    return summary


def test_gpu_time_of_ended_app_is_forgotten_with_its_open_leases():
    summary = take(
        ("lease_granted", "app-0001", 0.0, {"lease_id": 1}),
        ("lease_granted", "app-0001", 0.0, {"lease_id": 2}),
        ("lease_granted", "app-0002", 0.0, {"lease_id": 3}),
        ("lease_released", "app-0001", 5.0, {"lease_id": 1}),
        ("app_state", "app-0001", 9.0, {"state": "FINISHED"}),
        ("lease_released", "app-0001", 9.0, {"lease_id": 2}),
        ("lease_revoked", "app-0002", 9.0, {"lease_id": 3}),
    )
    assert summary.attained_gpu_s == {"app-0002": 9.0}
    assert (summary.open_leases, summary.last_lease) == ({}, 3)


def test_prolonged_lease_is_known_until_it_ends_or_its_app_answers():
    away = {"reason": MASTER_UNAVAILABLE}
    summary = take(
        *[("lease_granted", f"app-000{number}", 0.0, {"lease_id": number}) for number in range(1, 6)],
        *[("lease_renewed", f"app-000{number}", 1.0, {"lease_id": number, **away}) for number in range(1, 5)],
        ("lease_renewed", "app-0005", 1.0, {"lease_id": 5}),
        ("lease_revoked", "app-0001", 2.0, {"lease_id": 1}),
        ("round_reported", "", 2.0, {"round_id": 1, "rho": {"app-0002": 1.0, "app-0003": 1.0}, "kept": ["app-0003"]}),
        ("app_state", "app-0004", 3.0, {"state": "FAILED"}),
    )
    assert summary.prolonged == {3: "app-0003"}


def test_round_that_did_not_end_is_open():
    summary = take(
        ("round_started", "", 0.0, {"round_id": 1}),
        ("round_ended", "", 0.0, {"round_id": 1}),
        ("round_started", "", 0.0, {"round_id": 2}),
    )
    assert (summary.open_rounds, summary.last_round) == ({2}, 2)


def test_lease_id_in_an_event_of_an_app_master_takes_no_ids_from_leases():
    """The next id would not fit the store, so no GPU could be leased any more after the next start."""

    async def scenario():
        store = MemoryStore()
        case = ServiceCase(store)
        entry, session = await case.started("mine")
        await case.send(entry, session, job_event=job_event(detail=f'{{"lease_id": {2**63 - 1}}}'))
        assert case.recorder.events(0, entry.app_id, 100)[-1].detail["lease_id"] == 2**63 - 1
        assert ServiceCase(store).recorder.summary.last_lease == 0

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sequence":"x"}', '{"format":99,"sequence":5}'])
def test_unreadable_snapshot_counts_as_none(text):
    assert _snapshot(text) == LogSummary()


class Counting(MemoryStore):
    """Counts the events that are read."""

    read = 0

    def events(self, **choices):
        found = super().events(**choices)
        self.read += len(found)
        return found


def test_start_reads_few_events_of_long_log(monkeypatch):
    monkeypatch.setattr(recorder, "SNAPSHOT_EVERY", 10)

    async def scenario():
        store = Counting()
        case = ServiceCase(store)
        entry, _ = await case.started("mine")
        await case.round()
        for number in range(500):
            case.recorder.record("job_progress", app_id=entry.app_id, detail={"iteration": number})
        store.read = 0
        again = ServiceCase(store)
        assert store.read <= 12
        assert again.recorder.summary == case.recorder.summary
        assert again.arbiter._next_round_id == 2

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_failed_write_leaves_summary_as_it_was(monkeypatch):
    monkeypatch.setattr(recorder, "SNAPSHOT_EVERY", 1)
    store = MemoryStore()
    log = Recorder(store, VirtualClock(1.0))
    log.record("round_started", detail={"round_id": 7})
    with pytest.raises(TypeError):
        log.record("round_started", detail={"round_id": 8, "odd": object()})
    assert log.summary.last_round == 7 == read_summary(store).last_round


def test_events_written_past_recorder_are_taken_too():
    store = MemoryStore()
    log = Recorder(store, VirtualClock(1.0))
    with store.transaction() as changes:
        changes.append_event("round_started", 1.0, detail={"round_id": 3})
    log.record("rm_started")
    assert (log.summary.last_round, log.summary.sequence) == (3, 2)


def test_snapshot_of_the_version_without_usage_is_used_since_its_events_may_be_archived():
    summary = _snapshot('{"format":1,"sequence":5,"last_round":3,"attained_gpu_s":{"app-0001":7.0}}')
    assert (summary.sequence, summary.last_round, summary.attained_gpu_s) == (5, 3, {"app-0001": 7.0})
    assert _snapshot(summary.to_text()) == summary


def test_usage_can_be_read_while_the_writing_thread_takes_events():
    summary = LogSummary(open_leases={1: OpenLease(app_id="app-0001", granted_at_s=0.0)})

    class Owners(dict):
        def get(self, *args):
            summary.open_leases[2] = OpenLease(app_id="app-0002", granted_at_s=0.0)
            return super().get(*args)

    summary.owners = Owners()
    assert summary.usage_at(10.0) == {("1970-01", "", "", ""): 10.0}
