"""The fluid fair cluster equals a simulation that divides the GPUs again at every event."""

import math
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import pytest
from fluid_cases import fluid_lives
from hypothesis import given, settings
from hypothesis import strategies as st

from themis.errors import InputError, InvariantError, UnknownNameError
from themis.fluid_cluster import FluidCluster, FluidPhase, FluidState
from themis.queues import NO_OWNER, ROOT, AppOwner, Queue, Queues, QueueUser

PHASES = st.lists(
    st.builds(
        FluidPhase,
        st.one_of(st.just(0.0), st.floats(0.1, 50.0)),
        st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0, 7.5, 100.0]),
    ),
    min_size=0,
    max_size=4,
)
QUEUES = Queues(
    queues={
        ROOT: Queue(name=ROOT, users={"anna": QueueUser(weight=2.0)}),
        "vision": Queue(name="vision", parent=ROOT, weight=3.0),
        "speech": Queue(name="speech", parent=ROOT),
    }
)
OWNERS = [
    NO_OWNER,
    *[AppOwner(user=user, queue=queue) for user in ("anna", "bob") for queue in ("vision", "speech", "none")],
]
PAUSES = st.one_of(st.just(0.0), st.floats(0.1, 30.0))
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), PAUSES, PHASES, st.sampled_from([0.5, 1.0, 1.0, 3.0]), st.sampled_from(OWNERS)),
        st.tuples(st.just("resize"), PAUSES, st.sampled_from([0.0, 1.0, 4.0, 8.0, 64.0])),
        st.tuples(st.just("redeclare"), PAUSES, st.integers(0, 20), PHASES),
        st.tuples(st.just("leave"), PAUSES, st.integers(0, 20)),
    ),
    min_size=8,
    max_size=30,
)


@dataclass
class BruteApp:
    phases: list
    weight: float
    arrived_s: float
    owner: AppOwner
    done: int = 0
    used_gpu_s: float = 0.0
    contention_s: float = 0.0

    def skip_finished(self) -> bool:
        """Whether the app has ended."""
        while self.done < len(self.phases):
            left_gpu_s = self.phases[self.done].work_gpu_s - self.used_gpu_s
            if left_gpu_s > 1e-9:
                return False
            self.done, self.used_gpu_s = self.done + 1, 0.0
        return True


@dataclass
class BruteCluster:
    gpus: float
    now_s: float = 0.0
    apps: dict = field(default_factory=dict)
    ended: dict = field(default_factory=dict)

    def weights(self) -> dict:
        """The weight of each app: its own, times that of an app of its tenant."""
        counts = Counter()
        for app in self.apps.values():
            counts[QUEUES.tenant(app.owner)] += app.weight
        rates = QUEUES.app_weights(counts)
        return {name: app.weight * rates[QUEUES.tenant(app.owner)] for name, app in self.apps.items()}

    def shares(self) -> dict:
        """Progressive filling: apps in the order of the level that fills them."""
        weights = self.weights()
        left, weight = self.gpus, sum(weights.values())
        shares = {}
        order = sorted(self.apps.items(), key=lambda item: item[1].phases[item[1].done].gpus / weights[item[0]])
        for name, app in order:
            shares[name] = min(app.phases[app.done].gpus, left * weights[name] / weight)
            left, weight = left - shares[name], weight - weights[name]
        return shares

    def end_finished(self) -> None:
        weights = self.weights()
        for name in [name for name, app in self.apps.items() if app.skip_finished()]:
            app = self.apps.pop(name)
            life_s = self.now_s - app.arrived_s
            mean = app.contention_s / life_s if life_s > 0 else sum(weights.values()) / weights[name]
            self.ended[name] = (self.now_s, max(1.0, mean))

    def advance(self, until_s: float) -> None:
        self.end_finished()
        while self.apps and self.now_s < until_s:
            shares = self.shares()
            left_s = {
                name: (app.phases[app.done].work_gpu_s - app.used_gpu_s) / shares[name]
                for name, app in self.apps.items()
                if shares[name] > 0
            }
            step_s = min([until_s - self.now_s, *left_s.values()])
            if math.isinf(step_s):
                return
            weights = self.weights()
            for name, app in self.apps.items():
                app.used_gpu_s += step_s * shares[name]
                app.contention_s += step_s * sum(weights.values()) / weights[name]
            self.now_s += step_s
            self.end_finished()
        if math.isfinite(until_s):
            self.now_s = until_s


def play(gpus: float, changes: list) -> tuple[FluidCluster, BruteCluster]:
    """Both clusters after the same changes. Numbers choose among the apps that arrived."""
    cluster, brute = FluidCluster(gpus, queues=QUEUES), BruteCluster(gpus)
    now_s, arrived = 0.0, []
    for kind, pause_s, *what in changes:
        now_s += pause_s
        brute.advance(now_s)
        if kind == "arrive":
            phases, weight, owner = what
            name = f"a{len(arrived)}"
            arrived.append(name)
            cluster.arrive(name, phases, now_s, weight, owner)
            brute.apps[name] = BruteApp(list(phases), weight, now_s, owner)
        elif kind == "resize":
            cluster.resize(what[0], now_s)
            brute.gpus = what[0]
        elif arrived:
            name = arrived[what[0] % len(arrived)]
            app = brute.apps.get(name)
            if kind == "redeclare" and (app is not None or name in cluster.ended):
                cluster.redeclare(name, what[1], now_s)
                if app is not None:
                    app.phases = list(what[1])
            elif kind == "leave" and app is not None:
                cluster.leave(name, now_s)
                del brute.apps[name]
        brute.end_finished()
    return cluster, brute


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([1.0, 4.0, 8.0]), CHANGES)
def test_incremental_cluster_equals_brute_force(gpus, changes):
    cluster, brute = play(gpus, changes)
    brute.advance(math.inf)
    ends = {name: life for name, life in cluster.run_out().items() if math.isfinite(life.ends_s)}
    assert set(ends) == set(brute.ended)
    for name, (ends_s, contention) in brute.ended.items():
        assert ends[name].ends_s == pytest.approx(ends_s, rel=1e-7, abs=1e-6), name
        if ends[name].time_s > 1e-3:
            assert ends[name].contention == pytest.approx(contention, rel=1e-4), name


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([1.0, 4.0, 8.0]), CHANGES)
def test_restored_cluster_goes_on_as_the_stored_one(gpus, changes):
    cluster, _ = play(gpus, changes)
    state = msgspec.json.decode(msgspec.json.encode(cluster.state()), type=FluidState)
    restored = FluidCluster.restored(state, QUEUES)
    assert restored.now_s == cluster.now_s
    live = cluster.live
    lives, restored_lives = cluster.run_out(), restored.run_out()
    assert set(restored_lives) == set(live)
    for name, life in restored_lives.items():
        assert life.ends_s == pytest.approx(lives[name].ends_s, rel=1e-7, abs=1e-6), name
        if 1e-3 < life.time_s < math.inf:
            assert life.contention == pytest.approx(lives[name].contention, rel=1e-4), name


def test_restored_cluster_keeps_the_contention_of_apps_of_unequal_weight():
    cluster = FluidCluster(4.0, queues=QUEUES)
    for name, user, queue, at_s in (
        ("a", "anna", "vision", 0.0),
        ("b", "bob", "speech", 0.0),
        ("c", "bob", "speech", 3.0),
    ):
        cluster.arrive(name, [FluidPhase(100.0, 4.0)], at_s, owner=AppOwner(user=user, queue=queue))
    cluster.advance(20.0)
    restored = FluidCluster.restored(cluster.state(), QUEUES)
    assert {name: life.contention for name, life in restored.run_out().items()} == pytest.approx(
        {name: life.contention for name, life in cluster.run_out().items()}
    )


@settings(max_examples=100, deadline=None)
@given(CHANGES, st.floats(0.0, 300.0))
def test_played_until_a_time_those_have_ended_that_end_by_then(changes, ahead_s):
    cluster, whole = play(4.0, changes)[0], play(4.0, changes)[0].run_out()
    until_s = cluster.now_s + ahead_s
    cluster.play(until_s)
    assert cluster.ended == {app_id: life for app_id, life in whole.items() if life.ends_s <= until_s}


def test_example_of_the_module():
    lives = fluid_lives(4, [("a", 0.0, [FluidPhase(100, 4)]), ("b", 50.0, [FluidPhase(50, 1)])])
    assert lives["a"].ends_s == pytest.approx(112.5)
    assert lives["a"].contention == pytest.approx((50 + 2 * 50 + 12.5) / 112.5)
    assert lives["b"].ends_s == pytest.approx(100)


def test_weight_two_gets_twice_the_gpus_and_half_the_contention():
    cluster = FluidCluster(3)
    cluster.arrive("light", [FluidPhase(1, 30)], 0.0)
    cluster.arrive("heavy", [FluidPhase(2, 30)], 0.0, weight=2.0)
    lives = cluster.run_out()
    assert lives["light"].ends_s == lives["heavy"].ends_s == pytest.approx(30)
    assert (lives["light"].contention, lives["heavy"].contention) == (3.0, 1.5)


def test_lost_machines_delay_every_app_and_their_return_ends_the_wait():
    arrivals = [("a", 0.0, [FluidPhase(10, 4)])]
    assert fluid_lives(4, arrivals, [(5.0, 0.0), (105.0, 4.0)])["a"].ends_s == pytest.approx(110)
    assert fluid_lives(4, arrivals, [(5.0, 0.0)])["a"].ends_s == math.inf


def test_redeclared_phase_keeps_the_gpu_time_that_it_had():
    cluster = FluidCluster(4)
    cluster.arrive("a", [FluidPhase(10, 4), FluidPhase(10, 1)], 0.0)
    cluster.redeclare("a", [FluidPhase(20, 2), FluidPhase(5, 1)], 5.0)
    # 20 of 40 GPU s are done; 20 more take 10 s on two GPUs, and the second phase 5 s.
    assert cluster.run_out()["a"].ends_s == pytest.approx(20)


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (lambda cluster: cluster.arrive("a", [], 5.0), InputError),
        (lambda cluster: cluster.arrive("b", [], 5.0, weight=0.0), InputError),
        (lambda cluster: cluster.redeclare("c", [], 5.0), UnknownNameError),
        (lambda cluster: cluster.resize(math.nan, 5.0), InputError),
        (lambda cluster: cluster.advance(1.0), InvariantError),
        (lambda _: FluidPhase(1.0, 0.0), InputError),
        (lambda _: FluidPhase(math.inf, 1.0), InputError),
    ],
)
def test_misuse_is_refused(misuse, error):
    cluster = FluidCluster(1)
    cluster.arrive("a", [FluidPhase(10, 1)], 2.0)
    with pytest.raises(error):
        misuse(cluster)
