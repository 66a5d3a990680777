"""Least share first, and nothing is taken from anybody."""

from msgspec.structs import replace

from rm_plugin.policies.drf import DrfPolicy
from themis.bids import GangDemand
from themis.cluster import DeviceType
from themis.speeds import Speeds


def jobs(name, count, least=1, most=1):
    return [GangDemand(job_id=f"{name}{place}", min_gpus=least, max_gpus=most) for place in range(count)]


def totals(gpus):
    return {app_id: sum(counts.values()) for app_id, counts in gpus.items()}


def test_free_gpus_go_to_the_app_with_the_least_share(make_snapshot, gpus_of):
    """a keeps three: b draws level with three of the four free ones, and the tie goes to the smaller id."""
    shot = make_snapshot(
        {"a": jobs("a", 6), "b": jobs("b", 6)},
        slots=((7,),),
        taken={"m0": 3},
        kept={"a": {"m0": 3}},
        rho={"a": 9.0},
        attained={"b": 1e9},
    )
    assert totals(gpus_of(DrfPolicy().decide(shot))) == {"a": 1, "b": 3}


def test_apps_keep_their_gpus(make_snapshot, gpus_of):
    """All six would be shared evenly under leases."""
    shot = make_snapshot({"a": jobs("a", 6), "b": jobs("b", 6)}, renewable={"a": {"m0": 4, "m1": 1}})
    assert totals(gpus_of(DrfPolicy().decide(shot))) == {"a": 5, "b": 1}


def test_an_app_keeps_its_gpus_although_another_would_be_faster_with_all(make_snapshot, gpus_of):
    shot = make_snapshot(
        {"a": jobs("a", 1, 1, 8), "b": jobs("b", 1, 1, 8)},
        slots=((4,), (2,)),
        renewable={"a": {"m1": 1}, "b": {"m0": 4, "m1": 1}},
    )
    assert totals(gpus_of(DrfPolicy().decide(shot))) == {"a": 1, "b": 5}


def test_only_usable_gpus_are_renewed(make_snapshot, gpus_of):
    shot = make_snapshot({"a": jobs("a", 1), "b": jobs("b", 6)}, renewable={"a": {"m0": 4}})
    assert totals(gpus_of(DrfPolicy().decide(shot))) == {"a": 1, "b": 5}


def test_gangs_go_step_by_step(make_snapshot, gpus_of):
    """Each app's job can use all four GPUs; served whole, the first would have them."""
    shot = make_snapshot({"a": jobs("a", 1, 1, 4), "b": jobs("b", 1, 1, 4)}, slots=((4,),))
    assert totals(gpus_of(DrfPolicy().decide(shot))) == {"a": 2, "b": 2}


def test_the_smallest_gang_is_given_whole(make_snapshot, gpus_of):
    """The app with the least share waits when its gang does not fit, and the GPUs do not idle for it."""
    shot = make_snapshot({"a": jobs("a", 1, 8, 8), "b": jobs("b", 6)})
    assert totals(gpus_of(DrfPolicy().decide(shot))) == {"b": 6}


def test_the_dominant_share_is_the_largest_of_any_device_type(make_snapshot, gpus_of):
    """a has one of two GPUs, b two of eight CPU nodes: b is behind, though it has more devices.

    With the last GPU b has half of them too. CPU nodes do not raise a's share, so a is first again, by its id.
    """
    speeds = Speeds.of([("gpu", 1.0), ("cpu", 0.5)])
    demands = {name: [replace(job, speeds=speeds) for job in jobs(name, 9)] for name in "ab"}
    shot = make_snapshot(demands, slots=((2,), (1,) * 8), kept={"a": {"m0": 1}, "b": {"m1": 2}})
    devices = {"gpu": DeviceType(name="gpu"), "cpu": DeviceType(name="cpu", kind="cpu")}
    names = {"m0": "gpu", "m1": "cpu"}
    machines = [replace(each, device=names[each.machine_id]) for each in shot.cluster.machines]
    free = [
        replace(shot.machines[0], free_slots=(1,), device="gpu"),
        replace(shot.machines[1], free_slots=(0, 0, 0, 0, 0, 0, 1, 1), device="cpu"),
    ]
    shot = replace(shot, cluster=replace(shot.cluster, machines=tuple(machines), devices=devices), machines=tuple(free))
    given = gpus_of(DrfPolicy().decide(shot))
    assert given == {"a": {"m1": 2}, "b": {"m0": 1}}
