"""OEF behind the Policy port: tenants of a snapshot, shares over many rounds, and its memory."""

import msgspec
import pytest
from msgspec.structs import replace
from oef_round_cases import CLUSTER, K80, V100, demand, four_apps, granted, jobs, played, round_of
from restart_cases import Restarting

from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.policies.oef_tenants import tenants_of
from rm_plugin.policies.port import traits_of
from rm_plugin.policies.registry import make_policy
from themis.apps import CRUDE_SLOWDOWN
from themis.bids import FreeMachine
from themis.choices import Placer, TenantOf
from themis.cluster import Allocation, Cluster, DeviceKind, DeviceType, Level, Machine
from themis.queues import AppOwner
from themis.speeds import NOWHERE, SAME_SPEED, Speeds
from themis_lab.paper.plans import FOR_MIXED_DEVICES
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.observer import History
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

OEF_POLICIES = [name for name in FOR_MIXED_DEVICES if traits_of(make_policy(name)).gangs]


class TestShares:
    def mean(self, policy, demands, rounds=60, **more):
        had, _ = played(policy, demands, rounds, **more)
        return {place: count / rounds for place, count in had.items()}

    def test_cooperative_shares_hold_over_many_rounds(self):
        # Golden 12, on four devices of each type: (1, .25) and (0, .75) of them.
        mean = self.mean("oef", {"a": jobs(2.0), "b": jobs(5.0)})
        assert mean == pytest.approx({("a", "k"): 4.0, ("a", "v"): 1.0, ("b", "v"): 3.0}, abs=0.05)

    def test_noncooperative_tenants_get_the_same_efficiency(self):
        # Golden B: t = 15/7 for one device of each type.
        mean = self.mean("oef_noncooperative", {"a": jobs(2.0), "b": jobs(5.0)}, rounds=140)
        assert mean["a", "k"] + 2 * mean["a", "v"] == pytest.approx(4 * 15 / 7, rel=0.03)
        assert mean.get(("b", "k"), 0.0) + 5 * mean["b", "v"] == pytest.approx(4 * 15 / 7, rel=0.03)

    @pytest.mark.parametrize("policy", ["max_min", "gavel", "gandiva_fair", "incentive_only"])
    def test_under_a_baseline_no_tenant_has_less_than_its_part_of_an_equal_split(self, policy):
        mean = self.mean(policy, {"a": jobs(2.0), "b": jobs(5.0)})
        efficiency = {app: mean.get((app, "k"), 0.0) + v100 * mean[app, "v"] for app, v100 in (("a", 2.0), ("b", 5.0))}
        assert efficiency["a"] >= 0.95 * 6.0
        assert efficiency["b"] >= 0.95 * 12.0
        assert (policy == "max_min") == (sum(efficiency.values()) == pytest.approx(18.0, rel=0.02))

    def test_pure_efficiency_gives_the_fast_type_to_the_tenant_that_gains_most(self):
        # The other has what it cannot use: golden 11, on four devices of each type.
        mean = self.mean("pure_efficiency", {"a": jobs(2.0), "b": [demand(5.0, gpus=4)]})
        assert mean == pytest.approx({("a", "k"): 4.0, ("b", "v"): 4.0}, abs=0.01)

    def test_capped_gavel_owes_each_tenant_one_gpu_of_mean_weight_and_leaves_none_idle(self):
        had, memory = played("gavel_capped", {"a": jobs(2.0), "b": jobs(5.0)}, 20)
        assert {tenant: sum(share) for tenant, share in memory.shares.share.items()} == pytest.approx(
            {"app a/1:2": 1.0, "app b/1:5": 1.0}
        )
        assert sum(had.values()) == 20 * 8

    def test_tenant_that_cannot_use_its_share_gets_what_it_can_use_of_an_equal_split(self):
        # Half of each type is worth 4 to the first app's two jobs.
        demands = {"a": jobs(2.0)[:2], "b": jobs(5.0)}
        assert self.mean("oef", demands) == pytest.approx({("a", "k"): 2.0, ("b", "k"): 2.0, ("b", "v"): 4.0}, abs=0.05)
        capped = self.mean("oef", demands, cap_demand=True)
        assert capped == pytest.approx({("a", "v"): 2.0, ("b", "k"): 4.0, ("b", "v"): 2.0}, abs=0.05)

    def test_gpus_that_an_app_keeps_count_in_its_demand(self):
        demands = {"a": jobs()[:2], "b": jobs()}
        snapshot = round_of(demands, kept={"a": {"v": 1}}, cap_demand=True)
        demand = {each.tenant_id: each.demand for each in tenants_of(snapshot, {}).instance.tenants}
        assert demand == {"app a/1:2": 3.0, "app b/1:2": 8.0}

    def test_without_the_setting_tenants_have_no_demand_also_in_records(self):
        instance = tenants_of(round_of({"a": jobs()}), {}).instance
        assert b"demand" not in msgspec.json.encode(instance)

    def test_a_user_with_two_apps_counts_as_one_tenant(self):
        owners = {app: AppOwner(user=user) for app, user in (("a", "u"), ("b", "u"), ("c", "w"))}
        by_user = self.mean("oef", {app: jobs() for app in owners}, owners=owners)
        by_app = self.mean("oef", {app: jobs() for app in owners}, owners=owners, tenant_of=TenantOf.APP)
        efficiency = [mean.get(("c", "k"), 0.0) + 2 * mean.get(("c", "v"), 0.0) for mean in (by_user, by_app)]
        assert efficiency == pytest.approx([6.0, 4.0], rel=0.05)

    def test_a_weight_of_two_gives_twice_the_efficiency(self):
        owners = {"a": AppOwner(user="u")}
        mean = self.mean("oef_noncooperative", {"a": jobs(), "b": jobs()}, owners=owners, tenant_weights={"u": 2.0})
        assert mean.get(("a", "k"), 0.0) + 2 * mean["a", "v"] == pytest.approx(8.0, rel=0.05)

    @pytest.mark.parametrize("policy", ["oef", "oef_noncooperative"])
    def test_no_gang_waits_for_ever(self, policy):
        # Four apps want three GPUs of one type, which is more than their shares of each type.
        had, memory = played(policy, {app: [demand(2.0, gpus=3, least=3)] for app in "abcd"}, 16)
        assert {app for app, _ in had} == set("abcd")
        assert max(abs(each) for row in memory.shares.deviation.values() for each in row) < 12.0

    @pytest.mark.parametrize(
        ("tenant_of", "tenant"), [(TenantOf.QUEUE, "prod"), (TenantOf.USER, "u"), (TenantOf.APP, "a")]
    )
    def test_a_weight_names_a_user_a_queue_or_an_app(self, tenant_of, tenant):
        owners = {"a": AppOwner(user="u", queue="prod"), "b": AppOwner(user="w")}
        snapshot = round_of(
            {"a": jobs(), "b": jobs()}, owners=owners, tenant_of=tenant_of, tenant_weights={tenant: 3.0, "z": 9.0}
        )
        weights = [each.weight for each in tenants_of(snapshot, {}).instance.tenants]
        assert sorted(weights) == [1.0, 3.0]

    def test_a_weight_counts_as_that_many_users_with_the_same_jobs(self):
        # Each copy of the user has a third of the GPUs that the weighted user has.
        weighted = self.mean("oef", {"a": jobs(2.0), "b": jobs(5.0)}, tenant_weights={"a": 3.0}, rounds=120)
        copies = self.mean("oef", {**{f"a{n}": jobs(2.0) for n in range(3)}, "b": jobs(5.0)}, rounds=120)
        for machine in "kv":
            assert sum(copies.get((f"a{n}", machine), 0.0) for n in range(3)) == pytest.approx(
                weighted.get(("a", machine), 0.0), abs=0.1
            )

    def test_apps_of_a_tenant_take_turns(self):
        # Two of the three run in a round. The one that waited comes next; ties go to the earlier submission.
        owners = {app: AppOwner(user="u") for app in "abc"}
        had, _ = played("oef", {app: [demand(gpus=4, least=4)] for app in "abc"}, 4, owners=owners)
        assert {app: sum(n for (each, _), n in had.items() if each == app) for app in "abc"} == {
            "a": 16,
            "b": 8,
            "c": 8,
        }


class TestPlacers:
    MACHINES = tuple(Machine(machine_id=f"m{n}", rack_id="r", slots=(slots,)) for n, slots in enumerate((2, 4)))

    def gangs(self, policy, placer, demands):
        cluster = Cluster(name="one type", machines=self.MACHINES)
        machines = tuple(
            FreeMachine(machine_id=each.machine_id, rack_id="r", free_slots=each.slots) for each in self.MACHINES
        )
        snapshot = replace(round_of(demands, placer=placer), cluster=cluster, machines=machines)
        return make_policy(policy).decide(snapshot).grants()

    @pytest.mark.parametrize("policy", OEF_POLICIES)
    def test_the_compact_placer_keeps_the_large_gang_whole_and_the_plain_one_splits_it(self, policy):
        demands = {"a": [demand(gpus=1, speeds=SAME_SPEED)], "b": [demand(gpus=4, least=4, speeds=SAME_SPEED)]}
        compact, plain = (self.gangs(policy, placer, demands) for placer in Placer)
        assert [gang.level for gang in compact["b"]] == [Level.SLOT]
        assert [gang.level for gang in plain["b"]] == [Level.RACK]

    @pytest.mark.parametrize("policy", OEF_POLICIES)
    def test_whole_runs_end_under_the_plain_placer(self, policy):
        run = four_apps(policy, placer=Placer.PLAIN)
        assert run.run(watch=lambda each: each.arbiter.validate()).counts.violations == []

    def test_under_the_plain_placer_a_tenant_keeps_gpus_too_few_for_its_smallest_gang(self):
        tenants = [
            tenants_of(round_of({"a": [demand(least=3)]}, placer=placer), {}).limits["app a/1:2"] for placer in Placer
        ]
        assert [limits.smallest for limits in tenants] == [3, 1]


class TestBetweenRounds:
    def test_gpus_that_come_free_are_used_and_no_deviation_changes(self):
        demands = {"a": [demand(2.0)], "b": [demand(5.0)]}
        _, memory = played("oef", demands, 3)
        busy = round_of({"a": [], "b": [demand(5.0)]}, memory=memory, kept={"a": {"k": 4}})
        decision = make_policy("oef").decide(busy)
        assert granted(decision) == {"b": {"v": 4}}
        assert decision.memory.shares.deviation == memory.shares.deviation

    def test_a_tenant_at_its_share_gets_no_more_contended_gpus(self):
        demands = {"a": jobs(2.0), "b": jobs(5.0)}
        _, memory = played("oef", demands, 4)
        ending = round_of(
            demands,
            memory=memory,
            kept={"a": {"k": 4, "v": 1}},
            renewable={"b": {"v": 3}},
        )
        assert granted(make_policy("oef").decide(ending)) == {"b": {"v": 3}}

    def test_an_unreachable_app_keeps_its_deviation(self):
        demands = {app: [demand(gpus=3, least=3)] for app in "abc"}
        _, memory = played("oef", demands, 1)
        owed = {tenant: row for tenant, row in memory.shares.deviation.items() if tenant.startswith("app c/")}
        assert any(map(any, owed.values()))
        after = make_policy("oef").decide(round_of(demands, memory=memory, silent=("c",))).memory
        assert {tenant: after.shares.deviation[tenant] for tenant in owed} == owed

    def test_an_app_that_ended_is_forgotten(self):
        _, memory = played("oef", {app: [demand(gpus=3, least=3)] for app in "abc"}, 2)
        after = make_policy("oef").decide(round_of({"a": [demand()]}, memory=memory)).memory
        assert list(after.speedups) == ["a"]
        assert [tenant for tenant in after.shares.deviation if not tenant.startswith("app a/")] == []


class TestTenants:
    def test_a_type_with_too_few_devices_for_the_smallest_gang_counts_as_unusable(self):
        small = replace(CLUSTER, machines=(CLUSTER.machines[0], replace(CLUSTER.machines[1], slots=(2,))))
        snapshot = replace(round_of({"a": [demand(3.0, least=3)]}), cluster=small)
        assert tenants_of(snapshot, {}).speedups == {"a": (1.0, 0.0)}

    def test_an_app_without_a_usable_type_is_left_out(self):
        snapshot = round_of({"a": [demand(speeds=NOWHERE)], "b": [demand()]})
        assert set(tenants_of(snapshot, {}).by_app) == {"b"}
        assert set(granted(make_policy("oef").decide(snapshot))) == {"b"}

    def test_gpus_of_an_app_without_speedups_are_not_shared(self):
        snapshot = round_of({"a": [demand()], "b": []}, kept={"b": {"v": 3}})
        assert tenants_of(snapshot, {}).instance.capacity == (4, 1)
        assert tenants_of(snapshot, {"b": (1.0, 2.0)}).instance.capacity == (4, 4)

    def test_gpus_that_a_policy_before_bound_to_an_app_add_no_debts(self):
        _, memory = played("oef", {"a": jobs(2.0), "b": jobs(5.0), "c": []}, 40, kept={"c": {"v": 4}})
        assert all(abs(owed) < 2.0 for row in memory.shares.deviation.values() for owed in row)

    def test_measured_speeds_that_nearly_agree_are_one_job_type(self):
        owners = dict.fromkeys("ab", AppOwner(user="u"))
        tenants = tenants_of(round_of({"a": [demand(3.0001)], "b": [demand(3.0002)]}, owners=owners), {})
        assert tenants.by_app == {"a": "user u/1:3", "b": "user u/1:3"}

    def test_extreme_speeds_and_weights_still_make_an_instance(self):
        snapshot = round_of({"a": [demand(1e200)], "b": [demand(1e-200)]}, tenant_weights={"a": 1e-300, "b": 1e300})
        assert set(granted(make_policy("oef").decide(snapshot))) <= {"a", "b"}


class TestMemory:
    def history(self, restart, **rounds):
        history = History()
        run = four_apps("oef", observer=history, **rounds)
        if restart:
            run._policy = Restarting(run._policy)
        run.run()
        return history

    @pytest.mark.parametrize("profiling_runs", [False, True])
    def test_a_restart_before_every_round_changes_no_decision(self, profiling_runs):
        plain, restarts = (self.history(restart, profiling_runs=profiling_runs) for restart in (False, True))
        assert len(plain.results) > 20
        assert [each.decision for each in restarts.results] == [each.decision for each in plain.results]

    def test_without_its_memory_it_would_decide_otherwise(self):
        demands = {app: [demand(gpus=3, least=3)] for app in "abc"}
        _, memory = played("oef", demands, 1)
        snapshot = round_of(demands, memory=memory)
        one, other = (make_policy("oef").decide(each) for each in (snapshot, replace(snapshot, memory=None)))
        assert granted(one) != granted(other)

    def test_the_other_mode_keeps_deviations_and_computes_shares_again(self):
        _, memory = played("oef", {"a": [demand(2.0)], "b": [demand(5.0)]}, 3)
        snapshot = round_of({"a": [demand(2.0)], "b": [demand(5.0)]}, memory=memory)
        after = make_policy("oef_noncooperative").decide(snapshot).memory
        assert after.rule == "oef_noncooperative"
        assert after.shares.share != memory.shares.share


class TestChangesOfTypes:
    """A node of a new type joins, or the last one of a type is gone: what tenants are owed of other types counts on."""

    P100 = DeviceType(name="p100", speed=1.5)
    WIDER = Cluster(
        name="three types",
        machines=(*CLUSTER.machines, Machine(machine_id="p", rack_id="r", slots=(4,), device="p100")),
        devices={"k80": K80, "p100": P100, "v100": V100},
    )

    def round_on(self, cluster, demands, memory, silent=()):
        machines = tuple(
            FreeMachine(machine_id=each.machine_id, rack_id="r", free_slots=each.slots, device=each.device)
            for each in cluster.machines
        )
        return replace(round_of(demands, memory=memory, silent=silent), cluster=cluster, machines=machines)

    def gangs_of_three(self, types=("k80", "v100")):
        own = {"k80": 1.0, "p100": 1.5, "v100": 2.0}
        return {
            app: [demand(gpus=3, least=3, speeds=Speeds.of([(name, own[name]) for name in types]))] for app in "abcd"
        }

    def owed(self, memory):
        """Deviations by app and type."""
        return {
            (app, name): owed
            for app, tenant in memory.tenants.items()
            for name, owed in zip(memory.types, memory.shares.deviation[tenant], strict=True)
        }

    @pytest.mark.parametrize("silent", [(), ("d",)])
    def test_a_type_that_joins_is_used_at_once_and_nothing_owed_is_lost(self, silent):
        _, memory = played("oef", self.gangs_of_three(), 1)
        before = self.owed(memory)
        snapshot = self.round_on(self.WIDER, self.gangs_of_three(("k80", "p100", "v100")), memory, silent)
        decision = make_policy("oef").decide(snapshot)
        assert any("p" in machines for machines in granted(decision).values())
        # Who waited in the first round comes first now, unless its app master is unavailable.
        waited = {"c", "d"} - set(silent)
        assert waited <= set(granted(decision))
        assert decision.memory.types == ("k80", "p100", "v100")
        for app in silent:
            after = self.owed(decision.memory)
            assert [after[app, name] for name in decision.memory.types] == [
                before[app, "k80"],
                0.0,
                before[app, "v100"],
            ]

    def test_a_removed_type_leaves_the_deviations_of_the_others(self):
        wide = self.gangs_of_three(("k80", "p100", "v100"))
        memory = make_policy("oef").decide(self.round_on(self.WIDER, wide, None)).memory
        starving = set("abcd") - set(granted(make_policy("oef").decide(self.round_on(self.WIDER, wide, None))))
        decision = make_policy("oef").decide(self.round_on(CLUSTER, self.gangs_of_three(), memory))
        assert decision.memory.types == ("k80", "v100")
        assert starving <= set(granted(decision))
        fresh = make_policy("oef").decide(self.round_on(CLUSTER, self.gangs_of_three(), None))
        assert granted(decision) != granted(fresh)

    def test_remembered_speeds_are_relative_to_a_type_that_is_still_there(self):
        wanted = {app: [demand(speeds=Speeds.of([("k80", 1.0), ("p100", 5.0), ("v100", 10.0)]))] for app in "ab"}
        memory = make_policy("oef").decide(self.round_on(self.WIDER, wanted, None)).memory
        left = replace(self.WIDER, machines=tuple(each for each in self.WIDER.machines if each.device != "k80"))
        snapshot = self.round_on(left, wanted, memory, silent=("a",))
        kept = replace(snapshot.apps[0], kept=Allocation.of({"v": 1}))
        after = make_policy("oef").decide(replace(snapshot, apps=(kept, *snapshot.apps[1:]))).memory
        assert after.tenants["a"].partition("/")[2] == after.tenants["b"].partition("/")[2] == "1:2"

    def test_joined_type_without_a_speed_of_any_job_stays_idle_and_changes_no_grant(self):
        cpus = DeviceType(name="cpu", kind=DeviceKind.CPU)
        nodes = (*CLUSTER.machines, Machine(machine_id="c", rack_id="r", slots=(4,), device="cpu"))
        joined = Cluster(name="with CPU nodes", machines=nodes, devices={**CLUSTER.devices, "cpu": cpus})
        _, memory = played("oef", self.gangs_of_three(), 1)
        plain, wider = (
            make_policy("oef").decide(self.round_on(cluster, self.gangs_of_three(), memory))
            for cluster in (CLUSTER, joined)
        )
        assert granted(wider) == granted(plain)
        assert set(wider.memory.types) == {"k80", "v100", "cpu"}
        assert {key: value for key, value in self.owed(wider.memory).items() if key[1] != "cpu"} == self.owed(
            plain.memory
        )

    def test_an_app_whose_only_type_is_gone_waits_and_the_others_run(self):
        only = {"a": [demand(speeds=Speeds.of([("p100", 1.0)]))], "b": jobs()}
        memory = make_policy("oef").decide(self.round_on(self.WIDER, only, None)).memory
        decision = make_policy("oef").decide(self.round_on(CLUSTER, {**only, "a": [demand(speeds=NOWHERE)]}, memory))
        assert set(granted(decision)) == {"b"}

    def test_measured_speeds_rename_a_tenant_and_keep_its_deviation(self):
        _, memory = played("oef", {app: [demand(2.0, gpus=3, least=3)] for app in "abcd"}, 1)
        owed = memory.shares.deviation["app d/1:2"]
        measured = {app: [demand(2.5 if app == "d" else 2.0, gpus=3, least=3)] for app in "abcd"}
        after = make_policy("oef").decide(round_of(measured, memory=memory, kept={"a": {"k": 4}, "b": {"v": 4}})).memory
        assert after.shares.deviation["app d/1:2.5"] == owed
        assert "app d/1:2" not in after.shares.deviation

    def test_a_split_tenant_keeps_its_deviation_under_its_name(self):
        owners = dict.fromkeys("ab", AppOwner(user="u"))
        demands = {app: [demand(2.0, gpus=3, least=3)] for app in "abcd"}
        _, memory = played("oef", demands, 1, owners=owners)
        parted = {**demands, "a": [demand(3.0, gpus=3, least=3)]}
        kept = {"c": {"k": 4}, "d": {"v": 4}}
        after = make_policy("oef").decide(round_of(parted, memory=memory, kept=kept, owners=owners)).memory
        assert after.shares.deviation["user u/1:2"] == memory.shares.deviation["user u/1:2"]
        assert "user u/1:3" not in after.shares.deviation


@pytest.mark.parametrize(("cap_demand", "ended_s"), [(False, [95.0, 95.0, 335.0]), (True, [335.0, 335.0, 335.0])])
def test_equal_shares_of_bounded_demand_do_not_end_short_apps_earlier(cap_demand, ended_s):
    """As docs/explanation/oef.md tells: twelve jobs of 60 s, which no second round moves from CPU nodes to GPUs."""
    jobs = [
        JobTrace(
            job_id=f"j{n}",
            iterations_total=600,
            serial_iteration_s=0.1,
            slowdown=CRUDE_SLOWDOWN,
            speed_by_device={"cpu": 0.2},
        )
        for n in range(4)
    ]
    apps = tuple(AppTrace(name=f"a{n}", arrival_s=0.0, jobs=tuple(jobs)) for n in range(3))
    settings = Settings(cluster=cluster_named("hybrid"), policy="oef", rounds=RoundSettings(cap_demand=cap_demand))
    record = Simulation(Workload(name="three apps", apps=apps), settings).run()
    assert sorted(round(app.completion_s) for app in record.apps) == ended_s
