"""The bounds on lateness of docs/explanation/fair-finish.md, played in its models by the policy's own order."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rm_plugin.arbiter.fair_finish_order import Contender, fair_finish_order
from rm_plugin.arbiter.user_ranks import Users
from themis.fluid_cluster import FluidCluster, FluidPhase
from themis.queues import ONE_QUEUE, AppOwner

LEASE_S = 600.0
MARGIN = 0.8
LITTLE_S = 1e-6


@dataclass
class App:
    """Jobs of `gang` GPUs each, seconds left by job. With `chain`, each follows the one before it at once."""

    name: str
    submitted_s: float
    left_s: list[float]
    gang: int = 1
    chain: bool = False
    running: dict[int, float] = field(default_factory=dict)
    """Seconds of its start that a running job has left, by job."""
    ended_s: float | None = None

    def __post_init__(self) -> None:
        self.work_s, self.longest_s = sum(self.left_s), max(self.left_s)

    def alone_s(self, gpus: int) -> float:
        """Seconds that it takes alone on a cluster."""
        return self.work_s if self.chain else max(self.longest_s, self.work_s / gpus)

    def waiting(self) -> list[int]:
        """The jobs that could start, the longest first."""
        if self.chain:
            return [] if self.running else [job for job, left in enumerate(self.left_s) if left][:1]
        return sorted((job for job, left in enumerate(self.left_s) if left and job not in self.running), key=self._key)

    def _key(self, job: int) -> tuple[float, int]:
        return -self.left_s[job], job


@dataclass
class Model:
    """Aligned leases. A GPU that comes back earlier is given out at once. GPUs are only counted."""

    gpus: int
    apps: list[App]
    restart_s: float = 0.0
    now_s: float = 0.0
    pressed_fit: bool = True
    """Whether in all rounds in which leases ended the pressed gangs did."""
    due_s: dict[str, float] = field(default_factory=dict)
    """Due dates that no later arrival can move: ends on the fluid cluster."""

    def play(self, until_s: float) -> Model:
        self._fluid = FluidCluster(float(self.gpus))
        coming = sorted(self.apps, key=lambda app: (app.submitted_s, app.name))
        while self.now_s < until_s and any(app.ended_s is None for app in self.apps):
            while coming and coming[0].submitted_s <= self.now_s:
                self._arrive(coming.pop(0))
            self._round()
            self._pass(min(until_s, coming[0].submitted_s if coming else math.inf))
        self.due_s = {name: life.ends_s for name, life in self._fluid.run_out().items()}
        return self

    def late_s(self, app: App) -> float:
        assert app.ended_s is not None
        return app.ended_s - self.due_s[app.name]

    def _arrive(self, app: App) -> None:
        alone_s = app.alone_s(self.gpus)
        phase = FluidPhase(alone_s, app.gang * app.work_s / alone_s)
        self._fluid.arrive(app.name, [phase], app.submitted_s)

    def _round(self) -> None:
        self._fluid.advance(self.now_s)
        due_s = {name: life.ends_s for name, life in FluidCluster.restored(self._fluid.state()).run_out().items()}
        due_s |= {name: life.ends_s for name, life in self._fluid.ended.items()}
        active = {app.name: app for app in self.apps if app.submitted_s <= self.now_s and app.ended_s is None}
        leases_end = self.now_s % LEASE_S == 0.0
        contenders = [self._contender(app, due_s[app.name], leases_end=leases_end) for app in active.values()]
        users = Users(dict.fromkeys(active, AppOwner()), ONE_QUEUE)
        turns = fair_finish_order(contenders, users, now_s=self.now_s, lease_s=LEASE_S, preemption_margin=MARGIN)
        if leases_end:
            pressed = sum(active[turn.app_id].gang for turn in turns if turn.one_gang)
            self.pressed_fit = self.pressed_fit and pressed <= self.gpus
        held = {app.name: app.running for app in active.values()} if leases_end else {}
        for app in active.values():
            app.running = {} if leases_end else app.running
        free = self.gpus - sum(app.gang * len(app.running) for app in active.values())
        for turn in turns:
            app = active[turn.app_id]
            for job in app.waiting()[: 1 if turn.one_gang else None]:
                if app.gang <= free:
                    app.running[job] = held.get(app.name, {}).get(job, self.restart_s)
                    free -= app.gang

    def _contender(self, app: App, due_s: float, *, leases_end: bool) -> Contender:
        left_s = sum(app.left_s)
        # What is left of a start counts too, of an app that holds GPUs.
        start_s = max(app.running.values(), default=0.0)
        return Contender(
            app_id=app.name,
            submitted_at_s=app.submitted_s,
            due_s=due_s,
            left_gpu_s=app.gang * left_s,
            time_left_s=app.alone_s(self.gpus) * left_s / app.work_s + start_s,
            restart_s=self.restart_s,
            kept_gpus=0 if leases_end else app.gang * len(app.running),
            held_gpus=app.gang * len(app.running),
            wanted_gpus=app.gang * (1 if app.chain else sum(1 for left in app.left_s if left)),
        )

    def _pass(self, next_s: float) -> None:
        """Until leases or a job end, or an app arrives."""
        ends = [self.now_s + start + app.left_s[job] for app in self.apps for job, start in app.running.items()]
        then_s = min([next_s, (self.now_s // LEASE_S + 1) * LEASE_S, *ends])
        for app in self.apps:
            for job, start_s in list(app.running.items()):
                done_s = then_s - self.now_s
                app.running[job] = max(0.0, start_s - done_s)
                app.left_s[job] -= max(0.0, done_s - start_s)
                if app.left_s[job] < LITTLE_S:
                    app.left_s[job] = 0.0
                    del app.running[job]
                    if app.chain and any(app.left_s):
                        app.running[next(place for place, left in enumerate(app.left_s) if left)] = 0.0
            if app.ended_s is None and not any(app.left_s):
                app.ended_s = then_s
        self.now_s = then_s


@st.composite
def chains(draw: st.DrawFn) -> list[App]:
    seconds = st.lists(st.integers(10, 4000).map(float), min_size=1, max_size=3)
    rows = draw(st.lists(st.tuples(st.integers(0, 6000), seconds, st.integers(1, 3)), min_size=2, max_size=7))
    return [App(f"a{place}", float(at_s), left_s, gang, chain=True) for place, (at_s, left_s, gang) in enumerate(rows)]


@settings(max_examples=60)
@given(chains(), st.integers(3, 8), st.sampled_from([0.0, 45.0]))
def test_while_the_pressed_fit_no_app_is_late_by_more_than_a_lease_and_a_restart(apps, gpus, restart_s):
    model = Model(gpus, apps, restart_s).play(1e6)
    assume(model.pressed_fit)
    assert max(map(model.late_s, apps)) <= LEASE_S + restart_s + LITTLE_S


def test_app_that_arrives_just_after_all_gpus_were_leased_is_late_by_a_lease_and_a_restart():
    large = [App(f"large{place}", 0.0, [work_s], gang=2, chain=True) for place, work_s in enumerate((5000.0, 6000.0))]
    small = App("small", 1.0, [10.0], chain=True)
    model = Model(2, [*large, small], restart_s=45.0).play(700.0)
    assert model.pressed_fit
    assert model.due_s["small"] == pytest.approx(16.0)
    assert small.ended_s == LEASE_S + 45.0 + 10.0


@pytest.mark.parametrize("short_apps", [5, 20])
def test_if_the_pressed_do_not_fit_each_restart_makes_all_later_apps_later(short_apps):
    first = App("first", 0.0, [600.0], chain=True)
    short = [App(f"short{place:02}", 1.0, [60.0], chain=True) for place in range(short_apps)]
    model = Model(1, [first, *short], restart_s=45.0).play(1e6)
    assert not model.pressed_fit
    assert max(map(model.late_s, short)) >= 539.0 + short_apps * 45.0


def test_large_app_waits_for_a_small_one_as_long_as_its_due_date_allows():
    """The example of the page. At 9,600 s the large app has 400 s left before it would be late, and gets one GPU."""
    large, small = App("large", 0.0, [50_000.0] * 12), App("small", 0.0, [10_000.0] * 6)
    model = Model(6, [large, small]).play(1e6)
    assert model.due_s == pytest.approx({"small": 20_000.0, "large": 110_000.0})
    assert small.ended_s == pytest.approx(10_400.0)
    assert model.late_s(large) == pytest.approx(0.0)


def test_app_of_several_jobs_at_a_time_can_be_late_by_more_though_the_pressed_fit():
    equal = [App(f"equal{place}", 0.0, [600.0] * 22) for place in range(2)]
    model = Model(2, [*equal, App("other", 5228.0, [1200.0] * 9)]).play(1e6)
    assert model.pressed_fit
    assert max(map(model.late_s, equal)) == pytest.approx(1414.0)


def bound_s(model: Model, app: App, since_s: float) -> float:
    """Until when the app ends in overload, by statement 2. `since_s` is a moment without an app before it came."""
    least_s = min(each.alone_s(model.gpus) for each in model.apps)
    due_s, span_s = model.due_s[app.name] - since_s, model.due_s[app.name] - app.submitted_s
    served_s = due_s + span_s + span_s * LEASE_S / least_s
    return since_s + served_s + span_s / least_s * (served_s + app.work_s)


@st.composite
def searches(draw: st.DrawFn) -> list[App]:
    seconds = st.lists(st.integers(30, 3000).map(float), min_size=1, max_size=4)
    rows = draw(st.lists(st.tuples(st.integers(0, 4000), seconds), min_size=2, max_size=9))
    return [App(f"a{place}", float(at_s), left_s) for place, (at_s, left_s) in enumerate(rows)]


@settings(max_examples=40)
@given(searches(), st.integers(1, 3))
def test_in_overload_no_app_ends_after_the_bound(apps, gpus):
    model = Model(gpus, apps).play(1e6)
    assert all(app.ended_s <= bound_s(model, app, 0.0) for app in apps)


def test_long_app_ends_though_short_ones_arrive_faster_than_they_can_be_served():
    long = App("long", 0.0, [620.0])
    stream = [App(f"short{place:03}", 1.0 + 55.0 * place, [60.0]) for place in range(150)]
    model = Model(1, [long, *stream]).play(stream[-1].submitted_s)
    assert sum(1 for app in stream if app.ended_s is None) > 10, "the overload lasts"
    assert long.ended_s is not None
    assert model.late_s(long) < 0.0


# ---- due dates ------------------------------------------------------------------------------------------------------


def ends_of(gpus: int, rows: list[tuple[float, list[FluidPhase]]]) -> list[float]:
    fluid = FluidCluster(float(gpus))
    for place, (at_s, phases) in sorted(enumerate(rows), key=lambda row: row[1][0]):
        fluid.arrive(str(place), phases, at_s)
    lives = fluid.run_out()
    return [lives[str(place)].ends_s for place in range(len(rows))]


@st.composite
def narrowing(draw: st.DrawFn) -> tuple[float, list[FluidPhase]]:
    widths = sorted(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)), reverse=True)
    return float(draw(st.integers(0, 300))), [FluidPhase(float(draw(st.integers(1, 200))), float(w)) for w in widths]


@given(st.lists(narrowing(), min_size=1, max_size=6), narrowing(), st.integers(2, 12))
def test_another_app_makes_no_due_date_earlier_if_phases_do_not_widen(rows, other, gpus):
    alone, crowded = ends_of(gpus, rows), ends_of(gpus, [*rows, other])
    assert all(later >= earlier - 1e-6 for earlier, later in zip(alone, crowded, strict=False))


def test_another_app_can_make_a_due_date_earlier_if_a_phase_widens():
    """b is held up in its narrow phase, and so takes its half of the GPUs later."""
    a = (0.0, [FluidPhase(100.0, 1.0), FluidPhase(10.0, 10.0)])
    b = (0.0, [FluidPhase(100.0, 2.0), FluidPhase(100.0, 10.0)])
    others = [(1.0, [FluidPhase(16.0, 10.0)]) for _ in range(4)]
    alone, crowded = ends_of(10, [a, b]), ends_of(10, [a, b, *others])
    assert alone[0] == pytest.approx(120.0)
    assert crowded[0] < 119.0
