"""OEF behind the Policy port: tenants of a snapshot, shares over many rounds, and its memory."""

import json
from collections import Counter

import msgspec
import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.round_values import AppOwner, AppStanding, RoundSettings, RoundSnapshot
from rm_plugin.policies.oef_policy import OefPolicyMemory
from rm_plugin.policies.oef_tenants import tenants_of
from rm_plugin.policies.registry import make_policy
from themis.apps import CRUDE_SLOWDOWN
from themis.bids import AppReport, FreeMachine, GangDemand
from themis.choices import TenantOf
from themis.cluster import Allocation, Cluster, DeviceType, Machine
from themis.speeds import NOWHERE, Speeds
from themis_lab.simulator.observer import History
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

K80, V100 = DeviceType(name="k80"), DeviceType(name="v100", speed=2.0)
CLUSTER = Cluster(
    name="two types",
    machines=(
        Machine(machine_id="k", rack_id="r", slots=(4,), device="k80"),
        Machine(machine_id="v", rack_id="r", slots=(4,), device="v100"),
    ),
    devices={"k80": K80, "v100": V100},
)


def speeds(v100, k80=1.0):
    return Speeds.of([("k80", k80), ("v100", v100)])


def demand(v100=2.0, *, job="j", gpus=8, least=1, **more):
    return GangDemand(
        job_id=job, min_gpus=least, max_gpus=gpus, work_left_gpu_s=1e6, **{"speeds": speeds(v100), **more}
    )


def jobs(v100=2.0):
    """Jobs of one GPU each, so that whole GPUs of any type can be used."""
    return [demand(v100, job=f"j{n}", gpus=1) for n in range(8)]


def round_of(demands, *, memory=None, renewable=None, kept=None, owners=None, silent=(), tenant_of=TenantOf.USER):
    """A round on the free GPUs of both machines, less those that are kept. `demands` by app, in order of submission."""
    kept = {app: Allocation.of(counts) for app, counts in (kept or {}).items()}
    taken = sum(kept.values(), Allocation())
    apps = tuple(
        AppStanding(
            app_id=app,
            submitted_at_s=float(place),
            kept=kept.get(app, Allocation()),
            renewable=Allocation.of((renewable or {}).get(app, {})),
            silent=app in silent,
            owner=(owners or {}).get(app, AppOwner()),
        )
        for place, app in enumerate(demands)
    )
    return RoundSnapshot(
        round_id=1,
        now_s=0.0,
        lease_s=600.0,
        cluster=CLUSTER,
        machines=tuple(
            FreeMachine(
                machine_id=each.machine_id,
                rack_id="r",
                free_slots=(4 - taken.count(each.machine_id),),
                device=each.device,
            )
            for each in CLUSTER.machines
        ),
        apps=apps,
        settings=RoundSettings(tenant_of=tenant_of),
        seed=1,
        reports={
            app: AppReport(app_id=app, round_id=1, demands=tuple(wanted))
            for app, wanted in demands.items()
            if app not in silent
        },
        memory=memory,
    )


def granted(decision):
    """GPUs by app and machine."""
    return {
        app: sum((gang.gpus for gang in gangs), Allocation()).by_machine() for app, gangs in decision.grants().items()
    }


def played(policy, demands, rounds, **more):
    """Play rounds in which all leases end. Returns GPUs by (app, machine), and the last memory."""
    policy, memory, renewable, had = make_policy(policy), None, {}, Counter()
    for _ in range(rounds):
        decision = policy.decide(round_of(demands, memory=memory, renewable=renewable, **more))
        memory, renewable = decision.memory, granted(decision)
        had.update({(app, machine): n for app, counts in renewable.items() for machine, n in counts.items()})
    return had, memory


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

    @pytest.mark.parametrize("policy", ["max_min", "gavel", "gandiva_fair"])
    def test_under_a_baseline_no_tenant_has_less_than_its_part_of_an_equal_split(self, policy):
        mean = self.mean(policy, {"a": jobs(2.0), "b": jobs(5.0)})
        efficiency = {app: mean.get((app, "k"), 0.0) + v100 * mean[app, "v"] for app, v100 in (("a", 2.0), ("b", 5.0))}
        assert efficiency["a"] >= 0.95 * 6.0
        assert efficiency["b"] >= 0.95 * 12.0
        assert (policy == "max_min") == (sum(efficiency.values()) == pytest.approx(18.0, rel=0.02))

    def test_a_user_with_two_apps_counts_as_one_tenant(self):
        owners = {app: AppOwner(user=user) for app, user in (("a", "u"), ("b", "u"), ("c", "w"))}
        by_user = self.mean("oef", {app: jobs() for app in owners}, owners=owners)
        by_app = self.mean("oef", {app: jobs() for app in owners}, owners=owners, tenant_of=TenantOf.APP)
        efficiency = [mean.get(("c", "k"), 0.0) + 2 * mean.get(("c", "v"), 0.0) for mean in (by_user, by_app)]
        assert efficiency == pytest.approx([6.0, 4.0], rel=0.05)

    def test_a_weight_of_two_gives_twice_the_efficiency(self):
        owners = {"a": AppOwner(user="u", weight=2.0)}
        mean = self.mean("oef_noncooperative", {"a": jobs(), "b": jobs()}, owners=owners)
        assert mean.get(("a", "k"), 0.0) + 2 * mean["a", "v"] == pytest.approx(8.0, rel=0.05)

    @pytest.mark.parametrize("policy", ["oef", "oef_noncooperative"])
    def test_no_gang_waits_for_ever(self, policy):
        # Four apps want three GPUs of one type, which is more than their shares of each type.
        had, memory = played(policy, {app: [demand(2.0, gpus=3, least=3)] for app in "abcd"}, 16)
        assert {app for app, _ in had} == set("abcd")
        assert max(abs(each) for row in memory.shares.deviation.values() for each in row) < 12.0

    def test_apps_of_a_tenant_take_turns(self):
        # Two of the three run in a round. The one that waited comes next; ties go to the earlier submission.
        owners = {app: AppOwner(user="u") for app in "abc"}
        had, _ = played("oef", {app: [demand(gpus=4, least=4)] for app in "abc"}, 4, owners=owners)
        assert {app: sum(n for (each, _), n in had.items() if each == app) for app in "abc"} == {
            "a": 16,
            "b": 8,
            "c": 8,
        }


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

    def test_measured_speeds_that_nearly_agree_are_one_job_type(self):
        owners = dict.fromkeys("ab", AppOwner(user="u"))
        tenants = tenants_of(round_of({"a": [demand(3.0001)], "b": [demand(3.0002)]}, owners=owners), {})
        assert tenants.by_app == {"a": "user u/1:3", "b": "user u/1:3"}

    def test_extreme_speeds_and_weights_still_make_an_instance(self):
        owners = {"a": AppOwner(user="u", weight=1e-300), "b": AppOwner(user="w", weight=1e300)}
        snapshot = round_of({"a": [demand(1e200)], "b": [demand(1e-200)]}, owners=owners)
        assert set(granted(make_policy("oef").decide(snapshot))) <= {"a", "b"}


def restarted(memory):
    """Memory as a restart reads it."""
    stored = json.loads(json.dumps(msgspec.to_builtins(memory), allow_nan=False))
    return msgspec.convert(stored, OefPolicyMemory)


class Restarting:
    """A policy whose ResourceManager is killed and restarted before every round."""

    def __init__(self, policy):
        self._policy, self.name, self.rho_of, self.memory_type = policy, policy.name, policy.rho_of, policy.memory_type

    def decide(self, snapshot):
        memory = None if snapshot.memory is None else restarted(snapshot.memory)
        return self._policy.decide(replace(snapshot, memory=memory))


class TestMemory:
    def history(self, restart):
        apps = [
            AppTrace(
                name=f"a{n}",
                arrival_s=700.0 * n,
                jobs=tuple(
                    JobTrace(
                        job_id=f"a{n}-j{job}",
                        iterations_total=4000,
                        serial_iteration_s=1.0,
                        slowdown=CRUDE_SLOWDOWN,
                        speed_by_device={"v100": 1.5 + n},
                    )
                    for job in range(5)
                ),
            )
            for n in range(4)
        ]
        history = History()
        settings = Settings(cluster=CLUSTER, policy="oef")
        run = Simulation(Workload(name="four apps", apps=tuple(apps)), settings, observer=history)
        if restart:
            run._policy = Restarting(run._policy)
        run.run()
        return history

    def test_a_restart_before_every_round_changes_no_decision(self):
        plain, restarts = self.history(restart=False), self.history(restart=True)
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

    def test_memory_of_other_device_types_is_dropped(self):
        _, memory = played("oef", {"a": [demand(2.0)], "b": [demand(5.0)]}, 3)
        other = replace(memory, types=("cpu", "k80", "v100"))
        snapshot = round_of({"a": [demand(2.0)], "b": [demand(5.0)]})
        fresh = make_policy("oef").decide(snapshot)
        assert make_policy("oef").decide(replace(snapshot, memory=other)) == fresh
