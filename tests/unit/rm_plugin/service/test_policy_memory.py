"""A policy's memory in the event log: whole, then changes; what is read back is what was remembered."""

import json
import random
from collections.abc import Mapping

import msgspec
import pytest
from event_log_cases import stored_memory

from rm_plugin.service.policy_memory import WHOLE_EVERY, MemoryRecorder
from rm_plugin.service.store import StoredEvent
from themis.values import Value


class Owed(Value, frozen=True, kw_only=True):
    note: str | None = None
    gpus: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    inner: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)


def event(round_id, detail, *, kind="round_granted", app_id=""):
    detail = json.loads(json.dumps({"round_id": round_id, **detail}))
    return StoredEvent(sequence=round_id, time_s=float(round_id), kind=kind, app_id=app_id, detail=detail)


def played(memories, recorder=None):
    """The events of rounds that left these memories."""
    recorder, events = recorder or MemoryRecorder(), []
    for number, memory in enumerate(memories, start=1):
        detail, written = recorder.record(number, memory)
        written()
        events.append(event(number, detail))
    return events


def read(events):
    stored = stored_memory(events)
    return None if stored is None else msgspec.convert(stored, Owed)


def random_memory(rng):
    if rng.random() < 0.1:
        return None
    names = rng.sample("abcdef", rng.randint(0, 4))
    return Owed(
        note=rng.choice([None, "x"]),
        gpus={name: tuple(rng.choice([0.0, 1 / 3, -2.5]) for _ in range(rng.randint(0, 2))) for name in names},
        inner={name: {key: rng.randint(0, 2) for key in rng.sample("xyz", rng.randint(0, 3))} for name in names},
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_memory_read_after_each_round_equals_the_stored_one(seed):
    rng = random.Random(seed)
    memories = [random_memory(rng) for _ in range(WHOLE_EVERY + 30)]
    events = played(memories)
    for rounds, memory in enumerate(memories, start=1):
        assert read(events[:rounds]) == memory


def test_a_round_writes_only_the_changes():
    same = dict.fromkeys("abcdef", (1.0, 2.0))
    _, second, third = played([Owed(gpus=same), Owed(gpus={**same, "b": (3.0,)}), Owed(gpus={**same, "b": (3.0,)})])
    assert second.detail == {"round_id": 2, "memory_change": {"after": 1, "patch": {"gpus": {"b": [3.0]}}}}
    assert third.detail == {"round_id": 3, "memory_change": {"after": 2, "patch": {}}}


def test_it_is_written_whole_after_a_start_and_now_and_then():
    memory = Owed(gpus={"a": (1.0,)})
    events = [*played([memory] * (WHOLE_EVERY + 2)), *played([memory])]
    whole = [number for number, each in enumerate(events) if "memory" in each.detail]
    assert whole == [0, WHOLE_EVERY, WHOLE_EVERY + 2]


def test_a_round_that_was_not_written_is_no_base():
    recorder = MemoryRecorder()
    (first,) = played([Owed(gpus={"a": (1.0,)})], recorder)
    recorder.record(2, Owed(gpus={"a": (2.0,)}))
    detail, _ = recorder.record(3, Owed(gpus={"a": (2.0,)}))
    assert read([first, event(3, detail)]) == Owed(gpus={"a": (2.0,)})


def test_a_change_whose_base_is_unreadable_is_not_applied():
    one, _, three = played([Owed(gpus={name: (1.0,)}) for name in "abc"])
    assert read([one, event(2, {}, kind="unreadable"), three]) is None


def test_logs_with_the_whole_memory_in_every_round_are_read():
    assert read([event(n, {"memory": {"gpus": {"a": [float(n)]}}}) for n in (1, 2)]) == Owed(gpus={"a": (2.0,)})
    assert read([event(1, {"memory": {"note": "x"}}), event(2, {})]) is None


def test_events_of_apps_are_passed_over():
    events = played([Owed(note="mine")])
    assert read([*events, event(9, {"memory": {"note": "forged"}}, app_id="app-0001")]) == Owed(note="mine")


@pytest.mark.parametrize("change", [5, [], {"after": 1}, {"after": 2, "patch": {}}, {"patch": {}}])
def test_a_malformed_change_loses_the_memory_and_raises_nothing(change):
    stored = stored_memory([*played([Owed(note="x")]), event(2, {"memory_change": change})])
    assert stored is None
