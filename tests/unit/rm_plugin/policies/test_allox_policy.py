"""The policy `allox`: the paper's examples through the simulator, bound leases, and what it remembers."""

from functools import cache

import msgspec
import pytest
from agent_cases import FLAT
from event_log_cases import stored_memory
from msgspec.structs import replace
from oef_round_cases import demand, granted, round_of, speeds
from restart_cases import Restarting

from rm_plugin.arbiter.round_values import RoundSettings, Wait
from rm_plugin.policies.allox_jobs import running_jobs
from rm_plugin.policies.allox_policy import AlloxMemory, RunningJob
from rm_plugin.policies.allox_rules import RULES
from rm_plugin.policies.allox_samples import SampleLimits, SampleRun
from rm_plugin.policies.oef.profiling import MAX_RUNS, Profile, ProfileState
from rm_plugin.policies.registry import make_policy
from rm_plugin.service.policy_memory import MemoryRecorder
from rm_plugin.service.store import StoredEvent
from rm_plugin.service.store_json import from_json, to_json
from themis.apps import JobShape, Slowdown
from themis.bids import AppReport, GangDemand, SampleTimes
from themis.cluster import Cluster, DeviceKind, DeviceType, Machine
from themis.errors import InputError
from themis.leases import LeaseChangeKind
from themis.queues import AppOwner
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.observer import History
from themis_lab.simulator.settings import NodeOutage, Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

DEVICES = {"gpu": DeviceType(name="gpu"), "cpu": DeviceType(name="cpu", kind=DeviceKind.CPU)}
FREE = Costs(checkpoint_s=0.0, restore_s=0.0, container_s=0.0)
TABLE_1 = [(10, 15), (8, 10), (10, 50), (5, 75), (10, 15), (10, 15)]
"""Minutes on a GPU and on a CPU (EuroSys 2020, table 1). Odd jobs are those of user 1."""


def cluster(gpus, cpus):
    counts = {"gpu": gpus, "cpu": cpus}
    machines = [
        Machine(machine_id=f"{name}{number}", rack_id="r", slots=(1,), device=name)
        for name, count in counts.items()
        for number in range(count)
    ]
    return Cluster(name="hybrid", machines=tuple(machines), devices=DEVICES)


def app(name, gpu_s, cpu_s, at_s=0.0, user="", tasks=1, least=1):
    job = JobTrace(
        job_id=f"{name}-0",
        iterations_total=gpu_s,
        serial_iteration_s=1.0,
        slowdown=FLAT,
        shape=JobShape(tasks=tasks, min_tasks=least),
        speed_by_device={"cpu": gpu_s / cpu_s},
    )
    return AppTrace(name=name, arrival_s=at_s, jobs=(job,), owner=AppOwner(user=user))


def simulation(apps, machines, policy="allox", alpha=1.0, observer=None, outages=(), record_rounds=False, **rounds):
    settings = Settings(
        cluster=machines,
        policy=policy,
        costs=FREE,
        rounds=RoundSettings(alpha=alpha, **rounds),
        coalesce_s=0.0,
        outages=outages,
        record_rounds=record_rounds,
    )
    return Simulation(Workload(name="w", apps=tuple(apps)), settings, observer=observer)


def ends_s(run):
    return {app.name: app.ended_at_s for app in run.run().apps}


@pytest.mark.parametrize(
    ("policy", "minutes"),
    [("allox", 75), ("sjf_plus", 76), ("jsq_plus", 81), ("best_fit", 104), ("equal_share_fcfs", 181)],
)
def test_table_1_has_the_computed_totals(policy, minutes):
    apps = [
        app(f"j{place}", 60 * gpu, 60 * cpu, user=f"user {place % 2}") for place, (gpu, cpu) in enumerate(TABLE_1, 1)
    ]
    assert sum(ends_s(simulation(apps, cluster(2, 2), policy)).values()) == pytest.approx(60 * minutes)


@pytest.mark.parametrize(("busy_s", "end_s"), [(10, 15.0), (200, 100.0)])
def test_job_waits_for_a_busy_gpu_only_if_it_ends_earlier_there(busy_s, end_s):
    apps = [app("first", busy_s + 1, 100 * busy_s), app("second", 5, 100, at_s=1.0)]
    assert ends_s(simulation(apps, cluster(1, 1)))["second"] == pytest.approx(1 + end_s)


def test_wait_names_the_machine_and_the_time():
    history = History()
    apps = [app("first", 11, 1000), app("second", 5, 100, at_s=1.0)]
    record = simulation(apps, cluster(1, 1), observer=history, record_rounds=True).run()
    wait = history.results[1].decision.waits["second"]
    assert (wait.job_id, wait.machine_id, wait.until_s) == ("second-0", "gpu0", 11.0)
    assert wait.reason.startswith("second/second-0 waits for gpu0; ")
    assert record.rounds[1].waits == {"second": f"{wait.reason}; expected to start there in 10 s"}


def test_wait_for_a_device_of_a_larger_machine_names_the_machine():
    history = History()
    large = Cluster(
        name="large",
        machines=(Machine(machine_id="m", rack_id="r", slots=(2,), device="gpu"),),
        devices={"gpu": DEVICES["gpu"]},
    )
    apps = [app(f"a{place}", 100, 100, user=f"u{place}") for place in range(3)]
    simulation(apps, large, observer=history).run()
    assert "a2/a2-0 waits for m; " in history.results[0].decision.waits["a2"].reason


def test_jobs_that_need_several_devices_say_that_they_wait_for_another_policy():
    run = simulation([app("a", 100, 1000), app("b", 100, 1000)], cluster(4, 0))
    run.play_rounds(1)
    demands = (GangDemand(job_id="a-1", min_gpus=2, max_gpus=4, work_left_gpu_s=10.0),)
    snapshot = replace(
        run.arbiter.begin_round(run.now_s)[0], reports={"a": AppReport(app_id="a", round_id=1, demands=demands)}
    )
    decision = make_policy("allox").decide(snapshot)
    assert decision.grants() == {}
    assert decision.waits["a"].reason == (
        "a/a-1 needs at least 2 GPUs, and policy allox gives each job one device: it waits until the service runs with "
        "another policy"
    )


def test_app_whose_user_was_not_let_in_waits_for_its_turn():
    history = History()
    apps = [app("a", 10, 1000, user="u"), app("b", 10, 1000, user="v")]
    simulation(apps, cluster(1, 0), alpha=0.0, observer=history).run()
    assert history.results[0].decision.waits == {
        "b": Wait(
            job_id="b-0",
            reason="b/b-0 waits: user v is number 2 of 2 users by progress, and the 1 with the least progress go first",
        )
    }


def test_lease_is_bound_to_its_job_and_renewed_until_the_job_ends():
    history = History()
    run = simulation([app("a", 3000, 9000), app("b", 100, 9000)], cluster(1, 0), observer=history)
    run.run()
    mine = [change for change in history.changes if change.lease.app_id == "a"]
    kinds = [change.kind for change in mine]
    assert kinds == [LeaseChangeKind.GRANTED, *[LeaseChangeKind.RENEWED] * (len(kinds) - 2), LeaseChangeKind.RELEASED]
    assert {change.lease.job_id for change in mine} == {"a-0"}
    assert {change.reason for change in mine if change.kind is LeaseChangeKind.RENEWED} == {
        "its job runs until it ends"
    }


def test_elastic_job_runs_as_one_task():
    history = History()
    run = simulation([app("a", 100, 1000, tasks=4)], cluster(4, 0), observer=history)
    assert ends_s(run) == {"a": pytest.approx(100.0)}
    assert {change.lease.gpu.machine_id for change in history.changes} == {"gpu0"}


def test_job_that_needs_several_devices_is_refused():
    with pytest.raises(InputError, match=r"policy allox gives each job one device, and job a-0 of app a .*themis"):
        simulation([app("a", 100, 1000, tasks=2, least=2)], cluster(4, 0))


def test_lost_job_starts_again_with_its_old_arrival():
    history = History()
    outages = (NodeOutage(machine_id="gpu0", lost_at_s=50.0, back_at_s=5000.0),)
    run = simulation([app("a", 100, 150)], cluster(1, 1), observer=history, outages=outages)
    run.run()
    memories = [result.decision.memory for result in history.results if result.decision.memory is not None]
    assert all(memory.arrived_s["a"]["a-0"] == 0.0 for memory in memories)
    assert history.changes[-1].lease.gpu.machine_id == "cpu0"


@pytest.mark.parametrize(
    ("now_s", "end_s"), [(50.0, 120.0), (120.0, 120.0), (125.0, 125.0), (131.0, 220.0), (600.0, 820.0)]
)
def test_job_that_overruns_its_estimate_is_expected_after_twice_as_long(now_s, end_s):
    job = RunningJob(user="u", value=0.5, started_at_s=20.0, time_s=100.0)
    assert job.end_s(now_s) == end_s


@pytest.mark.parametrize("policy", sorted(RULES))
def test_job_waits_while_every_machine_of_its_types_is_lost(policy):
    outages = (NodeOutage(machine_id="gpu0", lost_at_s=10.0, back_at_s=500.0),)
    run = simulation([app("a", 100, 1000, at_s=50.0)], cluster(1, 0), policy, outages=outages)
    assert ends_s(run) == {"a": pytest.approx(600.0)}


class TestQueues:
    """JSQ+ on a machine of two GPUs. When `a` ends at 10 s, `c` takes its GPU, and `d` joins the queue behind `c`."""

    MACHINE = Cluster(
        name="large",
        machines=(Machine(machine_id="m", rack_id="r", slots=(2,), device="gpu"),),
        devices={"gpu": DEVICES["gpu"]},
    )

    def played(self, policy="jsq_plus"):
        history = History()
        lengths_s = {"a": 10, "b": 100, "c": 50, "d": 5}
        apps = [app(name, gpu_s, 1000, at_s=float(place)) for place, (name, gpu_s) in enumerate(lengths_s.items())]
        return ends_s(simulation(apps, self.MACHINE, policy, observer=history)), history

    def test_job_keeps_its_place_in_the_queue_of_one_gpu_of_a_machine(self):
        ends, history = self.played()
        # At 60 s the first GPU is idle, and the second has `b` until 101 s.
        assert ends == {name: pytest.approx(end_s) for name, end_s in {"a": 10, "b": 101, "c": 60, "d": 65}.items()}
        assert history.results[2].decision.memory.bindings == {"d": {"d-0": "m:0"}}
        assert history.results[-1].decision.memory.bindings == {}

    def test_job_stays_in_a_queue_although_another_has_become_shorter(self):
        apps = {"other": (), "a": [demand(1.0, job="j", gpus=1, work_left_gpu_s=500.0)]}
        joined = AlloxMemory(bindings={"a": {"j": "k:0"}})
        frame = round_of(apps, memory=joined, kept={"other": {"k": 4}})
        decision = make_policy("jsq_plus").decide(frame)
        assert granted(decision) == {}
        assert decision.memory.bindings == joined.bindings
        assert granted(make_policy("jsq_plus").decide(replace(frame, memory=None))) == {"a": {"v": 1}}

    def test_job_in_a_queue_says_so(self):
        _, history = self.played()
        assert history.results[2].decision.waits == {
            "d": Wait(
                job_id="d-0", reason="d/d-0 waits in the queue of m, and does not change to another", machine_id="m"
            )
        }

    def test_job_whose_machine_is_lost_joins_another_queue(self):
        outages = (NodeOutage(machine_id="gpu0", lost_at_s=5.0, back_at_s=9000.0),)
        apps = [app("a", 10, 5000), app("b", 10, 200, at_s=1.0)]
        ends = ends_s(simulation(apps, cluster(1, 1), "best_fit", outages=outages))
        assert ends["b"] < 9000


def test_equal_shares_count_users_whose_jobs_all_run():
    """Two users share two GPUs, so the second job of the first user waits although no job of the other does."""
    apps = [app("a", 100, 1e6, user="u"), app("b", 10, 1e6, user="v"), app("c", 100, 1e6, user="u", at_s=1.0)]
    ends = ends_s(simulation(apps, cluster(2, 0), "equal_share"))
    # After 10 s the user v has left, and both GPUs are those of u.
    assert ends == {"a": pytest.approx(100.0), "b": pytest.approx(10.0), "c": pytest.approx(110.0)}


def test_drff_leaves_cpu_nodes_idle_whatever_its_gpus_are_called():
    history = History()
    machines = Cluster(
        name="named",
        machines=(
            Machine(machine_id="v", rack_id="r", slots=(1,), device="v100"),
            Machine(machine_id="c", rack_id="r", slots=(1,), device="cpu"),
        ),
        devices={"v100": DeviceType(name="v100"), "cpu": DEVICES["cpu"]},
    )
    apps = [app(f"a{place}", 20, 10, user=f"u{place}") for place in range(3)]
    simulation(apps, machines, "drff", observer=history).run()
    assert {change.lease.gpu.machine_id for change in history.changes} == {"v"}


def test_progress_counts_until_the_job_ends():
    history = History()
    simulation([app("a", 10, 1000, user="u"), app("b", 100, 9000, user="v")], cluster(2, 0), observer=history).run()
    after_first, after_end = history.results[0].decision.memory, history.results[-1].decision.memory
    assert after_first.running["a"]["a-0"].value == 0.5
    assert after_first.last_start_s == {"user u": 0.0, "user v": 0.0}
    assert "a" not in after_end.running


def test_job_that_ends_leaves_the_progress_of_its_user_while_its_app_goes_on():
    history = History()
    two = app("a", 10, 1000)
    two = replace(two, jobs=(*two.jobs, replace(app("b", 100, 1000).jobs[0], job_id="a-1")))
    simulation([two, app("c", 20, 1000, at_s=5.0)], cluster(2, 0), observer=history).run()
    running = [result.decision.memory.running.get("a", {}).keys() for result in history.results]
    assert list(running[:2]) == [{"a-0", "a-1"}, {"a-1"}]


def test_length_of_a_running_job_includes_its_start():
    frame = round_of({"a": [demand(2.0, job="j", gpus=1, work_left_gpu_s=500.0)]})
    reports = {"a": replace(frame.reports["a"], restart_s=7.0)}
    decision = make_policy("allox").decide(replace(frame, reports=reports))
    assert decision.memory.running["a"]["j"].time_s == 7.0 + 250.0


def test_sampling_run_is_no_running_job():
    frame = round_of({"a": [demand(2.0, job="j", gpus=1)]}, kept={"a": {"v": 1}})
    frame = replace(frame, apps=(replace(frame.apps[0], bound=(("j", "v"),)),))
    assert running_jobs(frame, {"a": "u"}, {"a": "j"}) == ()
    (running,) = running_jobs(frame, {"a": "u"}, {})
    assert (running.job.user, running.type_name) == ("u", "v100")


def test_memory_comes_back_from_the_store_as_it_was():
    history = History()
    apps = [
        app(f"a{place}", 50 + 7 * place, 90 + 3 * place, at_s=10.0 * place, user=f"u{place % 3}") for place in range(9)
    ]
    simulation(apps, cluster(2, 1), alpha=0.3, observer=history).run()
    memories = [result.decision.memory for result in history.results if result.decision.memory is not None]
    assert len(memories) > 5
    recorder, events = MemoryRecorder(), []
    for number, memory in enumerate(memories, 1):
        detail, written = recorder.record(number, memory)
        written()
        stored = from_json(to_json({"round_id": number, **detail}))
        events.append(StoredEvent(sequence=number, time_s=0.0, kind="round_granted", detail=stored))
        assert msgspec.convert(stored_memory(events), AlloxMemory) == memory


@pytest.mark.parametrize("profiling_runs", [False, True])
def test_restart_before_every_round_changes_no_decision(profiling_runs):
    apps = [
        app(f"a{place}", 800 + 70 * place, 2000 + 90 * place, at_s=100.0 * place, user=f"u{place % 3}")
        for place in range(6)
    ]

    def decisions(restart):
        history = History()
        run = simulation(apps, cluster(2, 1), alpha=0.3, observer=history, profiling_runs=profiling_runs)
        if restart:
            run._policy = Restarting(run._policy)
        run.run()
        return [result.decision for result in history.results]

    plain = decisions(restart=False)
    assert len(plain) > 5
    assert decisions(restart=True) == plain


def joins_at(machine_id, time_s):
    return (NodeOutage(machine_id=machine_id, lost_at_s=0.0, back_at_s=time_s),)


def test_machine_of_a_new_type_that_joins_starts_the_job_that_waits():
    run = simulation([app("a", 100, 1000), app("b", 100, 120)], cluster(1, 1), outages=joins_at("cpu0", 20.0))
    assert ends_s(run) == {"a": pytest.approx(100.0), "b": pytest.approx(140.0)}


def test_machine_of_a_type_without_a_speed_of_any_job_stays_idle():
    only_gpus = [
        replace(app(name, 100, 100), jobs=(replace(app(name, 100, 100).jobs[0], speed_by_device={}),)) for name in "ab"
    ]
    history = History()
    run = simulation(only_gpus, cluster(1, 1), observer=history, outages=joins_at("cpu0", 20.0))
    assert sorted(ends_s(run).values()) == pytest.approx([100.0, 200.0])
    assert {change.lease.gpu.machine_id for change in history.changes} == {"gpu0"}


def test_unknown_memory_counts_as_none():
    run = simulation([app("a", 10, 1000)], cluster(1, 0))
    run.play_rounds(1)
    snapshot, _ = run.arbiter.begin_round(run.now_s)
    decision = run.decide(replace(snapshot, memory=None)).decision
    assert isinstance(decision.memory, AlloxMemory)
    assert decision.grants() == {}


@cache
def sampled_apps():
    """A run of three apps with sampling runs."""
    reported = History()
    apps = [app(f"a{place}", 2000 + 300 * place, 6000, user=f"u{place}") for place in range(3)]
    simulation(apps, cluster(2, 2), observer=reported, profiling_runs=True).run()
    return reported


class TestSamplingRuns:
    def test_every_app_runs_on_both_types_before_its_job_starts(self):
        for name in ("a0", "a1", "a2"):
            mine = [change for change in sampled_apps().changes if change.lease.app_id == name]
            granted = [change.lease for change in mine if change.kind is LeaseChangeKind.GRANTED]
            assert [lease.gpu.machine_id[:3] for lease in granted[:2]] == ["cpu", "gpu"]
            assert {change.lease.job_id for change in mine} == {f"{name}-0"}
            # A sample ends with its lease.
            first = [change.kind for change in mine if change.lease.lease_id == granted[0].lease_id]
            assert LeaseChangeKind.EXPIRING in first
            assert LeaseChangeKind.RENEWED not in first

    def test_samples_use_at_most_half_of_a_type(self):
        for result in sampled_apps().results:
            profiles = result.decision.memory.profiles if result.decision.memory else {}
            sampled = {name for name, profile in profiles.items() if profile.is_open}
            runs = [gang for name, gangs in result.decision.grants().items() for gang in gangs if name in sampled]
            assert len(runs) <= 2
            assert len({gang.device for gang in runs}) == len(runs)

    def test_samples_are_no_progress_and_the_arrival_stays(self):
        for result in sampled_apps().results:
            memory = result.decision.memory
            if memory is not None:
                sampled = {name for name, profile in memory.profiles.items() if profile.is_open}
                assert not sampled & memory.running.keys()
                assert all(at_s == 0.0 for jobs in memory.arrived_s.values() for at_s in jobs.values())

    def test_jobs_that_wait_for_samples_say_so(self):
        wait = sampled_apps().results[0].decision.waits["a0"]
        assert wait.reason == "a0 runs on every device type before its jobs start; type cpu is being measured"

    def test_jobs_whose_samples_found_no_room_name_the_next_type(self):
        wait = sampled_apps().results[0].decision.waits["a2"]
        assert wait.reason == "a2 runs on every device type before its jobs start; type cpu is next"

    def test_of_several_jobs_the_same_one_is_sampled_on_every_type_and_its_speed_counts_for_all(self):
        """One V100 is free. By the statement of 9 the jobs wait for it; by the measured 1.1 two start on the K80."""

        def wanted(left, measured=9.0):
            return {
                "a": [
                    demand(9.0 if n else measured, job=f"j{n}", gpus=1, work_left_gpu_s=work)
                    for n, work in enumerate(left)
                ]
            }

        first = sampled_round(wanted((500.0, 500.0, 500.0)))
        assert granted(first) == {"a": {"k": 1}}
        second = sampled_round(wanted((100.0, 500.0, 500.0)), first.memory, renewable={"a": {"k": 1}})
        assert granted(second) == {"a": {"v": 1}}
        assert second.memory.profiles["a"].job_id == "j0"
        kept = {"other": {"v": 3}}
        both = {"other": (), **wanted((50.0, 500.0, 500.0), measured=1.1)}
        third = sampled_round(both, second.memory, renewable={"a": {"v": 1}}, kept=kept)
        assert third.memory.profiles["a"].rates == (1.0, 1.1)
        assert granted(third) == {"a": {"k": 2, "v": 1}}

    def test_samples_that_run_count_for_the_limit(self):
        """Two of the four K80 run samples, so the third app waits for one of these."""
        running = Profile(state=ProfileState.RUNNING, types=("k80", "v100"), job_id="j")
        memory = AlloxMemory(profiles={"a": running, "b": running})
        apps = {name: [demand(2.0, job="j", gpus=1)] for name in "abc"}
        both = sampled_round(apps, memory, kept={"a": {"k": 1}, "b": {"k": 1}})
        assert granted(both) == {}
        one = sampled_round(apps, replace(memory, profiles={"a": running}), kept={"a": {"k": 1}})
        assert granted(one) == {"b": {"k": 1}}

    def test_tenants_take_turns_with_samples(self):
        """Two K80 run samples at a time. ann's apps are the earliest three, bob's the last."""
        owners = {name: AppOwner(user="bob" if name == "b0" else "ann") for name in ("a0", "a1", "a2", "b0")}
        apps = {name: [demand(2.0, job="j", gpus=1)] for name in owners}
        first = sampled_round(apps, owners=owners)
        assert granted(first) == {"a0": {"k": 1}, "b0": {"k": 1}}

    def test_of_apps_submitted_together_the_smaller_ids_are_sampled_first(self):
        """One tenant's three apps; two K80 run samples at a time."""
        apps = {name: [demand(2.0, job="j", gpus=1)] for name in ("a10", "a2", "a1")}
        owners = dict.fromkeys(apps, AppOwner(user="ann"))
        one_by_one = round_of(apps, owners=owners, profiling_runs=True, alpha=1.0)
        together = replace(one_by_one, apps=tuple(replace(app, submitted_at_s=0.0) for app in one_by_one.apps))
        assert granted(make_policy("allox").decide(together)) == {"a1": {"k": 1}, "a10": {"k": 1}}

    def test_tenant_whose_last_sample_is_oldest_goes_first(self):
        """One K80 may run a sample beside c's. ann's first app has ended, and her second is earlier than bob's."""
        owners = {"c": AppOwner(user="cid"), "a1": AppOwner(user="ann"), "b0": AppOwner(user="bob")}
        apps = {name: [demand(2.0, job="j", gpus=1)] for name in owners}
        running = Profile(state=ProfileState.RUNNING, types=("k80", "v100"), job_id="j")
        memory = AlloxMemory(profiles={"c": running}, last_sample_s={"user cid": 0.0, "user ann": 0.0})
        decided = sampled_round(apps, memory, kept={"c": {"k": 1}}, owners=owners)
        assert granted(decided) == {"b0": {"k": 1}}
        assert set(decided.memory.last_sample_s) == {"user cid", "user ann", "user bob"}

    def test_run_of_the_tenant_whose_turn_it_is_gets_the_only_free_device(self):
        owners = {"other": AppOwner(user="cid"), "a1": AppOwner(user="ann"), "b0": AppOwner(user="bob")}
        apps = {name: () if name == "other" else [demand(2.0, job="j", gpus=1)] for name in owners}
        memory = AlloxMemory(last_sample_s={"user ann": 0.0})
        decided = sampled_round(apps, memory, kept={"other": {"k": 3, "v": 4}}, owners=owners)
        assert granted(decided) == {"b0": {"k": 1}}

    def test_device_of_a_sample_is_busy_for_a_lease(self):
        """Otherwise the job would wait for the V100, which takes half of its time on an idle K80."""
        running = Profile(state=ProfileState.RUNNING, types=("k80", "v100"), rates=(1.0,), job_id="j")
        done = Profile(state=ProfileState.DONE, types=("k80", "v100"), rates=(1.0, 2.0), job_id="j")
        apps = {"other": (), "a": (), "b": [demand(2.0, job="j", gpus=1, work_left_gpu_s=100.0)]}
        frame = round_of(
            apps,
            memory=AlloxMemory(profiles={"a": running, "b": done}),
            kept={"other": {"v": 3}, "a": {"v": 1}},
            profiling_runs=True,
            alpha=1.0,
        )
        bound = tuple(replace(app, bound=(("j", "v"),)) if app.app_id == "a" else app for app in frame.apps)
        assert granted(make_policy("allox").decide(replace(frame, apps=bound))) == {"b": {"k": 1}}

    def test_samples_of_one_job_count_for_all_jobs_of_its_app(self):
        """By its speed the job is 9 times as fast on the V100; by the samples set-up takes 600 s there."""
        v100 = SampleTimes(device="v100", work_gpu_s=(10.0, 20.0), seconds=(601.0, 602.0))

        def wanted(*samples):
            jobs = [demand(9.0, job=f"j{n}", gpus=1, work_left_gpu_s=500.0) for n in range(2)]
            return {"other": (), "a": [replace(jobs[0], samples=samples), jobs[1]]}

        running = Profile(state=ProfileState.RUNNING, types=("k80", "v100"), rates=(1.0,), job_id="j0")
        memory = AlloxMemory(profiles={"a": running})
        kept = {"other": {"v": 3}}
        ended = sampled_round(wanted(v100), memory, renewable={"a": {"v": 1}}, kept=kept)
        assert ended.memory.profiles["a"].state is ProfileState.DONE
        assert ended.memory.samples == {"a": (v100,)}
        # The line is at 650 s on the V100; the K80 takes 500 s.
        assert granted(ended) == {"a": {"k": 2}}
        without = sampled_round(wanted(), memory, renewable={"a": {"v": 1}}, kept=kept)
        assert granted(without) == {"a": {"v": 1}}
        later = sampled_round(wanted(replace(v100, seconds=(1.0, 2.0))), ended.memory, kept=kept)
        assert later.memory.samples == {"a": (v100,)}

    def test_run_lasts_a_start_and_twice_what_2_percent_take_by_the_stated_speed(self):
        assert sampled_for_s(SampleLimits(), restart_s=7.0, work_left_gpu_s=1000.0, slowdown=FLAT) == [47.0]
        assert sampled_for_s(SampleLimits(), restart_s=7.0, work_left_gpu_s=100.0, slowdown=FLAT) == [17.0]
        slow = Slowdown(2.0, 2.0, 2.0, 2.0)
        assert sampled_for_s(SampleLimits(), restart_s=7.0, work_left_gpu_s=1000.0, slowdown=slow) == [87.0]

    def test_run_is_remembered_with_the_end_of_its_start_and_2_percent_of_its_work(self):
        slow = Slowdown(2.0, 2.0, 2.0, 2.0)
        memory = sampling_run(SampleLimits(), restart_s=7.0, work_left_gpu_s=1000.0, slowdown=slow).memory
        run = SampleRun(device="k80", started_at_s=7.0, work_gpu_s=40.0, left_gpu_s=1000.0)
        assert memory.sample_limits.runs == {"a": run}

    def test_run_on_a_type_with_finished_samples_has_a_lease_of_five_times_their_median(self):
        """Other samples took 8, 10 and 30 s on a K80; a start takes 7 s."""
        limits = SampleLimits(finished_s={"k80": (30.0, 8.0, 10.0)})
        assert sampled_for_s(limits, restart_s=7.0) == [57.0]

    def test_run_on_a_type_with_two_finished_samples_has_a_whole_lease(self):
        assert sampled_for_s(SampleLimits(finished_s={"k80": (8.0, 10.0)})) == [0.0]

    def test_run_whose_limit_is_beyond_a_lease_has_a_whole_lease(self):
        assert sampled_for_s(SampleLimits(finished_s={"k80": (200.0, 200.0, 200.0)})) == [0.0]

    def test_job_whose_sample_was_cut_takes_at_least_what_that_proves(self):
        """It had done less than 2 % of its 100 s of work after 50 s, so the whole takes more than 2500 s."""
        run = SampleRun(device="k80", started_at_s=-50.0, work_gpu_s=2.0, left_gpu_s=100.0, is_cut=True)
        running = Profile(state=ProfileState.RUNNING, types=("v100", "k80"), rates=(2.0,), job_id="j")
        memory = AlloxMemory(profiles={"a": running}, sample_limits=SampleLimits(runs={"a": run}))
        apps = {"other": (), "a": [demand(2.0, job="j", gpus=1, work_left_gpu_s=100.0, measured=())]}
        ended = sampled_round(apps, memory, renewable={"a": {"k": 1}}, kept={"other": {"v": 1}}).memory
        assert ended.times_s["a"] == {"k80": 2500.0, "v100": 50.0}
        assert (ended.sample_limits.runs, ended.sample_limits.bounds) == ({}, {"a": {"k80": 25.0}})
        said = dict(make_policy("allox").explain(ended, "a"))
        assert said["Time by type"] == "k80 at least 2500 s, v100 50 s; best on v100"

    def test_last_run_without_a_measurement_proves_a_time_and_the_ones_before_are_repeated(self):
        """The app states a K80 to be three times as fast as it is a V100, so the job would go there."""
        run = SampleRun(device="k80", started_at_s=-50.0, work_gpu_s=2.0, left_gpu_s=100.0)
        limits = SampleLimits(runs={"a": run})
        first = Profile(state=ProfileState.RUNNING, types=("v100", "k80"), rates=(1.0,), job_id="j")
        apps = {
            "other": (),
            "a": [demand(speeds=speeds(1.0, k80=3.0), gpus=1, work_left_gpu_s=100.0, measured=("v100",))],
        }
        again = sampled_round(apps, AlloxMemory(profiles={"a": first}, sample_limits=limits), renewable={"a": {"k": 1}})
        assert granted(again) == {"a": {"k": 1}}
        assert (again.memory.profiles["a"].attempts, again.memory.sample_limits.bounds) == (1, {})
        last = replace(first, attempts=MAX_RUNS - 1)
        closed = sampled_round(apps, AlloxMemory(profiles={"a": last}, sample_limits=limits), renewable={"a": {"k": 1}})
        assert closed.memory.times_s["a"] == {"k80": 2500.0, "v100": 100.0}
        assert granted(closed) == {"a": {"v": 1}}

    def test_short_jobs_take_at_most_twice_as_long_with_sampling_runs(self):
        """Eight jobs of 125 s on a GPU, five times that on a CPU node, alone on eight of each."""
        jobs = tuple(replace(app("a", 125, 625).jobs[0], job_id=f"a-{number}") for number in range(8))
        alone = replace(app("a", 125, 625), jobs=jobs)
        plain = simulation([alone], cluster(8, 8))
        sampled = simulation([alone], cluster(8, 8), profiling_runs=True)
        assert ends_s(sampled)["a"] <= 2.0 * ends_s(plain)["a"]

    def test_cut_run_whose_log_has_no_times_proves_nothing_once_its_job_did_2_percent(self):
        run = SampleRun(device="k80", started_at_s=-50.0, work_gpu_s=2.0, left_gpu_s=100.0)
        running = Profile(state=ProfileState.RUNNING, types=("v100", "k80"), rates=(2.0,), job_id="j")
        memory = AlloxMemory(profiles={"a": running}, sample_limits=SampleLimits(runs={"a": run}))
        apps = {"other": (), "a": [demand(2.0, job="j", gpus=1, work_left_gpu_s=98.0)]}
        ended = sampled_round(apps, memory, renewable={"a": {"k": 1}}, kept={"other": {"v": 1}}).memory
        assert ended.sample_limits == SampleLimits()
        assert ended.times_s["a"]["k80"] == 98.0

    def test_cut_run_with_both_samples_counts_by_these(self):
        run = SampleRun(device="k80", started_at_s=-50.0, work_gpu_s=2.0, left_gpu_s=100.0)
        running = Profile(state=ProfileState.RUNNING, types=("v100", "k80"), rates=(2.0,), job_id="j")
        memory = AlloxMemory(profiles={"a": running}, sample_limits=SampleLimits(runs={"a": run}))
        pair = SampleTimes(device="k80", work_gpu_s=(1.0, 2.0), seconds=(11.0, 12.0), memory_mb=300.0)
        apps = {"other": (), "a": [demand(2.0, job="j", gpus=1, work_left_gpu_s=100.0, samples=(pair,))]}
        ended = sampled_round(apps, memory, renewable={"a": {"k": 1}}, kept={"other": {"v": 1}}).memory
        assert ended.times_s["a"]["k80"] == pytest.approx(110.0)
        assert ended.sample_limits == SampleLimits(finished_s={"k80": (12.0,)})
        assert dict(make_policy("allox").explain(ended, "a"))["Memory of its sample"] == "k80 300 MB"

    def test_app_that_arrives_while_a_type_is_busy_is_sampled_there_later(self):
        closed = Profile(state=ProfileState.DONE, types=("k80", "v100"), rates=(1.0, 2.0), job_id="j")
        memory = AlloxMemory(profiles={"other": closed})
        apps = {"other": (), "a": [demand(2.0, job="j", gpus=1)]}
        busy = {"other": {"v": 4}}
        first = sampled_round(apps, memory, kept=busy)
        assert first.memory.profiles["a"].types == ("k80", "v100")
        waits = sampled_round(apps, first.memory, renewable={"a": {"k": 1}}, kept=busy)
        assert waits.memory.profiles["a"].state is ProfileState.REQUESTED
        assert waits.memory.profiles["a"].next_type == "v100"
        still = sampled_round(apps, waits.memory, kept=busy)
        assert (still.memory.profiles["a"], granted(still)) == (waits.memory.profiles["a"], {})
        assert granted(sampled_round(apps, still.memory)) == {"a": {"v": 1}}


def sampled_for_s(limits, **more):
    """The lengths of the leases of a sampling run that starts, 0 for whole ones."""
    return [gang.at_most_s for gang in sampling_run(limits, **more).auction["a"]]


def sampling_run(limits, restart_s=0.0, **more):
    """The decision by which a sampling run starts."""
    frame = round_of(
        {"a": [demand(2.0, job="j", gpus=1, **more)]},
        memory=AlloxMemory(sample_limits=limits),
        profiling_runs=True,
    )
    reports = {app_id: replace(report, restart_s=restart_s) for app_id, report in frame.reports.items()}
    return make_policy("allox").decide(replace(frame, reports=reports))


def sampled_round(demands, memory=None, **more):
    return make_policy("allox").decide(round_of(demands, memory=memory, profiling_runs=True, alpha=1.0, **more))
