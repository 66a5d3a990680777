"""What each tenant should have had under a policy that computes fair shares, and what it had, from a run's events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from themis.json_merge_patch import merged
from themis_lab.testbed.events import Event
from themis_lab.testbed.measures import gpu_time_by_device
from themis_lab.testbed.spans import LeaseSpan


def tenant_shares(
    events: Sequence[Event], leases: Iterable[LeaseSpan], end_s: float, device_of: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return device seconds by tenant and type: `share_s` by the fair shares, `leased_s` by leases, and its `apps`.

    Example: a tenant with a share of half a V100 for 60 s has a `share_s` of 30 s on V100s. Empty for policies
    without shares.

    Args:
        events: All events.
        leases: The leases of all apps.
        end_s: When the last app ended, in seconds since the epoch. Shares count until then.
        device_of: The device type of each machine.
    """
    shares: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    tenant_of: dict[str, str] = {}
    memories = list(_memories(events))
    ends_s = [*(time_s for time_s, _ in memories), end_s][1:]
    for (time_s, memory), until_s in zip(memories, ends_s, strict=True):
        tenant_of |= {app_id: _owner(tenant) for app_id, tenant in memory.get("tenants", {}).items()}
        for tenant, counts in memory["shares"].get("share", {}).items():
            for name, count in zip(memory["types"], counts, strict=True):
                shares[_owner(tenant)][name] += count * max(0.0, min(until_s, end_s) - time_s)
    held: dict[str, list[LeaseSpan]] = defaultdict(list)
    for lease in leases:
        if lease.app_id in tenant_of:
            held[tenant_of[lease.app_id]].append(lease)
    return {
        tenant: {
            "apps": sorted(app_id for app_id, name in tenant_of.items() if name == tenant),
            "share_s": {name: seconds for name, seconds in shares[tenant].items() if seconds > 0.0},
            "leased_s": gpu_time_by_device(held[tenant], end_s, device_of),
        }
        for tenant in sorted(set(tenant_of.values()))
    }


def _owner(tenant: str) -> str:
    """The owner of a virtual tenant, which is named OWNER/SPEEDUPS."""
    return tenant.rpartition("/")[0] or tenant


def _memories(events: Iterable[Event]) -> Iterator[tuple[float, dict[str, Any]]]:
    """The memory of a policy with shares after each round, and when that was."""
    memory: Any = None
    for event in events:
        if event.kind != "round_granted":
            continue
        if "memory" in event.detail:
            memory = event.detail["memory"]
        elif "memory_change" in event.detail:
            memory = merged(memory, event.detail["memory_change"]["patch"])
        else:
            memory = None
        if isinstance(memory, dict) and {"types", "shares"} <= memory.keys():
            yield event.time_s, memory
