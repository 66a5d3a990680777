"""Job types of OEF's tenants: noise of measurements neither splits them nor moves apps to and fro."""

import itertools

import pytest
from oef_round_cases import demand, round_of

from rm_plugin.policies.oef.job_types import job_types
from rm_plugin.policies.registry import make_policy
from themis.queues import AppOwner


def efficiency(policy, speeds_by_app, former=None):
    """The efficiency by virtual tenant, and the memory after a round. The app e is another user's."""
    owners = {app: AppOwner(user="w" if app == "e" else "u") for app in speeds_by_app}
    apps = {app: [demand(v100)] for app, v100 in speeds_by_app.items()}
    memory = make_policy(policy).decide(round_of(apps, memory=former, owners=owners)).memory
    vectors = {tenant.tenant_id: tenant.speedup for tenant in memory.shares.instance.tenants}
    worth = {
        tenant: sum(a * b for a, b in zip(share, vectors[tenant], strict=True))
        for tenant, share in memory.shares.share.items()
    }
    return {app: worth[memory.tenants[app]] for app in speeds_by_app}, memory


@pytest.mark.parametrize("policy", ["oef", "oef_noncooperative"])
def test_noise_of_half_a_per_cent_changes_no_share(policy):
    equal, _ = efficiency(policy, {"a": 2.0, "b": 2.0, "c": 2.0, "d": 5.0, "e": 3.0})
    noisy, memory = efficiency(policy, {"a": 2.0, "b": 2.01, "c": 2.02, "d": 5.0, "e": 3.0})
    assert noisy == pytest.approx(equal, rel=0.02)
    assert len({memory.tenants[app] for app in "abc"}) == 1
    assert {tenant.speedup for tenant in memory.shares.instance.tenants} == {(1.0, 2.01), (1.0, 5.0), (1.0, 3.0)}


def test_app_stays_in_its_job_type_while_its_speed_moves_a_little():
    _, first = efficiency("oef", {"a": 2.0, "b": 2.0, "d": 5.0, "e": 3.0})
    _, later = efficiency("oef", {"a": 2.0, "b": 2.3, "d": 5.0, "e": 3.0}, first)
    assert later.tenants == first.tenants
    _, moved = efficiency("oef", {"a": 2.0, "b": 2.6, "d": 5.0, "e": 3.0}, first)
    assert moved.tenants == {**first.tenants, "b": "user u/1:2.6"}


def test_new_app_joins_the_nearest_job_type_within_a_tenth():
    known = {"a": (1.0, 2.0), "b": (1.0, 2.15)}
    former = {"a": "1:2", "b": "1:2.15"}
    found = job_types({**known, "c": (1.0, 2.1), "d": (1.0, 2.5)}, former, known)
    assert found == {**former, "c": "1:2.15", "d": "1:2.5"}


def test_name_of_a_job_type_that_moved_away_is_not_given_again():
    former = {"a": "1:2"}
    assert job_types({"a": (1.0, 2.3), "b": (1.0, 2.0)}, former, {"a": (1.0, 2.3)}) == {"a": "1:2", "b": "1:2 (2)"}


def test_types_on_which_only_one_app_can_run_keep_them_apart():
    assert job_types({"a": (1.0, 2.0), "b": (1.0, 0.0)}, {}, {}) == {"a": "1:2", "b": "1:0"}


def test_order_of_apps_does_not_matter():
    vectors = {name: (1.0, 2.0 + 0.11 * place) for place, name in enumerate("dbca")}
    first = job_types(vectors, {}, {})
    assert len(set(first.values())) == 2
    for order in itertools.permutations(vectors.items()):
        assert job_types(dict(order), {}, {}) == first
