"""GPUs by queue and user: demands are cut to limits, and guaranteed queues are served first."""

from collections.abc import Mapping
from types import MappingProxyType

from rm_plugin.arbiter.quotas import bids_within_quotas, within_quotas
from rm_plugin.arbiter.round_values import AppStanding, RoundSettings, RoundSnapshot
from themis.bids import AppReport, Bid, BidRow, FreeMachine, GangDemand, GangRequest
from themis.cluster import Allocation, Cluster, DeviceType, Level, Machine
from themis.queues import ROOT, AppOwner, Limits, Queue, Queues, QueueUser

CLUSTER = Cluster(
    name="four",
    machines=tuple(Machine(machine_id=f"m{index}", rack_id="r", slots=(4,)) for index in range(4)),
    devices={"gpu": DeviceType(name="gpu")},
)


def tree(*queues: Queue, **root) -> Queues:
    return Queues(queues={ROOT: Queue(name=ROOT, **root)} | {queue.name: queue for queue in queues})


def below_root(name: str, **fields) -> Queue:
    return Queue(name=name, parent=ROOT, **fields)


def cut(
    queues: Queues,
    *apps: tuple[str, AppOwner, int, tuple[int, ...]],
    smallest: int = 1,
    unit: int = 1,
    had_gpu_s: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, list[int]]:
    """GPUs of each demand that remains. An app is its id, owner, GPUs that it keeps, and those that its jobs want."""
    machines = tuple(
        FreeMachine(machine_id=machine.machine_id, rack_id="r", free_slots=(4,)) for machine in CLUSTER.machines
    )
    standings, reports = [], {}
    for app_id, owner, kept, wanted in apps:
        gpus = Allocation.of({"m0": kept}) if kept else Allocation()
        ended_gpu_s = had_gpu_s.get(app_id, 0.0)
        standings.append(
            AppStanding(app_id=app_id, submitted_at_s=0.0, owner=owner, kept=gpus, ended_gpu_s=ended_gpu_s)
        )
        demands = tuple(
            GangDemand(job_id=f"j{index}", min_gpus=smallest, max_gpus=most, unit_gpus=unit, work_left_gpu_s=1.0)
            for index, most in enumerate(wanted)
        )
        reports[app_id] = AppReport(app_id=app_id, round_id=1, rho=1.0, demands=demands)
    snapshot = RoundSnapshot(
        round_id=1,
        now_s=0.0,
        lease_s=600.0,
        cluster=CLUSTER,
        machines=machines,
        apps=tuple(standings),
        settings=RoundSettings(queues=queues),
        seed=0,
    )
    within = within_quotas(snapshot, reports)
    if not any(queue.guaranteed_gpus or queue.limits.max_gpus for queue in queues.queues.values()):
        assert within is reports or any(queue.users or queue.each_user for queue in queues.queues.values())
    return {app_id: [demand.max_gpus for demand in report.demands] for app_id, report in within.items()}


ANNA, BOB = AppOwner(user="anna", queue="vision"), AppOwner(user="bob", queue="vision")
CARL = AppOwner(user="carl", queue="speech")
BOTH = (below_root("vision"), below_root("speech"))


def test_without_limits_every_demand_stays():
    assert cut(tree(*BOTH), ("a", ANNA, 4, (8, 8)), ("b", BOB, 0, (16,))) == {"a": [8, 8], "b": [16]}


def test_a_queue_gets_no_more_than_its_limit_beyond_what_it_keeps():
    queues = tree(below_root("vision", limits=Limits(max_gpus=6)), below_root("speech"))
    assert cut(queues, ("a", ANNA, 4, (4,)), ("c", CARL, 0, (8,))) == {"a": [2], "c": [8]}


def test_the_limit_of_a_parent_holds_for_all_queues_below():
    queues = tree(*BOTH, limits=Limits(max_gpus=5))
    assert cut(queues, ("a", ANNA, 0, (4,)), ("c", CARL, 0, (4,))) == {"a": [4], "c": [1]}


def test_a_demand_whose_smallest_gang_exceeds_the_limit_goes():
    queues = tree(below_root("vision", limits=Limits(max_gpus=3)), below_root("speech"))
    assert cut(queues, ("a", ANNA, 0, (4,)), smallest=4) == {"a": []}


def test_what_is_left_of_a_limit_goes_to_the_user_with_the_least_gpus_per_weight():
    queues = tree(below_root("vision", limits=Limits(max_gpus=8)), below_root("speech"))
    apps = (("a", ANNA, 4, (4,)), ("b", BOB, 0, (4,)))
    assert cut(queues, *apps) == {"a": [], "b": [4]}
    heavy = tree(below_root("vision", limits=Limits(max_gpus=8), users={"anna": QueueUser(weight=9.0)}), BOTH[1])
    # Both have 0 GPUs per weight once bob's first demand is served, and anna has 4 / 9.
    assert cut(heavy, ("a", ANNA, 4, (2, 2)), ("b", BOB, 0, (2, 2))) == {"a": [2], "b": [2]}


def test_of_one_user_the_app_of_the_highest_priority_is_first():
    queues = tree(below_root("vision", limits=Limits(max_gpus=4)), below_root("speech"))
    first = AppOwner(user="anna", queue="vision", priority=1)
    assert cut(queues, ("a", ANNA, 0, (4,)), ("b", first, 0, (4,))) == {"a": [], "b": [4]}


def test_of_one_user_and_priority_the_app_with_the_least_gpu_time_is_first():
    queues = tree(below_root("vision", limits=Limits(max_gpus=4)), below_root("speech"))
    apps = (("a", ANNA, 0, (4,)), ("b", ANNA, 0, (4,)))
    assert cut(queues, *apps, had_gpu_s={"a": 100.0}) == {"a": [], "b": [4]}


def test_demand_is_cut_to_whole_tasks():
    queues = tree(below_root("vision", limits=Limits(max_gpus=3)), below_root("speech"))
    assert cut(queues, ("a", ANNA, 0, (4,)), smallest=2, unit=2) == {"a": [2]}


def test_limit_of_one_queue_cuts_no_demand_of_another_that_wants_more_than_is_free():
    """The policy chooses: if it serves b, no GPU may stay idle because quotas gave them all to a."""
    queues = tree(below_root("vision"), below_root("speech", limits=Limits(max_gpus=4)))
    assert cut(queues, ("a", ANNA, 0, (16,)), ("b", BOB, 0, (16,))) == {"a": [16], "b": [16]}


def test_a_user_has_a_limit_of_its_own_or_that_of_each_user():
    users = {"anna": QueueUser(limits=Limits(max_gpus=2))}
    queues = tree(below_root("vision", users=users, each_user=Limits(max_gpus=3)), below_root("speech"))
    assert cut(queues, ("a", ANNA, 0, (4,)), ("b", BOB, 0, (4,)), ("c", CARL, 0, (4,))) == {
        "a": [2],
        "b": [3],
        "c": [4],
    }


def test_others_are_cut_to_what_a_queue_below_its_guarantee_leaves():
    queues = tree(below_root("vision"), below_root("speech", guaranteed_gpus=8))
    assert cut(queues, ("a", ANNA, 0, (16,)), ("c", CARL, 0, (4, 4))) == {"a": [8], "c": [4, 4]}


def test_gang_that_begins_within_a_guarantee_is_guaranteed_as_a_whole_and_may_grow_like_others():
    queues = tree(below_root("vision"), below_root("speech", guaranteed_gpus=2))
    assert cut(queues, ("a", ANNA, 0, (16,)), ("c", CARL, 0, (4,)), smallest=4) == {"a": [12], "c": [4]}
    assert cut(queues, ("c", CARL, 0, (6,)), smallest=4) == {"c": [6]}


def test_a_guarantee_without_demand_keeps_no_gpu_from_others():
    queues = tree(below_root("vision"), below_root("speech", guaranteed_gpus=8))
    assert cut(queues, ("a", ANNA, 0, (16,)), ("c", CARL, 4, ())) == {"a": [16], "c": []}
    assert cut(queues, ("a", ANNA, 0, (16,)), ("c", CARL, 0, (3,))) == {"a": [13], "c": [3]}


def test_a_bid_has_no_row_of_more_gpus_than_its_app_may_have():
    gangs = (GangRequest(4, Level.CLUSTER),), (GangRequest(2, Level.CLUSTER),)
    rows = tuple(BidRow(value=2.0, gangs=each) for each in gangs)
    bid = Bid(app_id="a", round_id=1, empty_value=1.0, rows=rows)
    demand = GangDemand(job_id="j", min_gpus=1, max_gpus=2, work_left_gpu_s=1.0)
    snapshot = RoundSnapshot(
        round_id=1,
        now_s=0.0,
        lease_s=600.0,
        cluster=CLUSTER,
        machines=(),
        apps=(),
        settings=RoundSettings(queues=tree(limits=Limits(max_gpus=2))),
        seed=0,
        reports={"a": AppReport(app_id="a", round_id=1, rho=1.0, demands=(demand,))},
    )
    assert [row.gpus for row in bids_within_quotas(snapshot, {"a": bid})["a"].rows] == [2]
