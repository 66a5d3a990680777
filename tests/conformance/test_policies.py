"""What every policy must do, in whole simulated searches of random apps."""

import math
import random
from functools import cache

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, cluster_of
from documents import code, table_rows
from msgspec.structs import replace

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSettings
from rm_plugin.policies.demands import capacity_after, usable_left
from rm_plugin.policies.port import traits_of
from rm_plugin.policies.registry import POLICIES, make_policy
from themis.apps import JobShape, Slowdown
from themis.bids import FreeMachine
from themis.choices import Bidders, BidValues, GangPlacement, LeaseEnds, LeftoverOrder, Rounding
from themis.cluster import Allocation, Level
from themis.errors import UnknownNameError
from themis.leases import LeaseChangeKind
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.observer import History
from themis_lab.simulator.settings import NodeOutage, Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import AppTrace, JobTrace, LossCurve, Workload

CLUSTER = cluster_of((2, 2), (2, 2), (2,), (2,), (2, 2), racks=("r0", "r1"))
# Slot and machine are the same here: a demand states the GPUs of its job by machine, without the slot.
FAR = Slowdown(1.0, 1.0, 2.0, 4.0)
ENDS = [LeaseEnds.ALIGNED, LeaseEnds.STAGGERED]
CHEAP = Costs(checkpoint_s=0.0, restore_s=8.0, container_s=0.0)
LOST = NodeOutage(machine_id="m1", lost_at_s=900.0, back_at_s=2500.0)
# The story of each seed: with cheap restarts, with costly ones, and with costly ones and a machine that is unavailable.
STORIES = ((CHEAP, ()), (Costs(), ()), (Costs(), (LOST,)))
SEEDS = range(len(STORIES))


class Unforeseen:
    """A loss that no agent can forecast."""

    def at(self, iteration):
        return 1.0


def random_app(rng, name, at_s, gangs):
    least, unit = rng.choice([1, 1, 1, 2]), rng.choice([1, 1, 2])
    tasks = least + rng.randint(0, 3)
    shape = JobShape(tasks=tasks, min_tasks=least, gpus_per_task=unit) if gangs else JobShape(tasks=tasks, min_tasks=1)
    slowdown = rng.choice([FLAT, CRUDE_SLOWDOWN, FAR])
    jobs = [
        JobTrace(
            job_id=(job_id := f"{name}-j{place}"),
            iterations_total=rng.randint(200, 6000),
            serial_iteration_s=1.0,
            slowdown=slowdown,
            shape=shape,
            curve=random_curve(job_id),
        )
        for place in range(rng.randint(1, 5))
    ]
    return AppTrace(name=name, arrival_s=at_s, jobs=tuple(jobs))


def random_curve(job_id):
    """A curve of the job's own, or none: drawn by its id, so that the draws of the apps stay what they are."""
    rng = random.Random(job_id)
    if rng.random() < 0.3:
        return Unforeseen()
    return LossCurve(floor=0.1, drop=rng.uniform(0, 5), scale=rng.uniform(1, 1000), power=rng.choice([0.5, 1.0, 2.0]))


def workload(name, seed, apps, waits=(0, 0, 50, 300)):
    """Random apps that a policy accepts."""
    gangs = traits_of(make_policy(name)).gangs
    rng = random.Random(seed)
    at_s, found = 0.0, []
    for place in range(apps):
        found.append(random_app(rng, f"a{place}", at_s, gangs))
        at_s += rng.choice(waits)
    return Workload(name=f"{apps} random apps", apps=tuple(found))


def settings(name, seed, ends=LeaseEnds.ALIGNED, costs=CHEAP, outages=(), **rounds):
    return Settings(
        cluster=CLUSTER,
        policy=name,
        seed=seed,
        leases=LeasePolicy(ends=ends),
        rounds=RoundSettings(**rounds),
        costs=costs,
        outages=outages,
    )


def check_decision(run, result):
    """Feasible, within what was asked for, and no GPU left that a job could use unless the policy may wait."""
    snapshot, decision = result.snapshot, result.decision
    assert not result.refused
    grants = decision.grants()
    left = capacity_after(snapshot.machines, grants).machines()
    granted = sum((gang.gpus for gangs in grants.values() for gang in gangs), Allocation())
    free = Allocation.of({machine.machine_id: machine.free for machine in left})
    assert granted + free == snapshot.free
    for app_id, gangs in grants.items():
        check_app(run, snapshot, app_id, gangs)
    if traits_of(make_policy(run.settings.policy)).work_conserving:
        assert usable_left(snapshot.machines, decision) == 0


def check_app(run, snapshot, app_id, gangs):
    report = snapshot.reports[app_id]
    given = sum(gang.gpus.gpus for gang in gangs)
    assert 0 < given <= report.demand_gpus
    jobs = [job for job in run.apps[app_id].jobs.values() if job.job_id in run.apps[app_id].plan.targets]
    standing = snapshot.standing(app_id)
    held = standing.kept.gpus
    if any(job.stopping for job in jobs):
        # A job that saves itself to move asks as if it had nothing, and until it has moved the app gives nothing back.
        held = sum(len(job.gpus) for job in jobs if job.running) - standing.renewable.gpus
    # Of a gang whose leases end at two times a job may keep a part too small to run on, until it gives that back.
    most = sum(job.trace.shape.demand_max_gpus + job.trace.shape.demand_min_gpus - 1 for job in jobs)
    assert given + held <= most
    for gang in gangs:
        assert gang.level is true_level(gang)


def true_level(gang):
    if gang.slot is not None:
        return Level.SLOT
    if gang.pinned or len(gang.gpus.counts) > 1 or gang.level is not Level.MACHINE:
        # A grown gang's level counts what the job holds already: only that it is no nearer can be seen here.
        return max(gang.level, CLUSTER.level_of(gang.gpus))
    return Level.MACHINE


class Story(History):
    """A whole search of several apps: all that was decided, every round of it checked."""

    def __init__(self, name, seed, apps=8, **choices):
        super().__init__()
        self.run = Simulation(workload(name, seed, apps), settings(name, seed, **choices), observer=self)
        self.record = self.run.run(watch=lambda run: run.arbiter.validate())
        self.rho = {app.name: app.rho["themis"] for app in self.record.apps}

    def round_played(self, result):
        super().round_played(result)
        check_decision(self.run, result)


@cache
def story(name, ends, seed):
    costs, outages = STORIES[seed]
    return Story(name, seed, ends=ends, costs=costs, outages=outages)


LEASES = LeasePolicy()


def lengths(changes):
    """Beginning and end of every lease granted or renewed: it begins with the end of the one that it follows."""
    seen, ends_s, found = set(), {}, []
    for change in changes:
        lease = change.lease
        if change.kind in (LeaseChangeKind.RELEASED, LeaseChangeKind.REVOKED) and not change.reserved:
            ends_s.pop(lease.gpu)
        if change.kind is LeaseChangeKind.RENEWED:
            found.append((ends_s[lease.gpu], lease.expires_at_s))
        if change.kind in (LeaseChangeKind.GRANTED, LeaseChangeKind.RESERVED) and lease.lease_id not in seen:
            found.append((ends_s.get(lease.gpu, lease.granted_at_s), lease.expires_at_s))
        if change.kind in (LeaseChangeKind.GRANTED, LeaseChangeKind.RENEWED):
            ends_s[lease.gpu] = lease.expires_at_s
        seen.add(lease.lease_id)
    return found


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("name", sorted(POLICIES))
class TestWholeSearches:
    def test_every_round_is_feasible_within_demand_and_work_conserving_by_its_traits(self, name, ends):
        for seed in SEEDS:
            reported = story(name, ends, seed)
            assert len(reported.results) > 10
            assert reported.record.counts.violations == []
            assert reported.run.arbiter.table.live == {}

    def test_gpu_time_is_no_less_than_the_work(self, name, ends):
        for seed in SEEDS:
            reported = story(name, ends, seed)
            for app, trace in zip(reported.record.apps, reported.run.workload.apps, strict=True):
                assert app.gpu_time_s >= sum(job.work_gpu_s for job in trace.jobs) * (1 - 1e-9)

    def test_machines_are_lost_only_where_they_should_be(self, name, ends):
        for seed, (_, outages) in enumerate(STORIES):
            kinds = {change.kind for change in story(name, ends, seed).changes}
            assert (LeaseChangeKind.REVOKED in kinds) == bool(outages)

    def test_renewals_keep_lease_and_gpu_and_no_id_comes_back(self, name, ends):
        for seed in SEEDS:
            gpu_of, renewed = {}, 0
            for change in story(name, ends, seed).changes:
                lease = change.lease
                is_new = change.kind in (LeaseChangeKind.GRANTED, LeaseChangeKind.RESERVED)
                if is_new and lease.lease_id not in gpu_of:
                    gpu_of[lease.lease_id] = (lease.gpu, lease.app_id)
                assert gpu_of[lease.lease_id] == (lease.gpu, lease.app_id)
                renewed += change.kind is LeaseChangeKind.RENEWED
            assert renewed > 10

    def test_staggered_leases_have_full_length_and_aligned_ones_end_on_the_grid(self, name, ends):
        for seed in SEEDS:
            for begins_s, end_s in lengths(story(name, ends, seed).changes):
                if ends is LeaseEnds.ALIGNED:
                    assert end_s % LEASES.duration_s == pytest.approx(0.0, abs=1e-6)
                else:
                    # By more where a gang has a GPU whose former lease ends later: within the lead of the round.
                    longer_s = end_s - begins_s - LEASES.duration_s
                    assert -1e-6 <= longer_s <= LEASES.checkpoint_lead_s + 1e-6

    def test_the_same_seed_gives_the_same_history(self, name, ends):
        one, two = (Story(name, 3, apps=4, ends=ends, costs=Costs()) for _ in range(2))
        assert one.changes == two.changes
        assert one.rho == two.rho

    def test_decisions_do_not_depend_on_rho_values_that_the_policy_does_not_request(self, name, ends):
        for seed, (costs, outages) in enumerate(STORIES):
            unwatched = Simulation(workload(name, seed, 8), settings(name, seed, ends, costs, outages)).run()
            assert unwatched.apps == story(name, ends, seed).record.apps


@pytest.mark.parametrize("name", sorted(POLICIES))
class TestOneRound:
    def runs(self, name):
        """A run in the middle of things, with the snapshot of its next round."""
        for seed in range(4):
            run = Simulation(workload(name, seed, 6, (0,)), replace(settings(name, seed), record_rounds=True))
            run.play_rounds(2 + seed)
            # Jobs end while no round is played, up to the next that has to be.
            run.pass_time(min(run.arbiter.next_lease_round_s(), run.now_s + 700))
            yield run, run.arbiter.begin_round(run.now_s)[0]

    def test_the_order_of_apps_and_machines_does_not_matter(self, name):
        for run, snapshot in self.runs(name):
            straight = run.decide(snapshot).decision
            shuffled = replace(snapshot, apps=snapshot.apps[::-1], machines=snapshot.machines[::-1])
            turned = run.decide(shuffled).decision
            assert (turned.auction, turned.leftovers) == (straight.auction, straight.leftovers)
            assert set(turned.unserved) == set(straight.unserved)

    def test_deciding_twice_gives_the_same_and_changes_nothing(self, name):
        for run, snapshot in self.runs(name):
            before = dict(run.arbiter.table.live)
            assert run.decide(snapshot) == run.decide(snapshot, make_policy(name))
            assert run.arbiter.table.live == before

    def test_an_app_whose_master_is_away_gets_nothing(self, name):
        for run, snapshot in self.runs(name):
            for app in snapshot.apps[:2]:
                silent = tuple(
                    replace(each, silent=True) if each.app_id == app.app_id else each for each in snapshot.apps
                )
                assert app.app_id not in run.decide(replace(snapshot, apps=silent)).decision.grants()

    def test_with_nothing_free_nothing_is_granted(self, name):
        for run, snapshot in self.runs(name):
            full = tuple(
                FreeMachine(
                    machine_id=machine.machine_id, rack_id=machine.rack_id, free_slots=(0,) * len(machine.free_slots)
                )
                for machine in snapshot.machines
            )
            bare = tuple(replace(app, renewable=Allocation()) for app in snapshot.apps)
            assert run.decide(replace(snapshot, machines=full, apps=bare)).decision.grants() == {}

    def test_only_themis_holds_auctions(self, name):
        for run, snapshot in self.runs(name):
            reports = {app.app_id: run.report(snapshot, app.app_id) for app in snapshot.apps}
            step = make_policy(name).decide(replace(snapshot, reports=reports))
            assert isinstance(step, AskBids if name == "themis" else Decision)

    def test_no_apps_give_an_empty_decision(self, name):
        for run, snapshot in self.runs(name):
            decision = run.decide(replace(snapshot, apps=())).decision
            assert replace(decision, memory=None) == Decision()


class TestThemis:
    """What themis promises in addition: no app starves, and sharing costs no app more than its own share would."""

    def test_each_app_waits_at_most_one_lease_per_app(self):
        for seed in SEEDS:
            apps = story("themis", LeaseEnds.ALIGNED, seed).record.apps
            for app in apps:
                assert app.queueing_s <= 600.0 * len(apps), (seed, app.name)

    def test_rho_stays_near_1_and_below_that_of_least_attained_service(self):
        worst = {
            name: [max(story(name, LeaseEnds.ALIGNED, seed).rho.values()) for seed in SEEDS]
            for name in ("themis", "tiresias")
        }
        assert max(worst["themis"]) < 1.1
        assert math.fsum(map(math.log, worst["themis"])) < math.fsum(map(math.log, worst["tiresias"]))

    @pytest.mark.parametrize(
        "choices",
        [
            {"f": 0.0},
            {"f": 1.0},
            {"payments": False},
            {"rounding": Rounding.NEAREST},
            {"rounding": Rounding.BY_GPU},
            {"rounding": Rounding.CAPPED, "f": 0.0},
            {"bidders": Bidders.PRESSED, "values": BidValues.SLACK},
            {"values": BidValues.SECONDS, "leftovers": LeftoverOrder.SHORTEST},
            {"leftovers": LeftoverOrder.NEED},
        ],
        ids=lambda choices: next(iter(choices)) + str(next(iter(choices.values()))),
    )
    def test_its_choices_all_lead_to_an_end(self, choices):
        reported = Story("themis", 5, apps=5, **choices)
        assert len(reported.rho) == 5


@pytest.mark.parametrize("name", ["gandiva", "tiresias", "optimus", "slaq", "srtf", "srsf", "drf", "worst_rho_first"])
def test_blind_baselines_lead_to_an_end(name):
    assert len(Story(name, 5, apps=5, gang_placement=GangPlacement.BLIND).rho) == 5


def test_an_unknown_policy_names_the_nearest():
    with pytest.raises(UnknownNameError, match="'themis'"):
        make_policy("thems")


def test_policies_are_registered_under_their_own_names():
    for name in POLICIES:
        assert make_policy(name).name == name


def test_the_page_on_policies_has_them_all_in_order():
    rows = table_rows("docs/reference/policies.md", "policy")
    assert [name for row in rows for name in code(row[0])][: len(POLICIES)] == list(POLICIES)
