"""Profiling runs of the policy `oef`: ahead of all shares, type by type, measured by what apps report after them."""

import pytest
from msgspec.structs import replace
from oef_round_cases import demand, four_apps, granted, jobs, round_of

from rm_plugin.policies.demands import usable_left
from rm_plugin.policies.oef.profiling import MAX_RUNS, Profile, ProfileState
from rm_plugin.policies.registry import make_policy
from themis.speeds import Speeds
from themis_lab.simulator.observer import History


def decide(demands, memory=None, **more):
    return make_policy("oef").decide(round_of(demands, memory=memory, profiling_runs=True, **more))


def state(decision, app="a"):
    profile = decision.memory.profiles[app]
    return profile.state, profile.next_type


def three_jobs(stated, left, measured=None):
    """Three jobs with a stated speed on the V100, and work left; the first one reports a measured speed."""
    return [
        demand(measured if measured and not n else stated, job=f"j{n}", gpus=1, work_left_gpu_s=work)
        for n, work in enumerate(left)
    ]


MEASURED = Profile(state=ProfileState.DONE, types=("k80", "v100"), rates=(1.0, 2.0))


class TestRuns:
    def test_an_app_runs_its_smallest_gang_on_one_type_after_the_other_and_then_shares(self):
        wanted = {"a": [demand(2.0, gpus=4, least=2)]}
        first = decide(wanted)
        assert state(first) == (ProfileState.RUNNING, "k80")
        assert "k" in granted(first)["a"]
        second = decide(wanted, first.memory, renewable=granted(first))
        assert state(second) == (ProfileState.RUNNING, "v100")
        assert "v" in granted(second)["a"]
        third = decide(wanted, second.memory, renewable=granted(second))
        assert third.memory.profiles == {"a": replace(MEASURED, job_id="j")}
        assert list(third.memory.shares.share) == ["app a/1:2"]

    def test_of_several_jobs_the_same_one_runs_on_every_type_and_its_measured_speed_counts_for_all(self):
        first = decide({"a": three_jobs(stated=9.0, left=(5e5, 5e5, 5e5))})
        assert first.memory.profiles["a"].job_id == "j0"
        # It has less work left than the others now.
        second = decide({"a": three_jobs(9.0, (1e5, 5e5, 5e5))}, first.memory, renewable={"a": {"k": 1}})
        assert state(second) == (ProfileState.RUNNING, "v100")
        assert second.memory.profiles["a"].job_id == "j0"
        third = decide({"a": three_jobs(9.0, (1e4, 5e5, 5e5), measured=3.0)}, second.memory, renewable={"a": {"v": 1}})
        assert third.memory.profiles["a"].rates == (1.0, 3.0)
        assert list(third.memory.shares.share) == ["app a/1:3"]
        # The statement of the other jobs does not make the profile stale.
        fourth = decide({"a": three_jobs(9.0, (1e4, 5e5, 5e5), measured=3.0)}, third.memory)
        assert fourth.memory.profiles == third.memory.profiles

    def test_another_job_goes_on_with_the_missing_types_once_the_first_one_ended(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": replace(HALF, job_id="gone")})
        decision = decide({"a": jobs()}, memory)
        assert state(decision) == (ProfileState.RUNNING, "v100")
        assert (decision.memory.profiles["a"].job_id, decision.memory.profiles["a"].rates) == ("j0", (1.0,))

    def test_type_on_which_the_job_ended_has_the_reported_speed_and_no_run_of_another_job(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": replace(RUNNING, job_id="gone")})
        decision = decide({"a": jobs()}, memory)
        profile = decision.memory.profiles["a"]
        assert (profile.next_type, profile.rates, profile.assumed, profile.job_id) == ("v100", (1.0,), ("k80",), "j0")

    def test_profile_closes_when_its_job_ended_on_the_last_type(self):
        last = replace(HALF, state=ProfileState.RUNNING, job_id="gone")
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": last})
        decision = decide({"a": jobs(2.5)}, memory)
        assert decision.memory.profiles["a"].state is ProfileState.DONE
        assert list(decision.memory.shares.share) == ["app a/1:2.5"]

    def test_run_without_a_measurement_is_repeated_four_times_as_long_and_then_the_stated_speed_counts(self):
        wanted = {"a": [demand(gpus=1, measured=())]}
        lasted_s, memory, renewable = [], None, {}
        for _ in range(MAX_RUNS):
            decision = decide(wanted, memory, renewable=renewable)
            assert state(decision) == (ProfileState.RUNNING, "k80")
            lasted_s += [gang.at_most_s for gang in decision.auction["a"]]
            memory, renewable = decision.memory, granted(decision)
        assert lasted_s == [10.0, 40.0, 160.0, 0.0]
        decision = decide(wanted, memory, renewable=renewable)
        assert state(decision) == (ProfileState.RUNNING, "v100")
        assert decision.memory.profiles["a"].assumed == ("k80",)

    def test_type_whose_speed_is_assumed_counts_as_reported_later(self):
        assumed = replace(MEASURED, assumed=("v100",), job_id="j")
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": assumed})
        decision = decide({"a": [demand(4.0)]}, memory)
        assert decision.memory.profiles == {"a": assumed}
        assert list(decision.memory.shares.share) == ["app a/1:4"]

    def test_job_that_was_timed_on_one_type_only_has_nothing_to_be_compared_with(self):
        """Another job was timed on the K80."""
        last = replace(HALF, state=ProfileState.RUNNING, job_id="j", attempts=MAX_RUNS - 1)
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": last})
        decision = decide({"a": [demand(measured=("v100",))]}, memory, renewable={"a": {"v": 1}})
        assert decision.memory.profiles["a"].assumed == ("v100",)

    def test_the_job_that_can_run_on_most_types_is_the_one_that_runs(self):
        slow_only = demand(job="a", speeds=Speeds.of([("k80", 1.0)]), gpus=1)
        assert decide({"a": [slow_only, demand(job="b", gpus=1)]}).memory.profiles["a"].job_id == "b"

    def test_runs_come_before_the_shares_of_the_others(self):
        # b is owed all GPUs by its share, and holds them.
        memory = decide({"b": jobs()}).memory
        memory = replace(memory, profiles={"b": MEASURED})
        wanted = {"b": jobs(), "a": [demand(2.0, gpus=1)]}
        decision = decide(wanted, memory, renewable={"b": {"k": 4, "v": 4}})
        assert granted(decision)["a"] == {"k": 1}
        assert state(decision) == (ProfileState.RUNNING, "k80")

    def test_while_its_run_lasts_an_app_waits_and_its_gpus_are_not_shared(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": RUNNING, "b": MEASURED})
        decision = decide({"b": jobs(), "a": []}, memory, kept={"a": {"k": 2}})
        assert decision.memory.profiles["a"] == RUNNING
        assert decision.memory.shares.instance.capacity == (2, 4)
        assert list(decision.memory.shares.share) == ["app b/1:2"]

    def test_a_run_that_finds_no_free_gpu_of_its_type_waits(self):
        memory = replace(decide({"b": jobs()}).memory, profiles={"b": MEASURED})
        decision = decide({"b": [], "a": jobs()}, memory, kept={"b": {"k": 4}})
        assert state(decision) == (ProfileState.REQUESTED, "k80")
        # Free GPUs of the other type are not idle meanwhile.
        assert granted(decision) == {"a": {"v": 4}}

    def test_a_type_that_its_only_job_ran_on_anyway_needs_no_run(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": HALF})
        decision = decide({"a": [demand()]}, memory, renewable={"a": {"v": 4}})
        assert decision.memory.profiles == {"a": replace(MEASURED, job_id="j")}

    def test_a_type_on_which_any_of_several_jobs_may_have_run_needs_a_run(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": replace(HALF, job_id="j0")})
        decision = decide({"a": jobs()}, memory, renewable={"a": {"v": 4}})
        assert state(decision) == (ProfileState.RUNNING, "v100")

    def test_a_profile_uses_the_speed_after_the_run(self):
        stated, measured = {"a": [demand(2.0)]}, {"a": [demand(3.0)]}
        first = decide(stated)
        second = decide(stated, first.memory, renewable={"a": {"k": 4}})
        third = decide(measured, second.memory, renewable={"a": {"v": 4}})
        assert third.memory.profiles["a"].rates == (1.0, 3.0)
        assert list(third.memory.shares.share) == ["app a/1:3"]


def short(v100_s, unit=1.0):
    """An app of one job that takes so long on a V100. `unit` is the speed of a K80."""
    twice = Speeds.of([("k80", unit), ("v100", 2.0 * unit)])
    return {"a": [demand(speeds=twice, gpus=1, work_left_gpu_s=v100_s * 2.0 * unit)]}


class TestShortApps:
    """Two runs take 20 s here, so an app is profiled if it takes 200 s or longer on its fastest type."""

    def test_short_app_shares_at_once_by_the_speeds_that_it_reports(self):
        decision = decide(short(199.0))
        assert decision.memory.profiles["a"].is_stated
        assert decision.memory.runs == {}
        assert list(decision.memory.shares.share) == ["app a/1:2"]
        later = decide({"a": [demand(4.0, gpus=1, work_left_gpu_s=400.0)]}, decision.memory)
        assert list(later.memory.shares.share) == ["app a/1:4"]

    def test_longer_app_is_profiled(self):
        assert state(decide(short(201.0))) == (ProfileState.RUNNING, "k80")

    @pytest.mark.parametrize("unit", [0.1, 10.0])
    def test_unit_of_work_and_speeds_does_not_matter(self, unit):
        assert decide(short(199.0, unit)).memory.profiles["a"].is_stated
        assert state(decide(short(201.0, unit))) == (ProfileState.RUNNING, "k80")

    def test_app_that_states_too_little_work_is_profiled_once_it_had_as_much_gpu_time(self):
        memory = decide(short(100.0)).memory
        snapshot = round_of(short(100.0), memory=memory, profiling_runs=True)
        (app,) = snapshot.apps
        decision = make_policy("oef").decide(replace(snapshot, apps=(replace(app, ended_gpu_s=101.0),)))
        assert state(decision) == (ProfileState.RUNNING, "k80")

    def test_time_counts_on_all_gpus_that_it_wants(self):
        four = [demand(2.0, job=f"j{n}", gpus=1, work_left_gpu_s=2 * 199.0) for n in range(4)]
        short_app = decide({"a": four}).memory.profiles["a"]
        assert (short_app.is_stated, short_app.gpus) == (True, 4)

    def test_app_whose_last_job_is_left_is_not_profiled_late(self):
        four = [demand(2.0, job=f"j{n}", gpus=1, work_left_gpu_s=2 * 199.0) for n in range(4)]
        memory = decide({"a": four}).memory
        snapshot = round_of({"a": four[:1]}, memory=memory, profiling_runs=True)
        (app,) = snapshot.apps
        decision = make_policy("oef").decide(replace(snapshot, apps=(replace(app, ended_gpu_s=500.0),)))
        assert decision.memory.profiles["a"].is_stated

    def test_app_reads_why_it_is_not_profiled(self):
        lines = dict(make_policy("oef").explain(decide(short(199.0)).memory, "a"))
        assert lines["Profile"].startswith("none: a run on every type would take too much of its time")


HALF = Profile(state=ProfileState.REQUESTED, types=("k80", "v100"), rates=(1.0,))
RUNNING = Profile(state=ProfileState.RUNNING, types=("k80", "v100"))


class TestUnits:
    """Reported speeds are in the unit of the type on which a job was timed first; that may change."""

    def test_run_on_the_second_type_is_measured_in_the_unit_of_the_first(self):
        running = replace(HALF, state=ProfileState.RUNNING, job_id="j")
        memory = replace(decide({"a": [demand()]}).memory, profiles={"a": running})
        on_v100 = {"a": [demand(speeds=Speeds.of([("k80", 5.0), ("v100", 10.0)]))]}
        decision = decide(on_v100, memory, renewable={"a": {"v": 1}})
        assert decision.memory.profiles["a"] == replace(MEASURED, job_id="j")

    @pytest.mark.parametrize("reported", [{"k80": 0.5, "v100": 1.0}, {"k80": 5.0, "v100": 10.0}])
    def test_report_in_another_unit_does_not_make_a_profile_stale(self, reported):
        memory = replace(decide({"a": [demand()]}).memory, profiles={"a": MEASURED})
        decision = decide({"a": [demand(speeds=Speeds.of(reported.items()))]}, memory)
        assert decision.memory.profiles == {"a": MEASURED}
        assert list(decision.memory.shares.share) == ["app a/1:2"]

    def test_assumed_type_is_compared_in_the_unit_of_the_profile(self):
        memory = replace(decide({"a": [demand()]}).memory, profiles={"a": replace(MEASURED, assumed=("v100",))})
        decision = decide({"a": [demand(speeds=Speeds.of([("k80", 5.0), ("v100", 15.0)]))]}, memory)
        assert list(decision.memory.shares.share) == ["app a/1:3"]


class TestChanges:
    def test_small_changes_of_speed_leave_shares_and_tenants_as_they_are(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": MEASURED})
        decision = decide({"a": jobs(2.3)}, memory)
        assert decision.memory.profiles == {"a": MEASURED}
        assert list(decision.memory.shares.share) == ["app a/1:2"]

    def test_a_speed_that_is_more_than_a_fifth_off_is_measured_again(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": MEASURED})
        decision = decide({"a": jobs(2.5)}, memory)
        assert state(decision) == (ProfileState.RUNNING, "k80")

    def test_a_run_whose_gpus_are_lost_fails_and_the_stated_speeds_count(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": RUNNING})
        decision = decide({"a": jobs(2.5)}, memory)
        assert decision.memory.profiles["a"].reason == "it lost its GPUs of the type k80"
        assert list(decision.memory.shares.share) == ["app a/1:2.5"]

    def test_a_profile_fails_if_the_last_device_of_its_type_is_gone(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": HALF})
        snapshot = round_of({"a": jobs()}, memory=memory, profiling_runs=True)
        # The machine is known still, but none of its GPUs can be leased.
        lost = replace(snapshot.machines[1], free_slots=(0,))
        decision = make_policy("oef").decide(replace(snapshot, machines=(snapshot.machines[0], lost)))
        assert decision.memory.profiles["a"].reason == "no device of the type v100 is left for it"
        assert granted(decision) == {"a": {"k": 4}}

    def test_an_app_that_can_use_one_type_only_needs_no_run(self):
        decision = decide({"a": [demand(speeds=Speeds.of([("k80", 1.0)]))]})
        assert decision.memory.profiles["a"].state is ProfileState.DONE
        assert granted(decision) == {"a": {"k": 4}}

    def test_a_silent_app_keeps_its_profile_and_one_that_ended_is_forgotten(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": HALF, "gone": MEASURED})
        decision = decide({"a": jobs(), "b": jobs()}, memory, silent=("a",))
        assert set(decision.memory.profiles) == {"a", "b"}
        assert decision.memory.profiles["a"] == HALF

    def test_without_profiling_runs_there_are_no_profiles(self):
        memory = replace(decide({"a": jobs()}).memory, profiles={"a": HALF})
        assert make_policy("oef").decide(round_of({"a": jobs()}, memory=memory)).memory.profiles == {}


@pytest.mark.parametrize("policy", ["oef", "oef_noncooperative", "gandiva_fair"])
def test_in_a_simulation_every_app_is_profiled_and_all_end(policy):
    history = History()
    run = four_apps(policy, observer=history, profiling_runs=True)
    profiles = {}

    def watch(each):
        each.arbiter.validate()
        memory = each.arbiter._memory
        profiles.update(memory.profiles if memory else {})

    assert run.run(watch=watch).counts.violations == []
    rates = {app: profile.rates for app, profile in profiles.items() if profile.state is ProfileState.DONE}
    # The traces' speeds, as each app reports them after its runs.
    assert rates == {"a0": (1.0, 1.5), "a1": (1.0, 2.5), "a2": (1.0, 3.5), "a3": (1.0, 4.5)}
    assert {usable_left(result.snapshot.machines, result.decision) for result in history.results} == {0}
    # One job of each app ran on both types, and these leases were not prolonged until it ended.
    runs = [change for change in history.changes if change.lease.job_id]
    assert {(each.lease.job_id, each.lease.gpu.machine_id) for each in runs} == {
        (f"a{app}-j0", machine) for app in range(4) for machine in ("k", "v")
    }
    assert "its job runs until it ends" not in {each.reason for each in runs}
