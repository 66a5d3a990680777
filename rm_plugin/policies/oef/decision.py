"""One round of OEF: fair shares if something changed, whole GPUs for every tenant, and places for their jobs.

Fair shares are computed again when a tenant or job type comes or goes, or when a speedup, weight, demand or capacity
changes. Rounding and placement run every round. `OefMemory` holds all that a round needs from the rounds before it.
The caller keeps it as JSON, so a restart between two rounds changes no decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from rm_plugin.policies.oef.evaluator import Rule, evaluate
from rm_plugin.policies.oef.fair_share import FairShare, ShareStatus
from rm_plugin.policies.oef.placement import Host, HostGang, Placer, WaitingJob, place_compactly
from rm_plugin.policies.oef.rounding import GangLimits, Shares, Whole, round_shares
from rm_plugin.policies.oef.speedup import Instance
from themis.values import Value


class OefMemory(Value, frozen=True, kw_only=True):
    """State between rounds; the first round begins with an empty one.

    Attributes:
        instance: What `share` was computed from; None if nothing was.
        share: Fair shares by tenant and type.
        marginal: By tenant and type, how much its efficiency grows per further device; empty if the rule has no prices.
        status: Where they come from.
        deviation: From the last rounding.
    """

    instance: Instance | None = None
    share: Shares = msgspec.field(default_factory=dict)
    marginal: Shares = msgspec.field(default_factory=dict)
    status: ShareStatus = ShareStatus.OPTIMAL
    deviation: Shares = msgspec.field(default_factory=dict)


class OefRound(Value, frozen=True, kw_only=True):
    """The decision of a round.

    Attributes:
        placed: The GPUs of every job that runs; the others wait.
        granted: Whole GPUs by tenant and type.
        fair: The new fair shares; None if the last ones still hold.
        memory: For the next round.
    """

    placed: Mapping[str, HostGang]
    granted: Whole
    fair: FairShare | None
    memory: OefMemory


def decide_round(
    memory: OefMemory,
    instance: Instance | None,
    jobs: Sequence[WaitingJob],
    hosts: Sequence[Host],
    rule: Rule,
    *,
    place: Placer = place_compactly,
    smallest_gangs: bool = True,
) -> OefRound:
    """Decide a round.

    Args:
        memory: From the last round.
        instance: The tenants with a job to run now, and the capacity; None if no tenant has one.
        jobs: Their jobs, running ones included; at least one for every tenant of the instance.
        hosts: Machines with all their GPUs, as many of each type as the capacity says.
        rule: From `rule_of`, or a baseline.
        place: OEF's placer, or the plain one.
        smallest_gangs: Whether a tenant with fewer GPUs than its smallest gang gives them back. False for comparison.

    Raises:
        InputError: The instance cannot be used.
    """
    if instance is None:
        return OefRound(placed={}, granted={}, fair=None, memory=OefMemory())
    fair, memory = with_fair_shares(memory, instance, rule)
    rounded = round_shares(instance.capacity, memory.share, memory.deviation, _limits(jobs, smallest_gangs))
    return OefRound(
        placed=place(jobs, hosts, rounded.granted),
        granted=rounded.granted,
        fair=fair,
        memory=replace(memory, deviation=rounded.deviation),
    )


def with_fair_shares(memory: OefMemory, instance: Instance, rule: Rule) -> tuple[FairShare | None, OefMemory]:
    """Return the memory with the fair shares of the instance, and these if they had to be computed."""
    if instance == memory.instance and memory.status is ShareStatus.OPTIMAL:
        return None, memory
    fair = evaluate(instance, rule, memory.share or None)
    return fair, replace(
        memory, instance=instance, share=dict(fair.share), marginal=dict(fair.marginal), status=fair.status
    )


def _limits(jobs: Sequence[WaitingJob], smallest_gangs: bool) -> dict[str, GangLimits]:
    """What each tenant can use now."""
    by_tenant: dict[str, list[WaitingJob]] = {}
    for job in jobs:
        by_tenant.setdefault(job.tenant_id, []).append(job)
    return {
        tenant: GangLimits(
            smallest=min(job.smallest for job in own) if smallest_gangs else 1,
            most=sum(job.largest for job in own),
            speedup=own[0].speedup,
        )
        for tenant, own in by_tenant.items()
    }
