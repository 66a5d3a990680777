"""Measures of apps and of the service, computed from events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.cluster import Level
from themis_lab.testbed.events import Event
from themis_lab.testbed.rounds import granted_gpus
from themis_lab.testbed.spans import LeaseSpan, TaskSpan


def summary(values: Iterable[float]) -> dict[str, float | int | None]:
    """Median, 95th percentile (nearest rank) and count. The first two are None without values."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return {"median": None, "p95": None, "count": 0}
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {"median": median, "p95": ordered[math.ceil(0.95 * len(ordered)) - 1], "count": len(ordered)}


def gpu_time_s(leases: Iterable[LeaseSpan], end_s: float) -> float:
    """GPU seconds of leases, up to `end_s`."""
    return sum(max(0.0, min(lease.end_s, end_s) - lease.start_s) for lease in leases)


def gpu_time_by_device(leases: Iterable[LeaseSpan], end_s: float, device_of: Mapping[str, str]) -> dict[str, float]:
    """Device seconds of leases up to `end_s`, by device type. `device_of` has the type of each machine."""
    seconds: dict[str, float] = {}
    for lease in leases:
        device = device_of[machine_of(lease.gpu)]
        seconds[device] = seconds.get(device, 0.0) + gpu_time_s([lease], end_s)
    return seconds


def machine_of(gpu: str) -> str:
    """The machine of a GPU, which events write as MACHINE/INDEX."""
    return gpu.rpartition("/")[0]


def placement_score(tasks: Sequence[TaskSpan], slowdown: Slowdown, end_s: float) -> float | None:
    """Mean of 1/S over the GPU time of tasks, with S at each gang's level. Returns None if nothing ran.

    A gang of one GPU does not communicate: its S is 1 everywhere. For example, 4 GPUs for 100 s in one machine (S = 1)
    and 4 GPUs for 300 s over racks (S = 2) score (400 * 1 + 1200 * 0.5) / 1600 = 0.625.
    """
    total = score = 0.0
    for span in tasks:
        gpu_s = len(span.gpus) * max(0.0, min(span.end_s, end_s) - span.start_s)
        level = Level.parse(span.level)
        total += gpu_s
        score += gpu_s / (slowdown.at(level) if len(span.gpus) > 1 else 1.0)
    return score / total if total > 0 else None


def slowdown_or_crude(slowdown: Slowdown | None) -> Slowdown:
    """The slowdowns that an app stated, or `CRUDE_SLOWDOWN` if it stated none."""
    return CRUDE_SLOWDOWN if slowdown is None else slowdown


def overheads(events: Sequence[Event]) -> dict[str, dict[str, float | int | None]]:
    """Costs of decisions and restarts: bids, auctions, rounds in milliseconds; resizes, checkpoints in seconds."""
    bids = [
        number(bid.get("prepare_ms"))
        for event in events
        if event.kind == "round_bids"
        for bid in event.detail.get("bids", {}).values()
    ]
    return {
        "bid_ms": summary(bids),
        "auction_ms": summary(_numbers(events, "round_auctioned", "solve_ms")),
        "round_ms": summary(_numbers(events, "round_ended", "duration_ms")),
        "resize_s": summary(_numbers(events, "resize", "seconds")),
        "checkpoint_s": summary(_numbers(events, "checkpoint", "seconds")),
        "first_step_s": summary(_numbers(events, "first_step", "since_start_s")),
        "cut_short_s": summary(_numbers(events, "start_cut_short", "seconds")),
    }


def share_by_leftovers(events: Iterable[Event]) -> float | None:
    """Share of all granted GPUs that came as leftovers instead of from the auction. Returns None without grants."""
    auction = leftovers = 0
    for event in events:
        if event.kind == "round_granted":
            auction += granted_gpus(event.detail, "auction").total()
            leftovers += granted_gpus(event.detail, "leftovers").total()
    return leftovers / (auction + leftovers) if auction + leftovers else None


def empty_bids(events: Iterable[Event]) -> dict[str, int]:
    """Numbers of bids, of bids without a row, of bids whose rows a cap reduced, and of apps that sent none in time."""
    counts = {"bids": 0, "empty": 0, "cut": 0, "absent": 0}
    for event in events:
        if event.kind == "round_bids":
            bids: Mapping[str, Mapping[str, Any]] = event.detail.get("bids", {})
            counts["bids"] += len(bids)
            counts["empty"] += sum(not bid.get("rows") for bid in bids.values())
            counts["cut"] += sum(bool(bid.get("rows_dropped")) for bid in bids.values())
            counts["absent"] += len(event.detail.get("absent", {}))
    return counts


def rho_series(events: Iterable[Event]) -> dict[str, list[tuple[float, float]]]:
    """Finish-time fairness by app in each round: (seconds since the epoch, rho), without unknown values."""
    series: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event.kind == "round_reported":
            for app_id, text in event.detail.get("rho", {}).items():
                value = number(text)
                if math.isfinite(value) and value > 0:
                    series.setdefault(str(app_id), []).append((event.time_s, value))
    return series


def number(value: Any) -> float:
    """Parse a number of an event. JSON has no infinity or NaN, so events write these as text, and None if unknown."""
    return math.nan if value is None else float(value)


def _numbers(events: Iterable[Event], kind: str, key: str) -> list[float]:
    return [number(event.detail.get(key)) for event in events if event.kind == kind]
