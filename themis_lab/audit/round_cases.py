"""A round for a market: the policy's input, with random demands for the bidders and for two other apps."""

from __future__ import annotations

import random

from rm_plugin.arbiter.round_values import AppStanding, RoundSettings, RoundSnapshot
from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.bids import AppReport, GangDemand, Market
from themis.choices import Rounding
from themis.cluster import Allocation, Cluster, Machine
from themis_lab.audit.case import Case

_BYSTANDERS = ("bystander-0", "bystander-1")
# Slot and machine count as the same level: a demand states its job's GPUs without slots, so growth is judged by
# machine.
_SLOWDOWNS = (CRUDE_SLOWDOWN, Slowdown(1.2, 1.2, 2.0, 4.0), Slowdown(1.0, 1.0, 1.0, 1.0))


def snapshot_of(case: Case, rounding: Rounding) -> RoundSnapshot:
    """The round of a case after its auction. The policy's next step is its decision."""
    rng = case.rng("round")
    market = case.market
    apps = (*case.bids, *_BYSTANDERS)
    renewable = _renewable(market)
    return RoundSnapshot(
        round_id=0,
        now_s=0.0,
        lease_s=600.0,
        cluster=_cluster_of(market),
        machines=market.machines,
        apps=tuple(
            AppStanding(
                app_id=app_id,
                submitted_at_s=0.0,
                renewable=renewable.get(app_id, Allocation()),
            )
            for app_id in apps
        ),
        settings=RoundSettings(empty_bundle=market.empty_bundle, rounding=rounding),
        seed=rng.getrandbits(63),
        reports={app_id: _report(app_id, rng) for app_id in apps},
        bids=dict(case.bids),
        outcome=case.outcome,
    )


def _cluster_of(market: Market) -> Cluster:
    machines = tuple(
        Machine(
            machine_id=machine.machine_id,
            rack_id=machine.rack_id,
            slots=tuple(max(1, free) for free in machine.free_slots),
        )
        for machine in market.machines
    )
    return Cluster(name="audit", machines=machines)


def _renewable(market: Market) -> dict[str, Allocation]:
    """GPUs that bidders held before: the largest bundle that each pins, as far as no earlier bidder held it."""
    free = market.free.by_machine()
    held: dict[str, Allocation] = {}
    for bid in sorted(market.bids, key=lambda bid: bid.app_id):
        pins = max((row.pinned for row in bid.rows), key=lambda pinned: (pinned.gpus, pinned), default=Allocation())
        mine = {machine: min(count, free.get(machine, 0)) for machine, count in pins}
        free = {machine: count - mine.get(machine, 0) for machine, count in free.items()}
        held[bid.app_id] = Allocation.of(mine)
    return held


def _report(app_id: str, rng: random.Random) -> AppReport:
    slowdown = rng.choice(_SLOWDOWNS)
    demands = tuple(_demand(f"{app_id}-j{number}", slowdown, rng) for number in range(rng.randint(1, 4)))
    return AppReport(app_id=app_id, round_id=0, rho=1.0, t_shared_s=1.0, t_ideal_s=1.0, demands=demands)


def _demand(job_id: str, slowdown: Slowdown, rng: random.Random) -> GangDemand:
    unit, least = rng.choice((1, 1, 2)), rng.randint(1, 2)
    return GangDemand(
        job_id=job_id,
        min_gpus=unit * least,
        max_gpus=unit * (least + rng.randint(0, 3)),
        unit_gpus=unit,
        slowdown=slowdown,
        work_left_gpu_s=rng.uniform(1.0, 1000.0),
    )
