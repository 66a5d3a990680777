"""Shortest remaining service first, with due dates of the fluid fair cluster."""

import msgspec
from msgspec.structs import replace

from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.policies.due_dates import DueDateMemory, advance, due_times_s
from rm_plugin.policies.fair_finish import FairFinishPolicy
from rm_plugin.policies.port import PolicyWithMemory
from themis.bids import GangDemand, PhaseLeft
from themis.cluster import Allocation
from themis.queues import AppOwner

POLICY = FairFinishPolicy()


def jobs(name, count, least=1, most=1, work=50_000.0):
    return [
        GangDemand(job_id=f"{name}{number}", min_gpus=least, max_gpus=most, work_left_gpu_s=work)
        for number in range(count)
    ]


def phase(count, each_s, gang_gpus=1):
    return PhaseLeft(jobs=count, work_gpu_s=count * each_s, longest_gpu_s=each_s, gang_gpus=gang_gpus)


def totals(gpus):
    return {app_id: sum(counts.values()) for app_id, counts in gpus.items()}


def later(snapshot, memory, now_s, attained, **changes):
    """The next round, after the apps had these GPU seconds."""
    apps = tuple(replace(app, ended_gpu_s=attained.get(app.app_id, 0.0)) for app in snapshot.apps)
    return replace(snapshot, round_id=snapshot.round_id + 1, now_s=now_s, apps=apps, memory=memory, **changes)


def two_apps(make_snapshot, **options):
    """A small and a large app on six GPUs; both can use all of them, and each has slack on half of them."""
    demands = {"large": jobs("large", 12), "small": jobs("small", 6, work=10_000.0)}
    phases = {"large": [phase(12, 50_000.0)], "small": [phase(6, 10_000.0)]}
    return make_snapshot(demands, phases=phases, **options)


def test_it_is_a_policy_with_memory():
    assert isinstance(POLICY, PolicyWithMemory)


def test_least_service_left_is_served_first(make_snapshot, gpus_of):
    assert totals(gpus_of(POLICY.decide(two_apps(make_snapshot)))) == {"small": 6}


def test_app_that_would_miss_its_fair_end_gets_one_gang(make_snapshot, gpus_of):
    """The large app ends at 110,000 s on the fluid cluster, and needs 100,000 s alone: 10,000 s later it is pressed."""
    shot = two_apps(make_snapshot)
    memory = POLICY.decide(shot).memory
    calm = POLICY.decide(later(shot, memory, 9_000.0, {}))
    assert totals(gpus_of(calm)) == {"small": 6}
    pressed = POLICY.decide(later(shot, memory, 10_000.0, {}))
    assert totals(gpus_of(pressed)) == {"large": 1, "small": 5}


def test_of_two_late_apps_the_one_to_which_a_lease_matters_more_is_served_first(make_snapshot, gpus_of):
    """The long app takes twice its span by now; the short one just arrived, but a lease is five times its span."""
    demands = {"long": jobs("long", 1, 6, 6, work=360_000.0), "short": jobs("short", 1, 6, 6, work=720.0)}
    phases = {name: [phase(1, demand.work_left_gpu_s, 6)] for name, (demand,) in demands.items()}
    shot = make_snapshot(demands, phases=phases)
    alone = replace(shot, apps=shot.apps[:1], reports={"long": shot.reports["long"]})
    memory = POLICY.decide(alone).memory
    both = tuple(replace(app, submitted_at_s=69_990.0) if app.app_id == "short" else app for app in shot.apps)
    late = later(replace(shot, apps=both), memory, 70_000.0, {})
    assert totals(gpus_of(POLICY.decide(late))) == {"short": 6}


def test_app_that_was_paused_arrives_anew_and_is_not_due_earlier(make_snapshot):
    """The large app would end at 110,000 s. It is paused from 1,000 s to 51,000 s."""
    shot = two_apps(make_snapshot)
    memory = POLICY.decide(shot).memory
    due_s = POLICY.decide(later(shot, memory, 1_000.0, {})).memory.fluid.apps
    assert [app.app_id for app in due_s] == ["large", "small"]
    without = replace(shot, apps=shot.apps[1:], reports={"small": shot.reports["small"]})
    memory = POLICY.decide(later(replace(without, paused=frozenset({"large"})), memory, 1_000.0, {})).memory
    assert (set(memory.apps), set(memory.paused)) == ({"small"}, {"large"})
    back = replace(shot, apps=tuple(replace(app, submitted_at_s=50_000.0) for app in shot.apps))
    fluid, memory = advance(later(back, memory, 51_000.0, {"large": 6_000.0, "small": 6_000.0}))
    due_s = due_times_s(fluid, memory.apps)
    assert due_s["large"] >= 51_000.0 + 100_000.0
    assert (memory.apps["large"].done_gpu_s, memory.paused) == (6_000.0, {})


def test_app_that_ended_is_forgotten(make_snapshot):
    shot = two_apps(make_snapshot)
    memory = POLICY.decide(shot).memory
    without = replace(shot, apps=shot.apps[1:], reports={"small": shot.reports["small"]})
    memory = POLICY.decide(later(without, memory, 1_000.0, {})).memory
    assert (set(memory.apps), set(memory.paused)) == ({"small"}, set())


def test_resumed_app_counts_as_paused_until_it_reports(make_snapshot):
    shot = two_apps(make_snapshot)
    memory = POLICY.decide(shot).memory
    without = replace(shot, apps=shot.apps[1:], paused=frozenset({"large"}))
    memory = POLICY.decide(later(without, memory, 1_000.0, {})).memory
    silent = {"small": shot.reports["small"]}
    memory = POLICY.decide(later(shot, memory, 1_200.0, {}, reports=silent)).memory
    assert (set(memory.apps), set(memory.paused)) == ({"small"}, {"large"})
    memory = POLICY.decide(later(shot, memory, 1_400.0, {})).memory
    assert (set(memory.apps), set(memory.paused)) == ({"large", "small"}, set())


def ends_s(make_snapshot, *, pauses):
    """When a liar and an honest app end, on six GPUs. The liar claims a tenth of what its jobs have left.

    With `pauses` it is paused for a moment each time it has done what it claimed.
    """
    work_gpu_s = {"liar": 6 * 24_000.0, "honest": 6 * 12_000.0}
    done_gpu_s, found = dict.fromkeys(work_gpu_s, 0.0), {}
    base = make_snapshot({app: jobs(app, 6) for app in work_gpu_s}, phases={app: [phase(6, 1.0)] for app in work_gpu_s})
    memory, claimed_gpu_s = None, 0.1 * work_gpu_s["liar"]
    for number in range(120):
        apps = [app for app in base.apps if app.app_id not in found]
        reports = {}
        for app in apps:
            left_gpu_s = work_gpu_s[app.app_id] - done_gpu_s[app.app_id]
            each_s = (0.1 if app.app_id == "liar" else 1.0) * left_gpu_s / 6
            demands = tuple(jobs(app.app_id, 6, work=each_s))
            reports[app.app_id] = replace(base.reports[app.app_id], demands=demands, phases_left=(phase(6, each_s),))
        standings = tuple(replace(app, ended_gpu_s=done_gpu_s[app.app_id]) for app in apps)
        shot = replace(base, apps=standings, reports=reports, now_s=600.0 * number, memory=memory)
        if pauses and "liar" in reports and done_gpu_s["liar"] >= claimed_gpu_s:
            claimed_gpu_s = done_gpu_s["liar"] + reports["liar"].work_left_gpu_s
            others = tuple(app for app in standings if app.app_id != "liar")
            without = replace(shot, apps=others, reports=reports, paused=frozenset({"liar"}))
            shot = replace(shot, memory=POLICY.decide(without).memory)
        decision = POLICY.decide(shot)
        memory = decision.memory
        for app_id, gangs in decision.grants().items():
            done_gpu_s[app_id] += 600.0 * sum(gang.gpus.gpus for gang in gangs)
            if done_gpu_s[app_id] >= work_gpu_s[app_id]:
                found[app_id] = 600.0 * (number + 1)
        if len(found) == len(work_gpu_s):
            return found
    raise AssertionError(f"only {found} ended")


def test_app_that_pauses_gains_no_new_declaration(make_snapshot):
    paused, never = ends_s(make_snapshot, pauses=True), ends_s(make_snapshot, pauses=False)
    assert paused["liar"] >= never["liar"]
    assert paused["honest"] <= never["honest"]


def test_pressed_gang_is_for_the_longest_job(make_snapshot):
    shot = two_apps(make_snapshot)
    memory = POLICY.decide(shot).memory
    demands = (*jobs("short", 1, work=40_000.0), *jobs("long", 1, 2, 2, work=60_000.0))
    reports = {**shot.reports, "large": replace(shot.reports["large"], demands=demands)}
    decision = POLICY.decide(later(shot, memory, 10_000.0, {}, reports=reports))
    assert [gang.gpus.gpus for gang in decision.grants()["large"]] == [2]


def test_work_left_is_metered_and_not_reported(make_snapshot, gpus_of):
    """The large app claims to be nearly done; it had no GPU, so nothing is done."""
    shot = two_apps(make_snapshot)
    memory = POLICY.decide(shot).memory
    claims = replace(shot.reports["large"], phases_left=(phase(1, 1.0),))
    shot = later(shot, memory, 600.0, {}, reports={**shot.reports, "large": claims})
    assert totals(gpus_of(POLICY.decide(shot))) == {"small": 6}


def test_gpu_time_counts_by_the_slowdown_of_its_gangs(make_snapshot):
    """Gangs over two machines of a rack have S = 1.1 by default: 2,200 GPU seconds are 2,000 of work."""
    shot = make_snapshot({"a": jobs("a", 1, 6, 6)}, phases={"a": [phase(1, 50_000.0, 6)]})
    memory = POLICY.decide(shot).memory
    after = POLICY.decide(later(shot, memory, 600.0, {"a": 2_200.0})).memory
    assert round(after.apps["a"].done_gpu_s) == 2_000


def test_app_that_overran_its_declaration_needs_three_times_as_much_again(make_snapshot, gpus_of):
    """The large app has 12 jobs with 18,000 s left each."""
    demands = {"large": jobs("large", 12, work=18_000.0), "small": jobs("small", 6, work=10_000.0)}
    phases = {"large": [phase(12, 18_000.0)], "small": [phase(6, 10_000.0)]}
    shot = make_snapshot(demands, phases=phases)
    memory = POLICY.decide(shot).memory
    for had_gpu_s, first in ((1.25 * 60_000.0, "small"), (1.25 * 60_000.0 + 601.0, "large")):
        decision = POLICY.decide(later(shot, memory, 600.0, {"small": had_gpu_s}))
        assert totals(gpus_of(decision)) == {first: 6}
    assert decision.memory.apps["small"].left_gpu_s == 3.0 * (1.25 * 60_000.0 + 601.0)


def test_app_that_overran_is_not_pressed(make_snapshot, gpus_of):
    shot = two_apps(make_snapshot)
    memory = POLICY.decide(shot).memory
    late = later(shot, memory, 200_000.0, {"large": 10_000.0, "small": 300_000.0})
    assert totals(gpus_of(POLICY.decide(late))) == {"large": 6}


def test_starts_of_many_short_jobs_can_be_borne(make_snapshot, gpus_of):
    """60 jobs of 60 s, each with a start of 35 s, need 5,700 GPU seconds; 1.25 times the work are only 4,500.

    So the app overran, and counts as needing 17,100 GPU seconds. The large app has 18,000 left; it is pressed by then,
    and has a gang.
    """
    names = ("large", "small")
    work_s = {"large": 1_500.0, "small": 60.0}
    counts = {"large": 12, "small": 60}
    shot = make_snapshot(
        {name: jobs(name, counts[name], work=work_s[name]) for name in names},
        phases={name: [phase(counts[name], work_s[name])] for name in names},
    )
    memory = POLICY.decide(shot).memory
    starting = later(shot, memory, 900.0, {"small": 5_700.0})
    assert totals(gpus_of(POLICY.decide(starting))) == {"large": 1, "small": 5}
    beyond = later(shot, memory, 900.0, {"small": 6_001.0})
    assert totals(gpus_of(POLICY.decide(beyond))) == {"large": 6}


def test_guess_is_replaced_once_by_what_the_app_has_left(make_snapshot, gpus_of):
    """A small app guesses 1 s of work at first, as it knows no pace. After 600 s it has 9,400 s a job left."""
    shot = two_apps(make_snapshot)
    guess = replace(shot.reports["small"], phases_left=(phase(6, 1.0),), provisional=True)
    memory = POLICY.decide(replace(shot, reports={**shot.reports, "small": guess})).memory
    assert memory.apps["small"].provisional

    still = later(shot, memory, 300.0, {"small": 1_800.0}, reports={**shot.reports, "small": guess})
    assert POLICY.decide(still).memory.apps["small"].overran

    knows = replace(shot.reports["small"], phases_left=(phase(6, 9_400.0),))
    decision = POLICY.decide(later(shot, memory, 600.0, {"small": 3_600.0}, reports={**shot.reports, "small": knows}))
    assert totals(gpus_of(decision)) == {"small": 6}
    app = decision.memory.apps["small"]
    assert (app.work_gpu_s, app.done_gpu_s, app.overran) == (56_400.0, 0.0, False)
    # It arrived at 600 s with that, and shares the fluid cluster since.
    (life,) = [life for life in decision.memory.fluid.apps if life.app_id == "small"]
    assert life.arrived_s == 600.0

    less = replace(knows, phases_left=(phase(6, 1.0),), provisional=True)
    for report in (less, replace(less, provisional=False)):
        shot_later = later(
            shot, decision.memory, 1_200.0, {"small": 7_200.0}, reports={**shot.reports, "small": report}
        )
        assert POLICY.decide(shot_later).memory.apps["small"].work_gpu_s == 56_400.0


def test_larger_guess_replaces_a_smaller_one_and_forgets_nothing(make_snapshot, gpus_of):
    """A small app guesses 600 s a job, then more than the large one has. What it has had by then still counts."""
    shot = two_apps(make_snapshot)

    def guess(seconds):
        small = replace(shot.reports["small"], phases_left=(phase(6, seconds),), provisional=True)
        return {**shot.reports, "small": small}

    first = POLICY.decide(replace(shot, reports=guess(600.0)))
    assert totals(gpus_of(first))["small"] == 5
    second = POLICY.decide(later(shot, first.memory, 600.0, {"small": 3_600.0}, reports=guess(200_000.0)))
    assert totals(gpus_of(second))["large"] >= 5
    app = second.memory.apps["small"]
    assert (app.work_gpu_s, app.done_gpu_s, app.provisional) == (1_200_000.0, 3_600.0, True)
    third = POLICY.decide(later(shot, second.memory, 1_200.0, {"small": 3_600.0}, reports=guess(1.0)))
    assert third.memory.apps["small"].work_gpu_s == 1_200_000.0


def test_of_apps_that_overran_the_one_that_had_least_is_served_first(make_snapshot, gpus_of):
    """As of two programs whose pace was unknown: what they declared says nothing."""
    shot = make_snapshot(
        {name: jobs(name, 1, 6, 6) for name in ("silent", "tuned")},
        phases={"silent": [phase(1, 1.0, 6)], "tuned": [phase(1, 30.0, 6)]},
    )
    memory = POLICY.decide(shot).memory
    for first, had in (
        ("tuned", {"silent": 9_000.0, "tuned": 8_000.0}),
        ("silent", {"silent": 8_000.0, "tuned": 9_000.0}),
    ):
        assert totals(gpus_of(POLICY.decide(later(shot, memory, 600.0, had)))) == {first: 6}


def test_due_date_of_an_app_stays_after_its_fair_end(make_snapshot):
    shot = make_snapshot({"a": jobs("a", 6)}, phases={"a": [phase(6, 1_000.0)]})
    memory = POLICY.decide(shot).memory
    memory = POLICY.decide(later(shot, memory, 2_000.0, {})).memory
    assert memory.apps["a"].fair_end_s == 1_000.0
    assert not memory.fluid.apps
    assert POLICY.decide(later(shot, memory, 3_000.0, {})).memory.apps["a"].fair_end_s == 1_000.0


def test_app_that_ended_is_forgotten_but_shares_the_fluid_cluster(make_snapshot):
    shot = two_apps(make_snapshot)
    memory = POLICY.decide(shot).memory
    alone = replace(shot, apps=shot.apps[:1], reports={"large": shot.reports["large"]})
    memory = POLICY.decide(later(alone, memory, 600.0, {})).memory
    assert list(memory.apps) == ["large"]
    assert {app.app_id for app in memory.fluid.apps} == {"large", "small"}


def test_restart_changes_no_decision(make_snapshot):
    shot = two_apps(make_snapshot, renewable={"large": {"m0": 2}})
    memory = POLICY.decide(shot).memory
    stored = msgspec.json.decode(msgspec.json.encode(memory), type=DueDateMemory)
    rounds = [POLICY.decide(later(shot, each, 10_000.0, {"large": 1_200.0})) for each in (memory, stored)]
    assert rounds[0] == rounds[1]


def test_app_that_never_declared_is_served_last(make_snapshot, gpus_of):
    shot = make_snapshot({"a": jobs("a", 9, work=1.0), "b": jobs("b", 6)}, phases={"b": [phase(6, 50_000.0)]})
    assert totals(gpus_of(POLICY.decide(shot))) == {"b": 6}


def test_app_renews_in_place(make_snapshot, gpus_of):
    shot = make_snapshot({"a": jobs("a", 1, 2, 2)}, phases={"a": [phase(1, 50_000.0, 2)]}, renewable={"a": {"m0": 2}})
    assert gpus_of(POLICY.decide(shot)) == {"a": Allocation.of({"m0": 2}).by_machine()}


def test_gang_that_fits_beside_a_renewal_restarts_no_job(make_snapshot, gpus_of):
    demands = {"new": jobs("new", 1, 2, 2, work=1_000.0), "old": jobs("old", 1, 2, 2)}
    phases = {"new": [phase(1, 1_000.0, 2)], "old": [phase(1, 50_000.0, 2)]}
    alone = gpus_of(POLICY.decide(make_snapshot({"new": demands["new"]}, phases={"new": phases["new"]})))["new"]
    shot = make_snapshot(demands, phases=phases, renewable={"old": alone})
    granted = gpus_of(POLICY.decide(shot))
    assert granted["old"] == alone
    assert not granted["new"].keys() & alone.keys()


def test_renewal_does_not_go_before_an_app_with_less_left(make_snapshot, gpus_of):
    """Both want four of six GPUs. The one with more left holds four, and keeps two."""
    demands = {"long": jobs("long", 4), "short": jobs("short", 4, work=1_000.0)}
    phases = {"long": [phase(4, 50_000.0)], "short": [phase(4, 1_000.0)]}
    shot = make_snapshot(demands, phases=phases, renewable={"long": {"m0": 2, "m1": 2}})
    assert totals(gpus_of(POLICY.decide(shot))) == {"long": 2, "short": 4}


def two_that_want_all(make_snapshot, margin, held):
    """Both can use all six GPUs. `holder` has 300,000 GPU s left and holds some of them, `taker` has 120,000."""
    demands = {"holder": jobs("holder", 6), "taker": jobs("taker", 6, work=20_000.0)}
    phases = {"holder": [phase(6, 50_000.0)], "taker": [phase(6, 20_000.0)]}
    shot = make_snapshot(demands, phases=phases, renewable={"holder": held})
    return replace(shot, settings=RoundSettings(preemption_margin=margin))


def test_holder_keeps_all_its_gpus_within_the_preemption_margin(make_snapshot, gpus_of):
    """At a margin of 0.7 the holder counts as having 90,000 GPU s left, at 0.5 as having 150,000."""
    held = {"m0": 4, "m1": 2}
    assert totals(gpus_of(POLICY.decide(two_that_want_all(make_snapshot, 0.7, held)))) == {"holder": 6}
    assert totals(gpus_of(POLICY.decide(two_that_want_all(make_snapshot, 0.5, held)))) == {"taker": 6}


def test_preemption_margin_counts_by_the_share_of_its_gpus_that_an_app_holds(make_snapshot, gpus_of):
    """It holds half of the GPUs that it can use: at a margin of 0.7 it counts as having 195,000 GPU s left."""
    assert totals(gpus_of(POLICY.decide(two_that_want_all(make_snapshot, 0.7, {"m0": 3})))) == {"taker": 6}


def test_pressed_app_that_keeps_gpus_gets_no_other_gang_first(make_snapshot, gpus_of):
    """Three of the large app's jobs run on; a fourth would come before the small app if it kept nothing."""
    shot = two_apps(make_snapshot)
    memory = POLICY.decide(shot).memory
    apps = tuple(replace(app, kept=Allocation.of({"m2": 3})) if app.app_id == "large" else app for app in shot.apps)
    unmet = replace(shot.reports["large"], demands=jobs("large", 9))
    keeping = replace(shot, apps=apps, reports={**shot.reports, "large": unmet})
    assert totals(gpus_of(POLICY.decide(later(shot, memory, 10_000.0, {})))) == {"large": 1, "small": 5}
    assert totals(gpus_of(POLICY.decide(later(keeping, memory, 10_000.0, {})))) == {"small": 6}


def test_app_split_by_its_user_is_served_no_earlier(make_snapshot, gpus_of):
    """Each of the three parts has 40,200 GPU s left, together 120,600; the other user's app has 60,000."""
    demands = {name: jobs(name, 6, work=each) for name, each in (("a", 6_700.0), ("b", 6_700.0), ("c", 6_700.0))}
    phases = {name: [phase(6, 6_700.0)] for name in demands}
    demands["other"], phases["other"] = jobs("other", 6, work=10_000.0), [phase(6, 10_000.0)]
    shot = make_snapshot(demands, phases=phases)

    def owned(user):
        apps = [replace(app, owner=AppOwner(user="other" if app.app_id == "other" else user)) for app in shot.apps]
        return replace(shot, apps=tuple(apps))

    assert totals(gpus_of(POLICY.decide(owned("")))) == {"a": 6}
    assert totals(gpus_of(POLICY.decide(owned("splitter")))) == {"other": 6}


def test_of_one_user_the_app_with_the_least_left_is_served_first(make_snapshot, gpus_of):
    shot = two_apps(make_snapshot)
    owned = replace(shot, apps=tuple(replace(app, owner=AppOwner(user="one")) for app in shot.apps))
    assert totals(gpus_of(POLICY.decide(owned))) == {"small": 6}


def test_work_done_under_another_policy_is_not_metered(make_snapshot, gpus_of):
    """Both apps declare now. What they had before is more than what is left of the small one, which is still first."""
    shot = later(two_apps(make_snapshot), None, 5_000.0, {"large": 100_000.0, "small": 500_000.0})
    decision = POLICY.decide(shot)
    assert totals(gpus_of(decision)) == {"small": 6}
    assert decision.memory.apps["small"].done_gpu_s == 0.0
    assert {app.arrived_s for app in decision.memory.fluid.apps} == {5_000.0}


def test_app_that_did_more_than_it_declared_needs_as_much_again(make_snapshot, gpus_of):
    """The app declared 60,000 GPU s, the other one has 30,000 left."""
    demands = {"past": jobs("past", 6, work=10_000.0), "other": jobs("other", 6, work=5_000.0)}
    phases = {"past": [phase(6, 10_000.0)], "other": [phase(6, 5_000.0)]}
    shot = make_snapshot(demands, phases=phases)
    memory = POLICY.decide(shot).memory
    within = later(shot, memory, 600.0, {"past": 1.05 * 60_000.0 + 599.0})
    assert totals(gpus_of(POLICY.decide(within))) == {"past": 6}
    beyond = later(shot, memory, 600.0, {"past": 1.05 * 60_000.0 + 601.0})
    assert totals(gpus_of(POLICY.decide(beyond))) == {"other": 6}


# ---- ties: neither the order of apps nor that of their jobs in the snapshot matters ---------------------------------


def equal_apps(make_snapshot):
    """Two equal apps, the larger id first; the gang of either takes all six GPUs."""
    demands = {name: jobs(name, 1, 6, 6, work=360_000.0) for name in ("beta", "alpha")}
    return make_snapshot(demands, phases={name: [phase(1, 360_000.0, 6)] for name in demands})


def test_of_apps_with_equal_service_left_the_smaller_id_comes_first(make_snapshot, gpus_of):
    assert totals(gpus_of(POLICY.decide(equal_apps(make_snapshot)))) == {"alpha": 6}


def test_of_equally_pressed_apps_the_smaller_id_comes_first(make_snapshot, gpus_of):
    """Both would end too late by now. The third app has less left, and would come first if they were not pressed."""
    two = equal_apps(make_snapshot)
    memory = POLICY.decide(two).memory
    demands = {app_id: report.demands for app_id, report in two.reports.items()} | {"new": jobs("new", 6, work=1_000.0)}
    phases = {app_id: report.phases_left for app_id, report in two.reports.items()} | {"new": [phase(6, 1_000.0)]}
    three = make_snapshot(demands, phases=phases, submitted={"new": 70_000.0})
    assert totals(gpus_of(POLICY.decide(later(three, memory, 70_000.0, {})))) == {"alpha": 6}


def test_of_equal_jobs_the_smaller_id_gets_the_pressed_gang(make_snapshot):
    shot = two_apps(make_snapshot)
    memory = POLICY.decide(shot).memory
    equal = (*jobs("second", 1, 1, 1), *jobs("first", 1, 2, 2))
    reports = {**shot.reports, "large": replace(shot.reports["large"], demands=equal)}
    decision = POLICY.decide(later(shot, memory, 10_000.0, {}, reports=reports))
    assert [gang.gpus.gpus for gang in decision.grants()["large"]] == [2]


def test_of_apps_submitted_together_the_smaller_id_arrives_first(make_snapshot):
    memory = POLICY.decide(equal_apps(make_snapshot)).memory
    assert [app.app_id for app in memory.fluid.apps] == ["alpha", "beta"]
