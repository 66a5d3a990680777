"""What every policy must do, whichever rule it goes by: over random apps, whole searches long, in virtual time."""

import math
import random
from dataclasses import replace
from functools import cache

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, cluster_of
from documents import code, table_rows

from am.agent.views import JobView
from audit.virtual_cluster import App, Job, World
from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSettings
from rm_plugin.policies.demands import machines_after, usable_left
from rm_plugin.policies.registry import POLICIES, make_policy
from themis.apps import JobShape, Slowdown
from themis.bids import FreeMachine, LossForecast
from themis.choices import LeaseEnds, Rounding
from themis.cluster import Allocation, Level
from themis.errors import UnknownNameError
from themis.leases import LeaseChangeKind

CLUSTER = cluster_of((2, 2), (2, 2), (2,), (2,), (2, 2), racks=("r0", "r1"))
# Slot and machine alike: a demand tells what its job holds without the slot, so growth in one is judged by the machine.
FAR = Slowdown(1.0, 1.0, 2.0, 4.0)
SEEDS = range(3)
ENDS = [LeaseEnds.ALIGNED, LeaseEnds.STAGGERED]


def random_app(rng, name):
    least, unit = rng.choice([1, 1, 1, 2]), rng.choice([1, 1, 2])
    shape = JobShape(tasks=least + rng.randint(0, 3), min_tasks=least, gpus_per_task=unit)
    slowdown = rng.choice([FLAT, CRUDE_SLOWDOWN, FAR])
    jobs = []
    for place in range(rng.randint(1, 5)):
        job_id = f"{name}-j{place}"
        view = JobView(
            job_id=job_id,
            iterations_left=1,
            serial_iteration_s=1.0,
            slowdown=slowdown,
            shape=shape,
            forecast=random_forecast(job_id),
        )
        jobs.append(Job(view, left_s=rng.uniform(200, 6000)))
    return App(name, jobs)


def random_forecast(job_id):
    """A curve of the job's own, or none: drawn by its id, so that the draws of the apps stay what they are."""
    rng = random.Random(job_id)
    if rng.random() < 0.3:
        return None
    return LossForecast(
        floor=0.1,
        drop=rng.uniform(0, 5),
        scale=rng.uniform(1, 1000),
        power=rng.choice([0.5, 1.0, 2.0]),
        iteration=rng.randint(0, 5000),
        serial_iteration_s=1.0,
    )


def arrivals(seed, apps=8):
    rng = random.Random(seed)
    at_s, found = 0.0, []
    for place in range(apps):
        found.append((at_s, random_app(rng, f"a{place}")))
        at_s += rng.choice([0, 0, 50, 300])
    return found


def check_decision(world, result):
    """Feasible, within what was asked for, and no GPU left that a job could use."""
    snapshot, decision = result.snapshot, result.decision
    assert not result.refused
    grants = decision.grants()
    left = machines_after(snapshot.machines, grants)
    granted = sum((gang.gpus for gangs in grants.values() for gang in gangs), Allocation())
    free = Allocation.of({machine.machine_id: machine.free for machine in left})
    assert granted + free == snapshot.free
    for app_id, gangs in grants.items():
        check_app(world, snapshot, app_id, gangs)
    assert usable_left(snapshot.machines, decision) == 0


def check_app(world, snapshot, app_id, gangs):
    report = snapshot.reports[app_id]
    given = sum(gang.gpus.gpus for gang in gangs)
    assert 0 < given <= report.demand_gpus
    # Of a gang whose leases end at two times a job may keep a part too small to run on, until it gives that back.
    shapes = [job.view.shape for job in world.apps[app_id].open]
    most = sum(shape.demand_max_gpus + shape.demand_min_gpus - 1 for shape in shapes)
    assert given + snapshot.standing(app_id).kept.gpus <= most
    for gang in gangs:
        assert gang.level is true_level(gang)


def true_level(gang):
    if gang.slot is not None:
        return Level.SLOT
    if gang.pinned or len(gang.gpus.counts) > 1 or gang.level is not Level.MACHINE:
        # A grown gang's level counts what the job holds already: only that it is no nearer can be seen here.
        return max(gang.level, CLUSTER.level_of(gang.gpus))
    return Level.MACHINE


class Story:
    """A whole search of several apps: the world at its end, rho and GPU time of every app, every result checked."""

    def __init__(self, name, ends, seed, apps=8, **settings):
        self.world = World(CLUSTER, name, seed=seed, leases=LeasePolicy(ends=ends), rounds=RoundSettings(**settings))
        self.rho, self.taken_gpu_s = {}, {}
        self._end_app = self.world.arbiter.end_app
        self.world.arbiter.end_app = self._remember
        self.world.run(arrivals(seed, apps), watch=lambda result: check_decision(self.world, result))

    def _remember(self, app_id, *, now_s, reason):
        app = self.world.apps[app_id]
        demand = sum(job.view.shape.demand_max_gpus for job in app.jobs)
        cluster_s = app.work_s / min(CLUSTER.gpus, demand)
        contention = self.world.arbiter.contention(app_id, now_s)
        self.rho[app_id] = (now_s - app.submitted_at_s) / (cluster_s * contention)
        self.taken_gpu_s[app_id] = self.world.arbiter.attained_gpu_s(app_id, now_s)
        return self._end_app(app_id, now_s=now_s, reason=reason)


@cache
def story(name, ends, seed):
    return Story(name, ends, seed)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("name", sorted(POLICIES))
class TestWholeSearches:
    def test_every_round_is_feasible_within_demand_and_work_conserving(self, name, ends):
        for seed in SEEDS:
            world = story(name, ends, seed).world
            assert len(world.results) > 10
            assert world.arbiter.table.live == {}

    def test_gpu_time_is_no_less_than_the_work(self, name, ends):
        for seed in SEEDS:
            told = story(name, ends, seed)
            for app in told.world.apps.values():
                assert told.taken_gpu_s[app.app_id] >= app.work_s * (1 - 1e-9)

    def test_renewals_keep_lease_and_gpu_and_no_id_comes_back(self, name, ends):
        for seed in SEEDS:
            gpu_of, renewed = {}, 0
            for change in story(name, ends, seed).world.changes:
                lease = change.lease
                is_new = change.kind in (LeaseChangeKind.GRANTED, LeaseChangeKind.RESERVED)
                if is_new and lease.lease_id not in gpu_of:
                    gpu_of[lease.lease_id] = (lease.gpu, lease.app_id)
                assert gpu_of[lease.lease_id] == (lease.gpu, lease.app_id)
                renewed += change.kind is LeaseChangeKind.RENEWED
            assert renewed > 10

    def test_the_same_seed_gives_the_same_history(self, name, ends):
        one, two = (Story(name, ends, 3, apps=4) for _ in range(2))
        assert one.world.changes == two.world.changes
        assert one.rho == two.rho


@pytest.mark.parametrize("name", sorted(POLICIES))
class TestOneRound:
    def worlds(self, name):
        """A world in the middle of things, with the snapshot of its next round."""
        for seed in range(4):
            world = World(CLUSTER, name, seed=seed)
            for _, app in arrivals(seed, apps=6):
                world.submit(app)
            for _ in range(2 + seed):
                world.play()
                world.advance(min(world.next_event_s(), world.now_s + 700))
            yield world, world.arbiter.begin_round(world.now_s)[0]

    def test_the_order_of_apps_and_machines_does_not_matter(self, name):
        for world, snapshot in self.worlds(name):
            straight = world.decide(snapshot).decision
            shuffled = replace(snapshot, apps=snapshot.apps[::-1], machines=snapshot.machines[::-1])
            turned = world.decide(shuffled).decision
            assert (turned.auction, turned.leftovers) == (straight.auction, straight.leftovers)
            assert set(turned.unserved) == set(straight.unserved)

    def test_deciding_twice_gives_the_same_and_changes_nothing(self, name):
        for world, snapshot in self.worlds(name):
            before = dict(world.arbiter.table.live)
            assert world.decide(snapshot) == world.decide(snapshot, make_policy(name))
            assert world.arbiter.table.live == before

    def test_an_app_whose_master_is_away_gets_nothing(self, name):
        for world, snapshot in self.worlds(name):
            for app in snapshot.apps[:2]:
                silent = tuple(
                    replace(each, silent=True) if each.app_id == app.app_id else each for each in snapshot.apps
                )
                assert app.app_id not in world.decide(replace(snapshot, apps=silent)).decision.grants()

    def test_with_nothing_free_nothing_is_granted(self, name):
        for world, snapshot in self.worlds(name):
            full = tuple(
                FreeMachine(
                    machine_id=machine.machine_id, rack_id=machine.rack_id, free_slots=(0,) * len(machine.free_slots)
                )
                for machine in snapshot.machines
            )
            bare = tuple(replace(app, renewable=Allocation()) for app in snapshot.apps)
            assert world.decide(replace(snapshot, machines=full, apps=bare)).decision.grants() == {}

    def test_only_themis_holds_auctions(self, name):
        for world, snapshot in self.worlds(name):
            reports = {app.app_id: world.report(snapshot, app.app_id) for app in snapshot.apps}
            step = make_policy(name).decide(replace(snapshot, reports=reports))
            assert isinstance(step, AskBids if name == "themis" else Decision)

    def test_nobody_there(self, name):
        for world, snapshot in self.worlds(name):
            decision = world.decide(replace(snapshot, apps=())).decision
            assert decision == Decision()


class TestThemis:
    """What themis promises beyond: nobody starves, and sharing costs nobody more than its share would have."""

    def test_every_app_gets_a_gpu_within_as_many_leases_as_there_are_apps(self):
        for seed in SEEDS:
            world = story("themis", LeaseEnds.ALIGNED, seed).world
            for app in world.apps.values():
                waited_s = app.first_gpu_at_s - app.submitted_at_s
                assert waited_s <= 600.0 * len(world.apps), (seed, app.app_id)

    def test_rho_stays_near_1_and_below_that_of_least_attained_service(self):
        worst = {
            name: [max(story(name, LeaseEnds.ALIGNED, seed).rho.values()) for seed in SEEDS]
            for name in ("themis", "tiresias")
        }
        assert max(worst["themis"]) < 1.1
        assert math.fsum(map(math.log, worst["themis"])) < math.fsum(map(math.log, worst["tiresias"]))

    @pytest.mark.parametrize(
        "settings",
        [{"f": 0.0}, {"f": 1.0}, {"payments": False}, {"rounding": Rounding.NEAREST}, {"rounding": Rounding.BY_GPU}],
        ids=lambda settings: next(iter(settings)) + str(next(iter(settings.values()))),
    )
    def test_its_choices_all_lead_to_an_end(self, settings):
        told = Story("themis", LeaseEnds.ALIGNED, 5, apps=5, **settings)
        assert len(told.rho) == 5


def test_an_unknown_policy_names_the_nearest():
    with pytest.raises(UnknownNameError, match="'themis'"):
        make_policy("thems")


def test_policies_are_registered_under_their_own_names():
    for name in POLICIES:
        assert make_policy(name).name == name


def test_the_page_on_policies_has_them_all_in_order():
    assert [name for row in table_rows("docs/policies.md", "policy") for name in code(row[0])][: len(POLICIES)] == list(
        POLICIES
    )
