"""Snapshots of rounds for the tests of policies."""

import pytest

from rm_plugin.arbiter.round_values import AppStanding, RoundSettings, RoundSnapshot
from themis.bids import AppReport, Bid, FreeMachine
from themis.cluster import Allocation, Cluster, Machine


def _snapshot(
    demands,
    *,
    rho=None,
    silent=(),
    absent=(),
    bids=None,
    renewable=None,
    attained=None,
    f=0.8,
    outcome=None,
    slots=((4,), (2,)),
    taken=None,
    kept=None,
    submitted=None,
    phases=None,
    restart_s=30.0,
):
    """A round of four free GPUs on m0 and two on m1; `demands` by app, in order of submission.

    `slots` lays out other machines, all of one rack; `taken` are GPUs of a machine that are not on offer.
    """
    machines = tuple(Machine(machine_id=f"m{place}", rack_id="r", slots=counts) for place, counts in enumerate(slots))
    apps = tuple(
        AppStanding(
            app_id=app,
            submitted_at_s=float((submitted or {}).get(app, 0.0)),
            ended_gpu_s=float((attained or {}).get(app, 0.0)),
            kept=Allocation.of((kept or {}).get(app, {})),
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
            phases_left=tuple((phases or {}).get(app, ())),
            restart_s=restart_s,
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
            FreeMachine(machine_id=each.machine_id, rack_id=each.rack_id, free_slots=_free(each, taken or {}))
            for each in machines
        ),
        apps=apps,
        settings=RoundSettings(f=f),
        seed=5,
        reports=reports,
        bids=None if bids is None else {app: Bid(app_id=app, round_id=1, empty_value=1.0, rows=()) for app in bids},
        outcome=outcome,
    )


def _free(machine, taken):
    first, *others = machine.slots
    return (first - taken.get(machine.machine_id, 0), *others)


def _gpus_of(decision):
    """GPUs by machine that every app was given."""
    return {
        app_id: sum((gang.gpus for gang in gangs), Allocation()).by_machine()
        for app_id, gangs in decision.grants().items()
    }


@pytest.fixture
def gpus_of():
    return _gpus_of


@pytest.fixture
def make_snapshot():
    return _snapshot
