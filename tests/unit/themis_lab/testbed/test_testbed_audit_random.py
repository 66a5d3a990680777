"""The audit of generated runs: clean for every seed, and violations are found in damaged ones."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from synthetic_run import SampleApp, SyntheticRun

from themis_lab.testbed.audit import audit
from themis_lab.testbed.audit_ownership import ONE_LEASE, ONE_TASK, WITHIN_LEASE
from themis_lab.testbed.audit_progress import AFTER_STOP
from themis_lab.testbed.audit_values import AuditInput
from themis_lab.testbed.events import Event

SLOW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def runs(draw) -> SyntheticRun:
    sizes = st.integers(1, 3)
    apps = [
        SampleApp(
            name=f"app{number}",
            at_s=draw(st.floats(0, 30)),
            jobs=draw(sizes),
            tasks=draw(sizes),
            iterations=draw(st.integers(50, 400)),
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    return SyntheticRun(apps, seed=draw(st.integers(0, 1000)))


@SLOW
@given(runs())
def test_every_generated_run_is_clean(run: SyntheticRun):
    result = audit(run.audit_input())
    assert result.clean, result.violations[:5]


@SLOW
@given(runs(), st.integers(0, 2**32))
def test_overlapping_lease_is_always_found(run: SyntheticRun, seed: int):
    spoilt = _spoilt(run, seed, "lease_released", lambda event: None)
    if spoilt is None:
        return
    gpu = spoilt[1].detail["gpu"]
    later = [e for e in spoilt[0].events if e.kind == "lease_granted" and e.detail["gpu"] == gpu]
    regranted = any(event.sequence > spoilt[1].sequence for event in later)
    texts = audit(spoilt[0]).violations
    assert regranted is any(text.startswith(ONE_LEASE) for text in texts)


@SLOW
@given(runs(), st.integers(0, 2**32))
def test_tasks_on_gpu_of_other_app_are_always_found(run: SyntheticRun, seed: int):
    gpus = [str(gpu) for gpu in run.cluster.gpu_ids()]

    def elsewhere(event: Event) -> Event:
        other = next(gpu for gpu in gpus if gpu not in event.detail["gpus"])
        return replace(event, detail={**event.detail, "gpus": [other]})

    spoilt = _spoilt(run, seed, "tasks_started", elsewhere)
    assert spoilt is not None
    texts = audit(spoilt[0]).violations
    # On the other GPU it has no lease, unless the app holds that one too; then another job runs there, or it idles.
    held = _leased_to_it(spoilt[0], spoilt[1])
    assert held or any(text.startswith((ONE_TASK, WITHIN_LEASE)) for text in texts)


@SLOW
@given(runs(), st.integers(0, 2**32))
def test_resume_off_by_one_is_always_found(run: SyntheticRun, seed: int):
    def later(event: Event) -> Event:
        return replace(event, detail={**event.detail, "iteration": event.detail["iteration"] + 1})

    spoilt = _spoilt(run, seed, "tasks_started", later)
    assert spoilt is not None
    assert any(text.startswith(AFTER_STOP) for text in audit(spoilt[0]).violations)


def _spoilt(run: SyntheticRun, seed: int, kind: str, change) -> tuple[AuditInput, Event] | None:
    """Return the run with one event of a kind changed or dropped, and the original event."""
    given_ = run.audit_input()
    places = [place for place, event in enumerate(given_.events) if event.kind == kind]
    if not places:
        return None
    place = random.Random(seed).choice(places)
    chosen = given_.events[place]
    new = change(chosen)
    events = (*given_.events[:place], *([] if new is None else [new]), *given_.events[place + 1 :])
    return replace(given_, events=events), chosen


def _leased_to_it(run: AuditInput, chosen: Event) -> bool:
    (gpu,) = next(e for e in run.events if e.sequence == chosen.sequence).detail["gpus"]
    return any(
        event.kind == "lease_granted" and event.app_id == chosen.app_id and event.detail["gpu"] == gpu
        for event in run.events
    )
