"""When apps get GPUs and end, by playing the cluster forward."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rm_plugin.arbiter.estimates import (
    END_ERRORS,
    FIRST_GPU_ERRORS,
    AppNow,
    ClusterNow,
    ServiceOrder,
    Situation,
    estimate_of,
    forecast,
    order_of,
)
from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.policies.registry import POLICIES
from themis.fluid_cluster import FluidPhase
from themis.queues import ROOT, AppOwner, Queue, Queues, QueueUser

LEASE_S = 600.0
FAIR, SHORTEST, RHO, SERVED = (
    ServiceOrder.FAIR_FINISH,
    ServiceOrder.SHORTEST_FIRST,
    ServiceOrder.WORST_RHO_FIRST,
    ServiceOrder.LEAST_SERVED_FIRST,
)


def app(app_id, *phases, held=0, **more):
    whole_s = math.fsum(time_s for time_s, _ in phases)
    fields = {"submitted_at_s": 0.0, "whole_time_s": whole_s, "largest_gang": 4, "lease_end_s": LEASE_S, **more}
    return AppNow(app_id=app_id, phases_left=tuple(FluidPhase(*phase) for phase in phases), held_gpus=held, **fields)


def play(*apps, gpus=4, now_s=0.0, order=FAIR, **settings):
    now = {"gpus": gpus, "now_s": now_s, "lease_s": LEASE_S, "lease_end_s": LEASE_S, "order": order}
    return forecast(apps, ClusterNow(settings=RoundSettings(**settings), **now))


def test_example_of_the_module():
    found = play(app("a", (600.0, 4.0), held=4), app("b", (300.0, 4.0), restart_s=20.0))
    assert found["a"].ends_at_s == pytest.approx(600.0)
    assert found["b"].first_gpu_at_s == pytest.approx(600.0)
    assert found["b"].ends_at_s == pytest.approx(920.0)


@pytest.mark.parametrize("order", list(ServiceOrder))
@pytest.mark.parametrize("lease_s", [0.3, 7.1, 15.0, 600.0])
def test_forecast_ends_at_wall_clock_times(lease_s, order):
    """At 1.8e9 s a float has steps of 2.4e-7 s. A lease must not end at the moment when it is granted."""
    for shift_s in range(40):
        now_s = 1795670861.2662418 + 0.37 * shift_s
        apps = [
            app(name, (1000.0 * 300.7 / 7, 2.0), held=held, restart_s=3.1, submitted_at_s=now_s - 40.0)
            for name, held in (("a", 2), ("b", 0), ("c", 0))
        ]
        apps = [replace(each, lease_end_s=now_s + 0.43 * lease_s) for each in apps]
        now = {"gpus": 2, "now_s": now_s, "lease_s": lease_s, "lease_end_s": now_s + 0.43 * lease_s, "order": order}
        found = forecast(apps, ClusterNow(settings=RoundSettings(), **now))
        assert all(now_s < each.ends_at_s < math.inf for each in found.values())


def test_apps_that_restart_longer_than_a_lease_lasts_have_no_end():
    """They take turns, and neither ever works: the forecast stops, and its estimate is "not in sight"."""
    apps = [app(name, (20_000.0, 4.0), held=held, restart_s=900.0) for name, held in (("a", 4), ("b", 0))]
    found = play(*apps, order=SERVED)
    assert {each.ends_at_s for each in found.values()} == {math.inf}


def test_shorter_app_takes_the_gpus_at_the_end_of_the_lease():
    found = play(app("long", (2000.0, 4.0), held=4), app("short", (100.0, 4.0)))
    assert found["short"].ends_at_s == pytest.approx(700.0)
    assert found["long"].ends_at_s == pytest.approx(2100.0)


def test_app_that_holds_gpus_keeps_them_within_the_preemption_margin():
    holder, shorter = app("holder", (2000.0, 4.0), held=4), app("shorter", (500.0, 4.0))
    # At the end of the lease the holder has 1,400 s left, which count as 280 s.
    assert play(holder, shorter)["holder"].ends_at_s == pytest.approx(2000.0)
    assert play(holder, shorter, preemption_margin=0.6)["holder"].ends_at_s == pytest.approx(2500.0)
    assert play(holder, shorter, order=SHORTEST)["holder"].ends_at_s == pytest.approx(2500.0)


def test_users_come_first_by_weight():
    queues = Queues(queues={ROOT: Queue(name=ROOT, users={"anna": QueueUser(weight=3.0)})})
    anna = [app(name, (300.0, 4.0), owner=AppOwner(user="anna")) for name in "ab"]
    bob = app("c", (400.0, 4.0), owner=AppOwner(user="bob"))
    for order in (FAIR, SHORTEST):
        assert play(*anna, bob, order=order)["c"].rank == 1
        assert play(*anna, bob, order=order, queues=queues)["c"].rank == 3


@pytest.mark.parametrize(("had_gpu_s", "rank"), [(1_100.0, 1), (1_300.0, 2)])
def test_app_that_overran_needs_three_times_as_much_again_and_is_never_pressed(had_gpu_s, rank):
    """The other app needs 3,600 GPU seconds."""
    overran = app("a", (90.0, 4.0), overran=True, fair_end_s=1.0, attained_gpu_s=had_gpu_s)
    assert play(overran, app("b", (900.0, 4.0)))["a"].rank == rank


def test_of_apps_that_overran_the_one_that_had_least_is_served_first():
    had = {"a": 9_000.0, "b": 8_000.0}
    found = play(*[app(name, (1.0, 4.0), overran=True, attained_gpu_s=gpu_s) for name, gpu_s in had.items()])
    assert (found["b"].rank, found["a"].rank) == (1, 2)


def test_late_app_that_keeps_gpus_gets_no_further_gang_before_others():
    late = app("late", (2000.0, 4.0), held=2, largest_gang=2, fair_end_s=100.0, lease_end_s=1200.0)
    found = play(late, app("short", (600.0, 2.0)), preemption_margin=0.0)
    assert found["short"].first_gpu_at_s == 0.0


def test_app_that_misses_its_fair_end_gets_a_gang_before_shorter_ones():
    late = app("late", (2000.0, 4.0), fair_end_s=100.0)
    assert play(late, app("short", (100.0, 4.0)))["late"].first_gpu_at_s == 0.0
    late = app("late", (2000.0, 4.0), fair_end_s=9000.0)
    assert play(late, app("short", (100.0, 4.0)))["late"].first_gpu_at_s == pytest.approx(100.0)


def test_of_late_apps_the_one_to_which_a_lease_matters_most_is_served_first():
    # The long app is later in seconds, the short one relative to its time until the due date.
    long = app("long", (5000.0, 4.0), fair_end_s=5000.0, submitted_at_s=-1000.0)
    short = app("short", (200.0, 4.0), fair_end_s=300.0)
    found = play(long, short)
    assert found["short"].first_gpu_at_s == 0.0
    assert found["long"].first_gpu_at_s == pytest.approx(200.0)


def test_phase_that_needs_fewer_gpus_frees_the_others():
    found = play(app("a", (100.0, 4.0), (100.0, 1.0), held=4), app("b", (50.0, 2.0)))
    assert found["b"].first_gpu_at_s == pytest.approx(100.0)
    assert found["a"].ends_at_s == pytest.approx(200.0)


def test_gang_that_does_not_fit_waits_for_its_gpus():
    found = play(app("a", (700.0, 3.0), held=3, lease_end_s=1200.0), app("b", (10.0, 2.0), smallest_gang=2))
    assert found["b"].first_gpu_at_s == pytest.approx(700.0)


def test_running_app_takes_fewer_gpus_more_than_its_smallest_gang():
    found = play(app("a", (300.0, 3.0), held=2, smallest_gang=2), gpus=3)
    assert found["a"].ends_at_s == pytest.approx(300.0)


def test_fifth_of_the_apps_is_rounded_up():
    """Of six apps, two take turns gang by gang. The one of worst rho does not get all 8 GPUs."""
    apps = [app(f"a{place}", (600.0, 8.0), submitted_at_s=-1000.0 * (6 - place)) for place in range(6)]
    found = play(*apps, gpus=8, order=RHO)
    assert [app_id for app_id, each in found.items() if each.first_gpu_at_s == 0.0] == ["a0", "a1"]


def test_share_of_a_queue_goes_to_its_last_user():
    """While a2 runs, a1 has half of the queue a, and counts as having twice the work. After that b has more left."""
    queues = Queues(queues={ROOT: Queue(name=ROOT), **{name: Queue(name=name, parent=ROOT) for name in "ab"}})
    apps = [
        app("first", (600.0, 4.0), held=4, owner=AppOwner(user="a2", queue="a")),
        app("y", (300.0, 4.0), owner=AppOwner(user="a1", queue="a")),
        app("z", (400.0, 4.0), owner=AppOwner(user="b1", queue="b")),
    ]
    found = play(*apps, order=SHORTEST, queues=queues)
    assert found["y"].ends_at_s == pytest.approx(900.0)


def test_worst_rho_is_served_first():
    worse = app("worse", (100.0, 4.0), submitted_at_s=-1000.0)
    found = play(app("fine", (90.0, 4.0)), worse, order=RHO)
    assert (found["worse"].rank, found["fine"].rank) == (1, 2)
    assert found["worse"].first_gpu_at_s == 0.0 < found["fine"].first_gpu_at_s


def test_rho_of_apps_that_need_less_than_a_second_is_told_apart():
    """2 s after their submission: (2 + 0.5) / 0.5 = 5 and (2 + 0.8) / 0.8 = 3.5."""
    shorter, longer = (app(name, (work_s, 4.0), submitted_at_s=-2.0) for name, work_s in (("z", 0.5), ("a", 0.8)))
    found = play(longer, shorter, order=RHO)
    assert (found["z"].rank, found["a"].rank) == (1, 2)


def test_app_that_can_use_no_more_takes_no_place_among_those_of_worst_rho():
    """One of four apps has a place, and gets both free GPUs."""
    content = app("w", (1_000.0, 2.0), held=2, submitted_at_s=-50_000.0, lease_end_s=1_200.0)
    waiting = [
        app(name, (100.0, 2.0), submitted_at_s=-at_s, largest_gang=1)
        for name, at_s in (("x", 900.0), ("y", 500.0), ("z", 0.0))
    ]
    found = play(content, *waiting, order=RHO)
    assert found["x"].first_gpu_at_s == 0.0
    assert found["y"].first_gpu_at_s > 0.0


def test_least_served_app_is_served_first():
    found = play(app("fed", (9.0, 4.0), attained_gpu_s=500.0), app("new", (90.0, 4.0)), order=SERVED)
    assert (found["new"].rank, found["fed"].rank) == (1, 2)


def test_service_is_counted_in_gpu_time_while_an_app_runs():
    """At 600 s, a has had 3 * 600 = 1800 GPU s and b 1000 + 600 = 1600: b gets all GPUs until it ends, then a."""
    a, b = app("a", (900.0, 4.0), held=3), app("b", (500.0, 4.0), held=1, attained_gpu_s=1000.0)
    found = play(a, b, order=SERVED)
    assert (found["b"].ends_at_s, found["a"].ends_at_s) == pytest.approx((950.0, 1400.0))


@pytest.mark.parametrize("order", list(ServiceOrder))
@pytest.mark.parametrize("fair_end_s", [50.0, 9000.0], ids=["late", "in time"])
def test_of_equal_apps_the_one_with_the_smaller_id_is_served_first(order, fair_end_s):
    first, second = (app(name, (100.0, 4.0), fair_end_s=fair_end_s) for name in ("a", "b"))
    for apps in ((first, second), (second, first)):
        found = play(*apps, order=order)
        assert (found["a"].rank, found["b"].rank) == (1, 2)
        assert found["a"].first_gpu_at_s == 0.0 < found["b"].first_gpu_at_s


def test_app_that_can_use_no_more_has_no_rank():
    assert play(app("a", (90.0, 2.0), held=2))["a"].rank is None


def test_gang_larger_than_the_cluster_never_starts():
    found = play(app("a", (10.0, 8.0), smallest_gang=8))
    assert found["a"].first_gpu_at_s == found["a"].ends_at_s == math.inf


@pytest.mark.parametrize(
    ("apps", "situation"),
    [
        ([app("a", (9.0, 2.0), held=2)], Situation.CALM),
        ([app("a", (9.0, 2.0), held=2), app("b", (9.0, 2.0))], Situation.FULL),
        ([app("a", (9.0, 2.0), held=1)], Situation.PART),
        ([app("a", (9.0, 2.0))], Situation.WAITS),
    ],
)
def test_situation_is_what_the_app_holds(apps, situation):
    assert play(*apps)["a"].situation is situation


def test_every_policy_has_an_order_and_every_order_its_errors():
    for policy in POLICIES:
        order = order_of(policy)
        for errors in (*END_ERRORS[order].values(), FIRST_GPU_ERRORS[order]):
            assert 0.0 < errors[0] <= errors[1] <= errors[2]
        assert set(END_ERRORS[order]) == {(each, later) for each in Situation for later in (False, True)}


@pytest.mark.parametrize("phases", [1, 2, 3])
def test_errors_are_those_of_apps_with_or_without_later_phases(phases):
    several = app("a", *[(600.0, 4.0)] * phases)
    made = play(several)["a"]
    found = estimate_of(several, made, now_s=0.0, lease_s=LEASE_S, order=FAIR)
    _, median, _ = END_ERRORS[FAIR][Situation.WAITS, phases > 1]
    assert found.end_s.median == pytest.approx((made.ends_at_s + LEASE_S) * median - LEASE_S)


def test_app_that_holds_gpus_has_them_now_and_no_time_is_negative():
    held, waits = app("a", (1.0, 4.0), held=4), app("b", (1.0, 4.0))
    found = play(held, waits)
    estimates = {
        each.app_id: estimate_of(each, found[each.app_id], now_s=0.0, lease_s=LEASE_S, order=SHORTEST)
        for each in (held, waits)
    }
    assert estimates["a"].first_gpu_s.high == 0.0
    for interval in (estimates["a"].end_s, estimates["b"].first_gpu_s, estimates["b"].end_s):
        assert 0.0 <= interval.low <= interval.median <= interval.high


APPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.floats(1.0, 5000.0), st.sampled_from([0.5, 1.0, 2.0, 3.5, 8.0])), min_size=1, max_size=3),
        st.integers(0, 2),
        st.sampled_from([1, 2]),
    ),
    min_size=1,
    max_size=6,
)


@given(APPS, st.sampled_from(list(ServiceOrder)))
def test_no_app_is_expected_to_end_before_its_first_gpu(drawn, order):
    apps = [
        app(f"a{place}", *phases, held=held, smallest_gang=smallest)
        for place, (phases, held, smallest) in enumerate(drawn)
    ]
    found = play(*apps, order=order)
    for each in apps:
        estimate = estimate_of(each, found[each.app_id], now_s=0.0, lease_s=LEASE_S, order=order)
        for bound in ("low", "median", "high"):
            assert getattr(estimate.first_gpu_s, bound) <= getattr(estimate.end_s, bound)


@given(APPS, st.sampled_from(list(ServiceOrder)))
def test_work_is_conserved_and_no_app_beats_the_whole_cluster(drawn, order):
    gpus = 12
    apps = [
        app(f"a{place}", *phases, held=held, smallest_gang=smallest)
        for place, (phases, held, smallest) in enumerate(drawn)
    ]
    found = play(*apps, gpus=gpus, order=order)
    for each in apps:
        alone_s = math.fsum(phase.time_s for phase in each.phases_left)
        assert alone_s - 1e-3 <= found[each.app_id].ends_at_s < math.inf
    work_gpu_s = math.fsum(phase.work_gpu_s for each in apps for phase in each.phases_left)
    assert max(each.ends_at_s for each in found.values()) >= work_gpu_s / gpus - 1e-3
