"""Costs measured in a live run: medians of events with known results."""

from types import SimpleNamespace

import pytest

from themis.apps import JobShape, Slowdown
from themis.wire import themis_pb2 as pb
from themis_lab.paper.live.measured_costs import as_measured, measure
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload
from themis_lab.testbed.events import Event

S = Slowdown(1.0, 1.0, 2.0, 4.0)
BEGAN_S = 1000.0


def events(app_id, *reported):
    return [
        Event(sequence=n, time_s=BEGAN_S + at_s, kind=kind, app_id=app_id, detail=detail)
        for n, (at_s, kind, detail) in enumerate(reported, start=1)
    ]


def job(incarnation, **detail):
    return {"job_id": "j", "incarnation": incarnation, **detail}


TRAINED = events(
    "a-1",
    (3.0, "am_registered", {}),
    (9.0, "am_registered", {}),  # A second attempt says nothing of the app's start.
    (10.0, "tasks_started", job(1, iteration=0, gpus=["m/0", "m/1"], level="rack")),
    (14.0, "first_step", job(1, since_start_s=4.0)),
    # 0.5 s on two GPUs across machines of a rack, S = 2: 0.5 s on one GPU.
    (15.0, "job_progress", job(1, iteration_s=0.5, gpus=2, level="rack")),
    (16.0, "job_progress", job(1, iteration_s=None, gpus=2, level="rack")),
    (20.0, "tasks_ended", job(1, requested=True, iteration=12)),
    (20.0, "tasks_started", job(2, iteration=12, gpus=["m/0"], level="slot")),
    (26.0, "first_step", job(2, since_start_s=6.0)),
    (26.0, "resize", {"job_id": "j", "seconds": 7.5, "stop_s": 1.5}),
    # 6 s until its first step, 8 iterations of 0.5 s: what is left of 13 s are 3 s.
    (33.0, "tasks_ended", job(2, requested=False, iteration=20)),
)


def app(app_id, name, *, replay):
    message = pb.AppStatus(app_id=app_id, name=name, submitted_at_s=BEGAN_S)
    message.spec.replay = replay
    return message


def trace(name, serial_s=9.0):
    made = JobTrace(job_id="j", iterations_total=20, serial_iteration_s=serial_s, slowdown=S, shape=JobShape(tasks=2))
    return AppTrace(name=name, arrival_s=0.0, jobs=(made,))


def record(*apps, reported=(), lead_s=3.0, grace_s=10.0):
    settings = SimpleNamespace(lease=SimpleNamespace(checkpoint_lead_s=lead_s, grace_s=grace_s))
    return SimpleNamespace(apps=apps, events=tuple(reported), settings=settings)


def test_measure_returns_medians_per_app():
    found = measure(record(app("a-1", "a", replay=False), reported=TRAINED), {"a": S})["a"]
    assert found.startup_s == 3.0
    assert found.start_s == 5.0
    assert found.stop_s == 1.5
    assert found.serial_iteration_s == 0.5
    assert found.finish_s == pytest.approx(3.0)


def test_cut_short_starts_count_as_longer():
    cut = events("a-1", *((40.0 + n, "start_cut_short", job(3 + n, seconds=17.0)) for n in range(3)))
    assert measure(record(app("a-1", "a", replay=False), reported=[*TRAINED, *cut]), {"a": S})["a"].start_s == 17.0


def test_measured_costs_replace_assumed_ones():
    workload = Workload(name="w", apps=(trace("a"),))
    (made,) = as_measured(workload, record(app("a-1", "a", replay=False), reported=TRAINED)).apps
    assert made.startup_s == 3.0
    assert made.jobs[0].serial_iteration_s == 0.5
    assert (made.costs.checkpoint_s, made.costs.restore_s, made.costs.container_s) == (1.5, 5.0, 0.0)
    assert made.costs.finish_s == pytest.approx(3.0)


def test_stop_is_limited_by_lead_and_grace():
    reported = record(app("a-1", "a", replay=False), reported=TRAINED, lead_s=0.25, grace_s=1.0)
    (made,) = as_measured(Workload(name="w", apps=(trace("a"),)), reported).apps
    assert made.costs.checkpoint_s == 1.25


def test_replayed_apps_keep_their_pace():
    workload = Workload(name="w", apps=(trace("a"),))
    (made,) = as_measured(workload, record(app("a-1", "a", replay=True), reported=TRAINED)).apps
    assert made.jobs[0].serial_iteration_s == 9.0
    assert made.startup_s == 3.0


def test_missing_costs_come_from_apps_of_the_same_kind():
    """`b` is of the same kind without measurements; `c` is of another kind without any."""
    apps = [app("a-1", "a", replay=False), app("b-1", "b", replay=False), app("c-1", "c", replay=True)]
    workload = Workload(name="w", apps=(trace("a"), trace("b"), trace("c")))
    _, b, c = as_measured(workload, record(*apps, reported=TRAINED)).apps
    assert (b.startup_s, b.costs.restore_s, b.costs.finish_s) == (3.0, 5.0, pytest.approx(3.0))
    assert b.jobs[0].serial_iteration_s == 9.0
    assert (c.startup_s, c.costs.restore_s, c.costs.finish_s) == (0.0, 0.0, 0.0)
