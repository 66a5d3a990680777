"""Snapshots of rounds for the tests of policies."""

import pytest

from rm_plugin.arbiter.round_values import AppStanding, RoundSettings, RoundSnapshot
from themis.bids import AppReport, Bid, FreeMachine
from themis.cluster import Allocation, Cluster, Machine


def _snapshot(
    demands, *, rho=None, silent=(), absent=(), bids=None, renewable=None, attained=None, f=0.8, outcome=None
):
    """A round of four free GPUs on m0 and two on m1; `demands` by app, in order of submission."""
    machines = (Machine(machine_id="m0", rack_id="r", slots=(4,)), Machine(machine_id="m1", rack_id="r", slots=(2,)))
    apps = tuple(
        AppStanding(
            app_id=app,
            submitted_at_s=0.0,
            attained_gpu_s=float((attained or {}).get(app, 0.0)),
            contention=1.0,
            renewable=Allocation.of((renewable or {}).get(app, {})),
            silent=app in silent,
        )
        for app in demands
    )
    reports = {
        app: AppReport(
            app_id=app,
            round_id=1,
            rho=float((rho or {}).get(app, 1.0)),
            t_shared_s=1.0,
            t_ideal_s=1.0,
            demands=tuple(each),
        )
        for app, each in demands.items()
        if app not in absent
    }
    return RoundSnapshot(
        round_id=1,
        now_s=0.0,
        lease_s=600.0,
        cluster=Cluster(name="c", machines=machines),
        machines=tuple(
            FreeMachine(machine_id=each.machine_id, rack_id=each.rack_id, free_slots=each.slots) for each in machines
        ),
        apps=apps,
        settings=RoundSettings(f=f),
        seed=5,
        reports=reports,
        bids=None if bids is None else {app: Bid(app_id=app, round_id=1, empty_value=1.0, rows=()) for app in bids},
        outcome=outcome,
    )


@pytest.fixture
def make_snapshot():
    return _snapshot
