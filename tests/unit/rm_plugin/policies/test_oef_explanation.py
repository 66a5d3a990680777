"""What a user reads of OEF's decision about an app."""

import pytest
from msgspec.structs import replace

from rm_plugin.policies.oef.decision import OefMemory
from rm_plugin.policies.oef.profiling import Profile, ProfileState
from rm_plugin.policies.oef.speedup import Instance, Tenant
from rm_plugin.policies.oef_policy import OefPolicyMemory
from rm_plugin.policies.registry import make_policy

ANN, BOB = "user ann/1:4", "user bob/1:0"
INSTANCE = Instance(
    types=("k80", "v100"),
    capacity=(2, 1),
    tenants=(Tenant(tenant_id=ANN, speedup=(1.0, 4.0)), Tenant(tenant_id=BOB, speedup=(1.0, 0.0), weight=2.0)),
)
MEMORY = OefPolicyMemory(
    rule="oef",
    types=("k80", "v100"),
    shares=OefMemory(
        instance=INSTANCE,
        share={ANN: (0.0, 1.0), BOB: (2.0, 0.0)},
        marginal={ANN: (0.0, 4.0), BOB: (1.0, -1e-17)},
        deviation={ANN: (0.0, -1 / 3), BOB: (0.5, 0.001)},
    ),
    speedups={"a1": (1.0, 4.0), "a2": (1.0, 4.0), "b1": (1.0, 0.0)},
    tenants={"a1": ANN, "a2": ANN, "b1": BOB},
    starved={"a2": 3},
)


def explained(app_id, memory=MEMORY):
    return dict(make_policy("oef").explain(memory, app_id))


def test_explanation_names_tenant_speedups_share_and_debt():
    assert explained("a1") == {
        "Tenant": "user ann, with a2",
        "Speedups": "k80 1, v100 4",
        "Fair share": "1 v100 of 2 k80, 1 v100",
        "Owed": "it had 0.33 v100 more than its share",
        "One more": "k80: worth 1 to all, 0 to this tenant; v100: worth 4 to all, 4 to this tenant; in k80 GPUs",
    }
    assert explained("b1") == {
        "Tenant": "user bob, weight 2",
        "Speedups": "k80 1, v100 cannot run",
        "Fair share": "2 k80 of 2 k80, 1 v100",
        "Owed": "0.5 k80 from earlier rounds",
        "One more": "k80: worth 1 to all, 1 to this tenant; v100: worth 4 to all, 0 to this tenant; in k80 GPUs",
    }


def test_app_that_got_nothing_reads_for_how_many_rounds_it_waits():
    assert explained("a2")["Waits"] == "for 3 rounds: a tenant's GPUs go to its apps that wait longest"


def test_app_without_a_tenant_has_no_explanation():
    assert explained("new") == {}


def test_memory_of_another_policy_explains_nothing():
    assert explained("a1", Tenant(tenant_id="x", speedup=(1.0,))) == {}


def test_worth_has_no_total_if_no_type_is_usable_by_all_tenants():
    tenants = (Tenant(tenant_id=ANN, speedup=(0.0, 1.0)), Tenant(tenant_id=BOB, speedup=(1.0, 0.0)))
    shares = replace(MEMORY.shares, instance=replace(INSTANCE, tenants=tenants))
    text = explained("a1", replace(MEMORY, shares=shares))["One more"]
    assert text == "k80: worth 0 to this tenant; v100: worth 4 to this tenant; in GPUs of its slowest type"


def test_types_without_devices_have_no_worth():
    shares = replace(MEMORY.shares, instance=replace(INSTANCE, capacity=(0, 1)))
    assert explained("a1", replace(MEMORY, shares=shares))["One more"].startswith("v100: worth 4 to all")


def test_rule_without_prices_explains_no_worth():
    memory = replace(MEMORY, shares=replace(MEMORY.shares, marginal={}))
    assert "One more" not in explained("a1", memory)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ProfileState.REQUESTED, "waits for v100 to be measured there; the app shares once all types are"),
        (ProfileState.RUNNING, "job-0 runs on v100 to be measured; the app shares once all types are"),
        (ProfileState.FAILED, "failed: its GPUs were lost; the app shares by the speeds that it reports"),
        (ProfileState.DONE, "job-0 was measured on k80, v100"),
        (ProfileState.STALE, "job-0 was measured on k80, v100, and will be again: its speed has changed"),
    ],
)
def test_app_with_profiling_runs_reads_how_far_its_profile_is(state, expected):
    rates = (1.0,) if state in (ProfileState.REQUESTED, ProfileState.RUNNING) else (1.0, 4.0)
    profile = Profile(state=state, types=("k80", "v100"), rates=rates, reason="its GPUs were lost", job_id="job-0")
    assert explained("new", replace(MEMORY, profiles={"new": profile})) == {"Profile": expected}
    assert explained("a1", replace(MEMORY, profiles={"a1": profile}))["Profile"] == expected


def test_bounded_demand_is_shown():
    tenants = tuple(replace(each, demand=3.0) for each in INSTANCE.tenants)
    memory = replace(MEMORY, shares=replace(MEMORY.shares, instance=replace(INSTANCE, tenants=tenants)))
    assert explained("b1", memory)["Fair share"] == "2 k80 of 2 k80, 1 v100; its jobs can use 3"
