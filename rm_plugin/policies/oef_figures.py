"""What OEF and its baselines publish for operators: efficiency, sharing incentive, envy, deviations, starvation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from rm_plugin.policies.oef.audit import largest_envy, sharing_incentive
from rm_plugin.policies.oef.decision import OefMemory
from rm_plugin.policies.oef.fair_share import FairShare, ShareStatus
from rm_plugin.policies.oef.profiling import Profiles
from rm_plugin.policies.oef.rounding import Whole
from rm_plugin.policies.oef.speedup import normalise
from rm_plugin.policies.port import Figure
from themis.values import Value


class RoundCounts(Value, frozen=True, kw_only=True):
    """Counts of the newest round in which leases ended, and totals since the memory began.

    Attributes:
        granted: Whole GPUs that each virtual tenant got, by type.
        gangs: Gangs that were granted.
        split_gangs: Those of them on several machines.
        programmes: Total of rounds that computed fair shares.
    """

    granted: Whole = msgspec.field(default_factory=dict)
    gangs: int = 0
    split_gangs: int = 0
    programmes: int = 0


def figures_of(
    types: Sequence[str], shares: OefMemory, starved: Mapping[str, int], profiles: Profiles, counts: RoundCounts
) -> tuple[Figure, ...]:
    """The figures of a memory.

    Args:
        types: Device types; all vectors are in this order.
        shares: Fair shares and deviations.
        starved: Rounds without a GPU by app that waits.
        profiles: Profiles by app.
        counts: The counts after the newest round.
    """
    return (
        *_of_shares(shares, counts),
        Figure(
            name="deviation_devices_max",
            what="The most devices of a type that a tenant is owed, or is ahead, from earlier rounds.",
            values=tuple(
                ({"type": name, "kind": kind}, max(0.0, *(sign * owed[number] for owed in shares.deviation.values())))
                for number, name in enumerate(types)
                for kind, sign in (("owed", 1.0), ("ahead", -1.0))
                if shares.deviation
            ),
        ),
        Figure.one("starved_apps", "Apps that wait without a GPU.", len(starved)),
        Figure.one("starved_rounds_max", "The longest such wait, in rounds.", max(starved.values(), default=0)),
        Figure.one("profiling_apps", "Apps that wait for a profile.", sum(each.is_open for each in profiles.values())),
        Figure(
            name="gangs",
            what="Gangs of the newest round in which leases ended, by the machines that they span.",
            values=(
                ({"machines": "one"}, counts.gangs - counts.split_gangs),
                ({"machines": "several"}, counts.split_gangs),
            ),
        ),
        Figure.one("programmes_total", "Rounds that computed fair shares.", counts.programmes, is_total=True),
    )


def _of_shares(shares: OefMemory, counts: RoundCounts) -> tuple[Figure, ...]:
    """Figures of the present fair shares; none before the first."""
    if shares.instance is None:
        return ()
    speedups = normalise(shares.instance)
    if not speedups.tenant_ids:
        return ()
    nothing = (0.0,) * len(shares.instance.types)

    def of(devices: Mapping[str, Sequence[float]]) -> FairShare:
        matrix = np.array([devices.get(tenant, nothing) for tenant in speedups.tenant_ids], dtype=np.float64)
        return FairShare(status=shares.status, speedups=speedups, matrix=matrix)

    fair = of(shares.share)
    return (
        Figure.one("tenants", "Virtual tenants with a fair share.", len(speedups.tenant_ids)),
        Figure(
            name="efficiency",
            what="Throughput of all tenants, in devices of the reference type: by fair shares, and by whole devices.",
            values=(({"kind": "fair"}, fair.total), ({"kind": "granted"}, of(counts.granted).total)),
        ),
        Figure.one(
            "sharing_incentive_min",
            "The least ratio of a tenant's fair efficiency to that of an equal split.",
            min(sharing_incentive(fair).values(), default=1.0),
        ),
        Figure.one(
            "envy_max",
            "The most that a tenant's efficiency would grow with another's fair share.",
            max((envy.by for envy in largest_envy(fair).values()), default=0.0),
        ),
        Figure.one("shares_optimal", "Whether the solver found the fair shares.", shares.status is ShareStatus.OPTIMAL),
    )
