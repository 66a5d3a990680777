"""Why an app has its GPUs under OEF, in words: its tenant, its speedups, its fair share, and what it is owed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import UNSET

from rm_plugin.policies.oef.decision import OefMemory
from rm_plugin.policies.oef.profiling import Profile, ProfileState
from rm_plugin.policies.oef.speedup import Instance, reference_type
from rm_plugin.policies.port import Explanation

_NEGLIGIBLE = 0.005
"""Shares and debts below this many GPUs are not shown: they would be 0.00."""


def explain_app(
    app_id: str,
    *,
    types: Sequence[str],
    shares: OefMemory,
    tenants: Mapping[str, str],
    speedups: Mapping[str, Sequence[float]],
    starved: Mapping[str, int],
    profile: Profile | None = None,
) -> Explanation:
    """Return labelled lines on an app, from what the policy remembers. Without a tenant it has at most a profile.

    Example, for ann's app on a K80 and a V100 that she shares with bob: Tenant: user ann. Speedups: k80 1, v100 4.
    Fair share: 1 v100 of 1 k80, 1 v100. Owed: nothing. One more: k80: worth 1 to all, 0 to this tenant; v100: worth
    4 to all, 4 to this tenant; in k80 GPUs.
    """
    measured = () if profile is None else (("Profile", _profile(profile)),)
    tenant = tenants.get(app_id)
    if tenant is None:
        return measured
    own = [
        f"{name} {speedup:g}" if speedup else f"{name} cannot run"
        for name, speedup in zip(types, speedups.get(app_id, ()), strict=False)
    ]
    lines = [("Tenant", tenant_text(app_id, tenants, _owner(tenant, shares))), ("Speedups", ", ".join(own)), *measured]
    if shares.instance is not None and tenant in shares.share:
        share, capacity = _counts(types, shares.share[tenant]), _counts(types, shares.instance.capacity)
        demand = {each.tenant_id: each.demand for each in shares.instance.tenants}.get(tenant, UNSET)
        bound = "" if demand is UNSET else f"; its jobs can use {demand:g}"
        lines.append(("Fair share", f"{share or 'nothing'} of {capacity}{bound}"))
        lines.append(("Owed", _owed(types, shares.deviation.get(tenant, ()))))
        if tenant in shares.marginal:
            lines.append(("One more", _worth(types, shares.instance, shares.marginal, tenant)))
    if rounds := starved.get(app_id):
        waited = f"{rounds} round{'s' if rounds > 1 else ''}"
        lines.append(("Waits", f"for {waited}: a tenant's GPUs go to its apps that wait longest"))
    return tuple(lines)


def tenant_text(app_id: str, tenants: Mapping[str, str], owner: str) -> str:
    """The owner of an app, and the other apps of its tenant: `user ann, with a2`."""
    others = sorted(other for other, name in tenants.items() if name == tenants[app_id] and other != app_id)
    return f"{owner}, with {', '.join(others)}" if others else owner


def _profile(profile: Profile) -> str:
    match profile.state:
        case ProfileState.RUNNING:
            return f"{profile.job_id} runs on {profile.next_type} to be measured; the app shares once all types are"
        case ProfileState.REQUESTED:
            return f"waits for {profile.next_type} to be measured there; the app shares once all types are"
        case ProfileState.FAILED:
            return f"failed: {profile.reason}; the app shares by the speeds that it reports"
    if profile.is_stated:
        return "none: a run on every type would take too much of its time; the app shares by the speeds that it reports"
    again = ", and will be again: its speed has changed" if profile.state is ProfileState.STALE else ""
    assumed = f"; its speed on {', '.join(profile.assumed)} is as stated" if profile.assumed else ""
    return f"{profile.job_id} was measured on {', '.join(profile.measured) or 'no type'}{assumed}{again}"


def _owner(tenant: str, shares: OefMemory) -> str:
    weights = {each.tenant_id: each.weight for each in shares.instance.tenants} if shares.instance is not None else {}
    weight = weights.get(tenant, 1.0)
    # A virtual tenant is named OWNER/SPEEDUPS.
    return tenant.rpartition("/")[0] + (f", weight {weight:g}" if weight != 1.0 else "")


def _owed(types: Sequence[str], deviation: Sequence[float]) -> str:
    owed = _counts(types, [max(count, 0.0) for count in deviation])
    ahead = _counts(types, [max(-count, 0.0) for count in deviation])
    parts = [f"{owed} from earlier rounds"] if owed else []
    parts += [f"it had {ahead} more than its share"] if ahead else []
    return "; ".join(parts) or "nothing"


def _worth(types: Sequence[str], instance: Instance, marginal: Mapping[str, Sequence[float]], tenant: str) -> str:
    """What a further device of each type is worth, by the prices of the last programme (`oef/audit.py`)."""
    reference = reference_type(instance.tenants)
    parts = []
    for number, name in enumerate(types):
        if not instance.capacity[number]:
            continue
        # Without a type that all can use, the units differ by tenant, so a sum means nothing.
        total = "" if reference is None else f"{_gain(math.fsum(row[number] for row in marginal.values()))} to all, "
        parts.append(f"{name}: worth {total}{_gain(marginal[tenant][number])} to this tenant")
    unit = "GPUs of its slowest type" if reference is None else f"{types[reference]} GPUs"
    return "; ".join((*parts, f"in {unit}"))


def _gain(value: float) -> str:
    """Three digits, without the solver's noise."""
    return f"{round(value, 6) + 0.0:.3g}"


def _counts(types: Sequence[str], counts: Sequence[float]) -> str:
    """Counts of GPUs by type as text, without types of which there are none: `0.67 k80, 1 v100`."""
    by_type: Mapping[str, float] = dict(zip(types, counts, strict=False))
    return ", ".join(f"{round(count, 2):g} {name}" for name, count in by_type.items() if count >= _NEGLIGIBLE)
