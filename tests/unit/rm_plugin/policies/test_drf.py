"""Least share first, and nothing is taken from anybody."""

from rm_plugin.policies.drf import DrfPolicy
from themis.bids import GangDemand


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
