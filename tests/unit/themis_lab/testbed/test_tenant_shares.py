"""Fair shares and leases by tenant, from events."""

import pytest

from themis_lab.testbed.events import Event
from themis_lab.testbed.spans import LeaseSpan
from themis_lab.testbed.tenant_shares import tenant_shares

DEVICE_OF = {"k0": "k80", "v0": "v100"}
ANN, BOB = "user ann/1:4", "user bob/1:1"


def granted(sequence, time_s, **detail):
    return Event(sequence=sequence, time_s=time_s, kind="round_granted", app_id="", detail=detail)


def lease(app_id, gpu, start_s, end_s):
    return LeaseSpan(lease_id=1, app_id=app_id, gpu=gpu, start_s=start_s, start_sequence=1, end_s=end_s)


def test_shares_add_up_over_rounds_and_memory_changes():
    memory = {"types": ["k80", "v100"], "tenants": {"a1": ANN}, "shares": {"share": {ANN: [1.0, 1.0]}}}
    patch = {"tenants": {"b1": BOB}, "shares": {"share": {ANN: [0.0, 1.0], BOB: [1.0, 0.0]}}}
    gone = {"tenants": {"a1": None}, "shares": {"share": {ANN: None, BOB: [1.0, 1.0]}}}
    events = [
        granted(1, 100.0, memory=memory),
        granted(2, 110.0, memory_change={"after": 1, "patch": patch}),
        granted(3, 130.0, memory_change={"after": 2, "patch": gone}),
    ]
    leases = [lease("a1", "v0/0", 100.0, 130.0), lease("a1", "k0/0", 100.0, 112.0), lease("b1", "k0/0", 112.0, 150.0)]
    assert tenant_shares(events, leases, 140.0, DEVICE_OF) == {
        "user ann": {"apps": ["a1"], "share_s": {"k80": 10.0, "v100": 30.0}, "leased_s": {"v100": 30.0, "k80": 12.0}},
        "user bob": {"apps": ["b1"], "share_s": {"k80": 30.0, "v100": 10.0}, "leased_s": {"k80": 28.0}},
    }


@pytest.mark.parametrize("detail", [{}, {"memory": {"owed": {"a": 1}}}])
def test_policies_without_shares_have_no_tenants(detail):
    assert tenant_shares([granted(1, 100.0, **detail)], [], 140.0, DEVICE_OF) == {}
