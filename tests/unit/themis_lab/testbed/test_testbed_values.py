"""Events, intervals, spans and measures, the values of the audit and the report."""

from __future__ import annotations

import itertools
import math

import pytest
from audit_samples import rows, run_of
from hypothesis import given
from hypothesis import strategies as st

from themis.apps import Slowdown
from themis.errors import InputError
from themis.wire import themis_pb2 as pb
from themis_lab.testbed.events import Event, event_from_line, event_from_message, event_to_line, in_order, read_events
from themis_lab.testbed.intervals import Interval, merged, without
from themis_lab.testbed.measures import (
    empty_bids,
    gpu_time_s,
    overheads,
    placement_score,
    rho_series,
    share_by_leftovers,
    summary,
)
from themis_lab.testbed.plots import leased_over_time
from themis_lab.testbed.spans import lease_spans, task_spans

EVENTS = run_of(rows()).events
points = st.integers(0, 40)
intervals = st.lists(st.tuples(points, points).map(lambda pair: Interval(min(pair), max(pair))), max_size=8)


def cells(parts: list[Interval]) -> set[int]:
    """Return the unit steps that intervals cover."""
    return {step for part in parts for step in range(int(part.start_s), int(part.end_s))}


@given(intervals)
def test_merge_keeps_cover_and_gaps(parts):
    joined = merged(parts)
    assert cells(joined) == cells(parts)
    assert all(first.end_s < second.start_s for first, second in itertools.pairwise(joined))


@given(st.tuples(points, points).map(lambda pair: Interval(min(pair), max(pair))), intervals)
def test_subtract_leaves_exact_rest(whole, taken):
    assert cells(without(whole, taken)) == cells([whole]) - cells(taken)


def test_events_read_back(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text("".join(event_to_line(event) + "\n" for event in EVENTS))
    assert read_events(path) == EVENTS


def test_unterminated_last_line_is_ignored(tmp_path):
    path = tmp_path / "events.jsonl"
    whole = event_to_line(EVENTS[0]) + "\n"
    path.write_text(whole + event_to_line(EVENTS[1])[:20])
    assert read_events(path) == EVENTS[:1]


def test_duplicate_events_count_once():
    assert in_order([*EVENTS, *EVENTS[:5]]) == EVENTS


@pytest.mark.parametrize("line", ["", "7", "{}", "not json", '{"sequence": "x"}'])
def test_line_that_is_no_event_is_refused(line):
    with pytest.raises(InputError, match="line 1"):
        event_from_line(line, "line 1")


def test_event_is_built_from_message():
    message = pb.Event(sequence=3, time_s=1.5, kind="checkpoint", app_id="a", detail='{"job_id": "j", "bytes": 7}')
    wanted = Event(sequence=3, time_s=1.5, kind="checkpoint", app_id="a", detail={"job_id": "j", "bytes": 7})
    assert event_from_message(message) == wanted


def test_lease_span_begins_at_grant():
    spans = {span.lease_id: span for span in lease_spans(EVENTS)}
    assert (spans[3].app_id, spans[3].start_s, spans[3].end_s) == ("b", 10.1, 19.1)
    assert spans[1].expiries == [(1.1, 11.0), (9.1, 21.0)]


def test_task_span_has_its_end():
    spans = {(span.app_id, span.incarnation): span for span in task_spans(EVENTS)}
    first = spans["a", 1]
    assert (first.start_s, first.end_s, first.to_iteration, first.requested) == (1.3, 10.0, 85, True)
    assert first.gpus == ("m0/0", "m0/1")
    assert spans["b", 1].exit_codes == (1,)


def test_summary_of_no_values_is_unknown():
    assert summary([]) == {"median": None, "p95": None, "count": 0}
    assert summary([math.nan, 3.0]) == {"median": 3.0, "p95": 3.0, "count": 1}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_summary_is_within_its_values(values):
    reported = summary(values)
    assert min(values) <= reported["median"] <= reported["p95"] <= max(values)
    assert sum(value <= reported["p95"] for value in values) >= 0.95 * len(values)


def test_gpu_time_is_of_leases_up_to_end_of_record():
    mine = [span for span in lease_spans(EVENTS) if span.app_id == "a"]
    assert gpu_time_s(mine, 100.0) == pytest.approx(14.0 + 9.0)
    assert gpu_time_s(mine, 10.0) == pytest.approx(8.9 + 8.9)


def test_placement_score_is_weighted_by_gpu_time():
    spans = [span for span in task_spans(EVENTS) if span.app_id == "a"]
    spans[0].level = "rack"
    # 2 GPUs for 8.7 s at S = 2, then 1 GPU for 4.8 s, which does not communicate.
    score = placement_score(spans, Slowdown(1.0, 1.5, 2.0, 4.0), 100.0)
    assert score == pytest.approx((17.4 / 2.0 + 4.8) / (17.4 + 4.8))
    assert placement_score([], Slowdown(1.0, 1.0, 1.0, 1.0), 100.0) is None


def test_overheads_leftovers_and_bids_are_counted():
    reported = overheads(EVENTS)
    assert reported["round_ms"] == {"median": 10.0, "p95": 10.0, "count": 2}
    assert reported["bid_ms"]["count"] == 2
    assert share_by_leftovers(EVENTS) == pytest.approx(1 / 4)
    assert share_by_leftovers([]) is None
    assert empty_bids(EVENTS) == {"bids": 2, "empty": 0, "cut": 0, "absent": 0}


def test_rho_history_omits_unknown_values():
    spoilt = [Event(sequence=1, time_s=2.0, kind="round_reported", detail={"rho": {"a": "NaN", "b": 1.5, "c": None}})]
    assert rho_series(spoilt) == {"b": [(2.0, 1.5)]}


def test_leased_gpus_over_time_add_up():
    times, counts = leased_over_time(lease_spans(EVENTS), ["a", "b"], 0.0, 20.0)
    assert len(times) == len(counts["a"]) == len(counts["b"])
    at = dict(zip(times, zip(counts["a"], counts["b"], strict=True), strict=True))
    assert at[1.1] == (2, 0)
    assert at[10.1] == (1, 1)
    assert at[20.0] == (0, 0)
