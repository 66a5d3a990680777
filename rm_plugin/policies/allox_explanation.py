"""Why an app has its devices under AlloX, in words: its tenant, the tenant's progress, its times by type, its jobs.

What its next job waits for, and until when, is in `Decision.waits`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from rm_plugin.policies.allox.values import UserState
from rm_plugin.policies.oef_explanation import tenant_text
from rm_plugin.policies.port import Explanation

_MAX_JOBS = 3
"""Running jobs that are named; the others are counted."""


def explain_app(
    app_id: str,
    *,
    tenants: Mapping[str, str],
    times_s: Mapping[str, Mapping[str, float]],
    progress: Mapping[str, UserState] | None,
    running: Mapping[str, tuple[str, float]],
    at_least: Collection[str] = (),
    memory_mb: Mapping[str, float] = MappingProxyType({}),
) -> Explanation:
    """Return labelled lines on an app, from what the policy remembers. Empty if it does not know the app yet.

    Example: Tenant: user ann, with a2. Progress: 0.5, number 2 of 3 tenants: the least goes first. Time by type: gpu
    10 s, cpu 15 s; best on gpu. Runs: a1-0 on g0, 10 s from its start.

    Args:
        app_id: The app.
        tenants: The tenant of each app.
        times_s: Estimated length of an app's next job by device type, by app.
        progress: The state of tenants that have some; None if the policy does not use progress.
        running: By running job of the app its device, and its estimated length in seconds from its start.
        at_least: The device types on which the app's sample was cut, so that its time is a lower bound.
        memory_mb: The most memory that the app's sample was seen to use by device type; 0 if it was not measured.
    """
    if app_id not in tenants:
        return ()
    lines = [("Tenant", tenant_text(app_id, tenants, tenants[app_id]))]
    if progress is not None:
        lines.append(("Progress", _progress(tenants[app_id], set(tenants.values()), progress)))
    if times := times_s.get(app_id):
        each = ", ".join(
            f"{name} {'at least ' if name in at_least else ''}{time_s:.4g} s" for name, time_s in times.items()
        )
        best = min(times, key=lambda name: times[name])
        lines.append(("Time by type", f"{each}; best on {best}" if len(times) > 1 else each))
    if peaks := [f"{name} {peak:.0f} MB" for name, peak in memory_mb.items() if peak]:
        lines.append(("Memory of its sample", ", ".join(peaks)))
    if running:
        jobs = [f"{job_id} on {device}, {time_s:.4g} s from its start" for job_id, (device, time_s) in running.items()]
        others = [f"{len(jobs) - _MAX_JOBS} more"] if len(jobs) > _MAX_JOBS else []
        lines.append(("Runs", "; ".join([*jobs[:_MAX_JOBS], *others])))
    return tuple(lines)


def _progress(tenant: str, tenants: set[str], progress: Mapping[str, UserState]) -> str:
    """A tenant's progress and rank. Ties go by the last start, as in the decision."""
    states = {name: progress.get(name, UserState()) for name in tenants}
    ranked = sorted(tenants, key=lambda name: (states[name].progress, states[name].last_start_s, name))
    rank = f", number {ranked.index(tenant) + 1} of {len(ranked)} tenants: the least goes first"
    return f"{states[tenant].progress:.4g}" + (rank if len(ranked) > 1 else "")
