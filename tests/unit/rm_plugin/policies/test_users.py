"""A user is to policies as one app: sums over users come first, weights divide them, and one user changes nothing."""

import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.contention import Contentions
from rm_plugin.arbiter.round_values import AppStanding, RoundSettings, RoundSnapshot
from rm_plugin.policies.auction_options import bidding_apps, valued_bids
from rm_plugin.policies.registry import POLICIES, make_policy
from rm_plugin.policies.users import rho_as_one_app, users_of
from themis.bids import AppReport, Bid, BidRow, FreeMachine, GangDemand, GangRequest, PhaseLeft
from themis.cluster import Cluster, DeviceType, Level, Machine
from themis.queues import ROOT, AppOwner, Queue, Queues, QueueUser
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.runs import Run, make_run
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workloads.registry import workload_named

CLUSTER = Cluster(
    name="two",
    machines=tuple(Machine(machine_id=f"m{index}", rack_id="r", slots=(4,)) for index in range(2)),
    devices={"gpu": DeviceType(name="gpu")},
)


USERS_COUNT = ["fair_finish", "themis", "tiresias", "srtf", "srsf", "drf", "optimus", "slaq", "gandiva"]


def standing(app_id: str, user: str, attained_gpu_s: float = 0.0, priority: int = 0) -> AppStanding:
    owner = AppOwner(user=user, priority=priority)
    return AppStanding(app_id=app_id, submitted_at_s=0.0, ended_gpu_s=attained_gpu_s, owner=owner)


def snapshot_of(*apps: AppStanding, queues: Queues | None = None, rho: float = 2.0, gpus: int = 2) -> RoundSnapshot:
    settings = RoundSettings() if queues is None else RoundSettings(queues=queues)
    counts = {}
    for app in apps:
        tenant = settings.queues.tenant(app.owner)
        counts[tenant] = counts.get(tenant, 0.0) + 1.0
    weights = settings.queues.app_weights(counts)
    mean = sum(counts[tenant] * weight for tenant, weight in weights.items()) / len(apps)
    demand = GangDemand(job_id="j", min_gpus=1, max_gpus=gpus, work_left_gpu_s=100.0)
    phase = PhaseLeft(jobs=1, work_gpu_s=100.0, longest_gpu_s=100.0, gang_gpus=gpus)
    return RoundSnapshot(
        round_id=1,
        now_s=0.0,
        lease_s=600.0,
        cluster=CLUSTER,
        machines=tuple(FreeMachine(machine_id=f"m{index}", rack_id="r", free_slots=(4,)) for index in range(2)),
        apps=apps,
        settings=settings,
        seed=0,
        contentions=Contentions(
            active=len(apps), weights={a.app_id: weights[settings.queues.tenant(a.owner)] / mean for a in apps}
        ),
        reports={
            app.app_id: AppReport(app_id=app.app_id, round_id=1, rho=rho, demands=(demand,), phases_left=(phase,))
            for app in apps
        },
    )


def order(snapshot: RoundSnapshot, amounts: dict[str, float], **more: object) -> list[str]:
    keys = users_of(snapshot).ranks(amounts, **more)
    return sorted(keys, key=keys.__getitem__)


def test_the_sum_over_the_user_comes_first_and_the_apps_of_a_user_by_their_own():
    snapshot = snapshot_of(*[standing(name, "anna") for name in "abc"], standing("d", "bob"))
    assert order(snapshot, {"a": 40.0, "b": 30.0, "c": 35.0, "d": 90.0}) == ["d", "b", "c", "a"]
    assert order(snapshot, {"a": 40.0, "b": 30.0, "c": 35.0, "d": 110.0}) == ["b", "c", "a", "d"]


def test_apps_without_a_user_stand_for_themselves():
    snapshot = snapshot_of(standing("a", ""), standing("b", ""), standing("c", "anna"))
    assert order(snapshot, {"a": 3.0, "b": 1.0, "c": 2.0}) == ["b", "c", "a"]


def test_a_user_of_weight_two_counts_half():
    queues = Queues(queues={ROOT: Queue(name=ROOT, users={"anna": QueueUser(weight=2.0)})})
    snapshot = snapshot_of(standing("a", "anna"), standing("b", "bob"), queues=queues)
    assert order(snapshot, {"a": 19.0, "b": 10.0}) == ["a", "b"]
    assert order(snapshot, {"a": 21.0, "b": 10.0}) == ["b", "a"]


def test_apps_that_ended_count_for_their_user():
    snapshot = snapshot_of(standing("a", "anna"), standing("b", "bob"))
    before = {(ROOT, "anna"): 10.0}
    assert order(snapshot, {"a": 1.0, "b": 2.0}) == ["a", "b"]
    assert order(snapshot, {"a": 1.0, "b": 2.0}, before=before) == ["b", "a"]


def test_total_of_a_user_is_the_sum_of_its_apps_over_its_weight():
    queues = Queues(queues={ROOT: Queue(name=ROOT, users={"anna": QueueUser(weight=2.0)})})
    snapshot = snapshot_of(standing("a", "anna"), standing("b", "anna"), standing("c", "bob"), queues=queues)
    users, amounts = users_of(snapshot), {"a": 3.0, "b": 5.0, "c": 4.0}
    weights = {name: users.weights[users.of[name]] for name in "ac"}
    assert users.totals(amounts) == {"a": 8.0 / weights["a"], "b": 8.0 / weights["a"], "c": 4.0 / weights["c"]}


def test_a_priority_orders_the_apps_of_its_user_only():
    snapshot = snapshot_of(
        standing("a", "anna"),
        standing("b", "anna", priority=1),
        standing("c", "bob"),
        standing("d", "carl", priority=9),
    )
    assert order(snapshot, {"a": 1.0, "b": 5.0, "c": 4.0, "d": 7.0}) == ["c", "b", "a", "d"]


@pytest.mark.parametrize("policy", ["tiresias", "srtf", "srsf", "drf"])
def test_a_user_of_four_apps_gets_no_more_than_a_user_of_one(policy):
    apps = [standing(f"a{index}", "anna", 100.0) for index in range(4)]
    snapshot = snapshot_of(*apps, standing("b", "bob", 399.0))
    decision = make_policy(policy).decide(replace(snapshot, machines=snapshot.machines[:1]))
    grants = decision.grants()
    assert sum(gang.gpus.gpus for gang in grants["b"]) == 2
    assert sum(gang.gpus.gpus for app_id, gangs in grants.items() for gang in gangs if app_id != "b") == 2


@pytest.mark.parametrize("work", [50.0, 90.0, 110.0, 200.0])
@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - {"themis", "worst_rho_first"}))
def test_a_split_gains_no_gpu_in_a_round(policy, work):
    """`themis` and `worst_rho_first` go by rho, which parts report for themselves."""

    def gpus(parts):
        """What anna has who wants 4 gangs of 2 in so many apps, as bob does whose jobs have `work`."""
        wanted = {"bob": (4, work), **{f"{place}-of-anna": (4 // parts, 100.0) for place in range(parts)}}
        snapshot = snapshot_of(*[standing(app_id, app_id.rpartition("-")[2]) for app_id in wanted])
        reports = {
            app_id: AppReport(
                app_id=app_id,
                round_id=1,
                rho=2.0,
                demands=tuple(
                    GangDemand(job_id=f"j{place}", min_gpus=1, max_gpus=2, work_left_gpu_s=each)
                    for place in range(jobs)
                ),
                phases_left=(PhaseLeft(jobs=jobs, work_gpu_s=jobs * each, longest_gpu_s=each, gang_gpus=2),),
            )
            for app_id, (jobs, each) in wanted.items()
        }
        grants = make_policy(policy).decide(replace(snapshot, reports=reports)).grants()
        return sum(gang.gpus.gpus for app_id, gangs in grants.items() for gang in gangs if app_id != "bob")

    assert gpus(4) <= gpus(1)


def test_relative_weights_are_equal_however_many_apps_a_user_has():
    snapshot = snapshot_of(*[standing(f"a{index}", "anna") for index in range(10)], standing("b", "bob"))
    assert set(users_of(snapshot).relative_weights().values()) == {1.0}


def test_relative_weights_are_shares_of_the_largest():
    users = {"anna": QueueUser(weight=0.5), "bob": QueueUser(weight=2.0)}
    queues = Queues(queues={ROOT: Queue(name=ROOT, users=users)})
    snapshot = snapshot_of(standing("a", "anna"), standing("b", "bob"), queues=queues)
    assert users_of(snapshot).relative_weights() == {"a": 0.25, "b": 1.0}


@pytest.mark.parametrize("policy", ["slaq", "gandiva"])
def test_jobs_of_equal_score_are_served_by_the_weight_of_their_user(policy):
    queues = Queues(queues={ROOT: Queue(name=ROOT, users={"bob": QueueUser(weight=2.0)})})

    def served(queues):
        apps = [standing(f"a{index}", "anna") for index in range(3)]
        snapshot = snapshot_of(*apps, standing("b", "bob"), queues=queues)
        return set(make_policy(policy).decide(replace(snapshot, machines=snapshot.machines[:1])).grants())

    assert served(None) == {"a0", "a1"}
    assert "b" in served(queues)


def test_rho_counts_as_if_the_apps_of_a_user_were_one():
    apps = [standing(f"a{index}", "anna") for index in range(4)]
    small = rho_as_one_app(snapshot_of(*apps, standing("b", "bob"), gpus=2))
    assert small == {**{f"a{index}": 8.0 for index in range(4)}, "b": 2.0}
    large = rho_as_one_app(snapshot_of(*apps, standing("b", "bob"), gpus=8))
    assert large == {**{f"a{index}": 2.0 for index in range(4)}, "b": 2.0}


def test_places_in_the_auction_count_by_weight():
    apps = [standing(f"a{index}", "anna") for index in range(4)]
    snapshot = snapshot_of(*apps, standing("b", "bob"))
    # (1 - 0.5) of the weight is that of anna's four apps, or of bob's one.
    half = replace(snapshot, settings=RoundSettings(f=0.5))
    assert len(bidding_apps(half, {})) == 4
    few = replace(snapshot, settings=RoundSettings(f=0.8))
    assert len(bidding_apps(few, {})) == 2


def test_values_of_bids_have_the_weight_as_their_exponent():
    apps = [standing(f"a{index}", "anna") for index in range(4)]
    snapshot = snapshot_of(*apps, standing("b", "bob"))
    row = BidRow(value=8.0, gangs=(GangRequest(2, Level.CLUSTER),))
    bids = {app_id: Bid(app_id=app_id, round_id=1, empty_value=0.5, rows=(row,)) for app_id in ("a0", "b")}
    a, b = valued_bids(replace(snapshot, bids=bids), {})
    # Weights relative to the mean app's: 5/8 and 5/2.
    assert a.rows[0].value == pytest.approx(0.5 * 16.0**0.625)
    assert b.rows[0].value == pytest.approx(0.5 * 16.0**2.5)
    assert (a.empty_value, b.empty_value) == (0.5, 0.5)


@pytest.mark.parametrize("policy", USERS_COUNT)
@pytest.mark.parametrize("users", ["one", "each"])
def test_runs_of_one_user_or_of_a_user_each_equal_runs_without_users(policy, users):
    cluster = cluster_named("4x2")
    workload = workload_named("synthetic", 3, cluster, apps=6, jobs=3, load=2.0, task_gpu_s=600.0)

    def run(owner_of):
        apps = tuple(replace(app, owner=owner_of(app)) for app in workload.apps)
        settings = Settings(cluster=cluster, policy=policy, seed=1, validate=False)
        record = make_run(Run(workload=replace(workload, apps=apps), settings=settings))
        ends = [(app.name, app.ended_at_s, app.gpu_time_s) for app in record.apps]
        return ends, [dict(app.rho) for app in record.apps]

    name = (lambda _: "anna") if users == "one" else (lambda app: f"user-{app.name}")
    ends, rhos = run(lambda app: AppOwner(user=name(app)))
    expected_ends, expected_rhos = run(lambda _: AppOwner())
    assert ends == expected_ends
    # On the fluid cluster the weight of a user is divided among its apps, which rounds.
    assert rhos == [pytest.approx(rho, rel=1e-9) for rho in expected_rhos]
