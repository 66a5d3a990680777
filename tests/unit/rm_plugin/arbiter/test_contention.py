"""N_avg by hand: the time-weighted mean number of active apps over an app's own life."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm_plugin.arbiter.contention import Contention
from themis.errors import InvariantError
from themis.queues import NO_TENANT, ROOT, Queue, Queues, QueueUser


def test_an_app_alone_counts_itself():
    contention = Contention()
    contention.enter("a", 10.0)
    assert contention.mean("a", 10.0) == 1.0
    assert contention.mean("a", 110.0) == 1.0


def test_mean_weighs_the_number_of_active_apps_by_time():
    contention = Contention()
    contention.enter("a", 0.0)
    contention.enter("b", 60.0)
    assert contention.active == 2
    # a: 60 s alone, 40 s of two; b: 40 s of two.
    assert contention.mean("a", 100.0) == pytest.approx((60 + 80) / 100)
    assert contention.mean("b", 100.0) == 2.0
    contention.leave("a", 100.0)
    # b: 40 s of two, 100 s alone.
    assert contention.mean("b", 200.0) == pytest.approx((80 + 100) / 140)


def test_at_its_first_moment_an_app_sees_those_active_then():
    contention = Contention()
    for app in "abc":
        contention.enter(app, 5.0)
    assert contention.mean("c", 5.0) == 3.0


def test_time_without_apps_does_not_count():
    contention = Contention()
    contention.enter("a", 0.0)
    contention.leave("a", 10.0)
    contention.enter("b", 1000.0)
    assert contention.mean("b", 1010.0) == 1.0


def test_leaving_twice_is_harmless():
    contention = Contention()
    contention.enter("a", 0.0)
    contention.leave("a", 1.0)
    contention.leave("a", 2.0)
    assert contention.active == 0


def test_time_cannot_run_backwards():
    contention = Contention()
    contention.enter("a", 10.0)
    with pytest.raises(InvariantError, match="backwards"):
        contention.enter("b", 9.0)


@given(st.lists(st.tuples(st.integers(1, 50), st.sampled_from("abcd")), min_size=1, max_size=12))
def test_it_is_the_integral_over_the_life(steps):
    """Apps enter and leave at whole seconds; second by second counting must agree."""
    contention, active, seconds = Contention(), {}, {}
    now = 0
    for wait, app in steps:
        for _ in range(wait):
            for member in active:
                seconds[member].append(len(active))
        now += wait
        if app in active:
            del active[app]
            contention.leave(app, float(now))
        else:
            active[app], seconds[app] = now, []
            contention.enter(app, float(now))
        for member in active:
            counted = seconds[member]
            expected = sum(counted) / len(counted) if counted else len(active)
            assert contention.mean(member, float(now)) == pytest.approx(expected)


def test_contention_of_all_apps_equals_that_of_each():
    contention = Contention()
    for place, app in enumerate("abc"):
        contention.enter(app, 10.0 * place)
    contention.leave("a", 35.0)
    for now_s in (35.0, 70.5):
        means = contention.at(now_s)
        assert [means.of(app) for app in "bc"] == [contention.mean(app, now_s) for app in "bc"]
        assert means.of_all("bc").tolist() == [means.of(app) for app in "bc"]
        with pytest.raises(KeyError):
            contention.mean("a", now_s)


def test_contention_at_a_time_is_not_changed_by_later_apps():
    contention = Contention()
    contention.enter("a", 0.0)
    before = contention.at(10.0)
    contention.enter("b", 10.0)
    contention.leave("a", 20.0)
    assert before.of("a") == 1.0
    assert before.active == 1
    # `b` has just arrived: for an app of age 0, N_avg is the present number of apps.
    assert before.of("b") == 1.0
    assert contention.at(20.0).of("b") == 2.0


ANNA, BOB = (ROOT, "anna"), (ROOT, "bob")


def test_n_is_the_weight_of_all_apps_over_that_of_the_app():
    contention = Contention()
    for app in "abcd":
        contention.enter(app, 0.0, ANNA)
    # One user alone: the number of apps.
    assert contention.mean("a", 10.0) == 4.0
    contention.enter("e", 10.0, BOB)
    # Two users: 1/2 for bob's app, 1/8 for each of anna's.
    assert contention.mean("e", 10.0) == 2.0
    assert contention.mean("e", 20.0) == 2.0
    assert contention.mean("a", 20.0) == pytest.approx((4 + 8) / 2)
    contention.leave("b", 20.0)
    assert contention.mean("e", 40.0) == 2.0
    assert contention.mean("a", 40.0) == pytest.approx((4 * 10 + 8 * 10 + 6 * 20) / 40)
    contention.leave("e", 40.0)
    assert contention.mean("a", 60.0) == pytest.approx((4 * 10 + 8 * 10 + 6 * 20 + 3 * 20) / 60)
    means = contention.at(60.0)
    assert means.of_all("acd").tolist() == [means.of(app) for app in "acd"]


def test_users_with_an_app_each_count_as_apps_without_users():
    named, plain = Contention(), Contention()
    for place, app in enumerate("abc"):
        named.enter(app, 10.0 * place, (ROOT, f"user-{app}"))
        plain.enter(app, 10.0 * place)
    assert [named.mean(app, 33.3) for app in "abc"] == [plain.mean(app, 33.3) for app in "abc"]


def test_other_weights_count_from_their_reload_on():
    contention = Contention()
    contention.enter("a", 0.0, ANNA)
    contention.enter("b", 0.0, BOB)
    heavy = Queues(queues={ROOT: Queue(name=ROOT, users={"anna": QueueUser(weight=3.0)})})
    contention.requeue(heavy, {"a": ANNA, "b": BOB}, 10.0)
    assert contention.mean("a", 20.0) == pytest.approx((2 * 10 + 4 / 3 * 10) / 20)
    assert contention.mean("b", 20.0) == pytest.approx((2 * 10 + 4 * 10) / 20)


@given(
    entered=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([ANNA, BOB, NO_TENANT])), min_size=1, max_size=6),
    later_s=st.sampled_from([0.0, 0.7, 30.0]),
)
def test_all_at_once_are_what_each_is(entered, later_s):
    """Also of apps that entered at this moment, beside others, and of users with weights."""
    contention = Contention(Queues(queues={ROOT: Queue(name=ROOT, users={"anna": QueueUser(weight=3.0)})}))
    entered.sort(key=lambda each: each[0])
    apps = [f"app-{number}" for number in range(len(entered))]
    for app, (at_s, tenant) in zip(apps, entered, strict=True):
        contention.enter(app, float(at_s), tenant)
    means = contention.at(entered[-1][0] + later_s)
    assert means.of_all(apps).tolist() == [means.of(app) for app in apps]
