"""The result of `bench resize`: medians and 95th percentiles by phase, as a table and as a document for programs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence

from msgspec import to_builtins

from themis.values import Value
from themis_lab.bench.resize_phases import FREE_PHASES, START_STEPS, STEP_PHASES, Change
from themis_lab.bench.resize_run import EngineName, ResizeBenchPlan, Round
from themis_lab.testbed.measures import summary

REACH_RATIO = 1.25
PAPER = {"resize_median_s": 35.0, "resize_p95_s": 50.0, "checkpoint_least_s": 5.0, "checkpoint_most_s": 10.0}
"""Themis (NSDI'20), section 8.4: on its testbed with real GPUs and models."""

Statistic = Mapping[str, float | int | None]
_COLUMNS = ("free", "step", "bare")
_HEADS = ("phase, s", "warning to free", "p95", "grant to step", "p95", "bare process", "p95")
_PHASES = (*FREE_PHASES, *(phase for phase in STEP_PHASES if phase not in FREE_PHASES))


class Result(Value, frozen=True, kw_only=True):
    """The statistics over all rounds.

    Attributes:
        phases: By column (`free`, `step`, `bare`) and phase, `total` among them: median, p95, count; in seconds.
        step_ratio: Median over the rounds of the time from grant to first step by that of the bare processes.
        startup_ratio: The same without what stopping the former tasks took.
        over_reach_s: Median of the start minus 1.25 times the bare one and, on YARN, one heartbeat. Negative if within
            the aim.
    """

    phases: Mapping[str, Mapping[str, Statistic]]
    step_ratio: float | int | None
    startup_ratio: float | int | None
    over_reach_s: float | int | None

    @property
    def reached(self) -> bool | None:
        """Whether the aim is reached. Returns None if nothing was measured."""
        return None if self.over_reach_s is None else self.over_reach_s <= 0.0


def result(plan: ResizeBenchPlan, rounds: Sequence[Round]) -> Result:
    """The statistics of a plan's rounds."""
    all_changes = [change for each in rounds for change in each.changes]
    phases: dict[str, Mapping[str, Statistic]] = {
        "free": _by_phase([change for change in all_changes if change.kind == "free"], FREE_PHASES),
        "step": _by_phase([change for change in all_changes if change.kind == "step"], STEP_PHASES),
        "bare": {
            **{step: summary(each.bare.seconds[step] for each in rounds) for step in START_STEPS},
            "total": summary(each.bare.total_s for each in rounds),
        },
    }
    beat_s = plan.heartbeat_s if plan.engine is EngineName.YARN else 0.0
    pairs = [(change, each.bare.total_s) for each in rounds for change in each.changes if change.kind == "step"]
    return Result(
        phases=phases,
        step_ratio=summary(change.total_s / bare_s for change, bare_s in pairs)["median"],
        startup_ratio=summary(change.startup_s / bare_s for change, bare_s in pairs)["median"],
        over_reach_s=summary(change.startup_s - REACH_RATIO * bare_s - beat_s for change, bare_s in pairs)["median"],
    )


def document(plan: ResizeBenchPlan, rounds: Sequence[Round]) -> dict[str, object]:
    """The JSON document (docs/reference/benchmarks.md)."""
    found = result(plan, rounds)
    return {
        "benchmark": "resize",
        "engine": str(plan.engine),
        "program": str(plan.program),
        "repeat": plan.repeat,
        "heartbeat_s": plan.heartbeat_s,
        "environment": {"python": platform.python_version(), "cpus": os.cpu_count(), "load_1min": os.getloadavg()[0]},
        "paper": PAPER,
        "reach_ratio": REACH_RATIO,
        **to_builtins(found),
        "reached": found.reached,
        "rounds": [to_builtins(each) for each in rounds],
    }


def table(plan: ResizeBenchPlan, rounds: Sequence[Round]) -> str:
    """The table, one line per phase, then ratios, the aim and the paper's numbers."""
    found = result(plan, rounds)
    lines = [_HEADS, *(_cells(phase, found) for phase in (*_PHASES, "total"))]
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEADS))]
    rows = [
        "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(line, widths, strict=True)) for line in lines)
    ]
    return "\n".join([*(row.rstrip() for row in rows), *_notes(plan, found, [each.load_1min for each in rounds])])


def _by_phase(found: Sequence[Change], phases: Sequence[str]) -> dict[str, Statistic]:
    return {
        **{phase: summary(change.seconds[phase] for change in found) for phase in phases},
        "total": summary(change.total_s for change in found),
    }


def _cells(phase: str, found: Result) -> tuple[str, ...]:
    statistics = [found.phases[column].get(phase) for column in _COLUMNS]
    return (phase, *(_text(None if each is None else each[name]) for each in statistics for name in ("median", "p95")))


def _text(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _notes(plan: ResizeBenchPlan, found: Result, loads: Iterable[float]) -> list[str]:
    beat = f" and one heartbeat ({plan.heartbeat_s:g} s)" if plan.engine is EngineName.YARN else ""
    verdict = {True: "reached", False: "missed", None: "not measured"}[found.reached]
    beyond = "" if found.over_reach_s is None else f", by {abs(found.over_reach_s):.2f} s"
    return [
        f"ours / bare: {_text(found.step_ratio)} from the grant, "
        f"{_text(found.startup_ratio)} once the former tasks are gone",
        f"aim, once the former tasks are gone: {REACH_RATIO:g} times bare{beat}: {verdict}{beyond}",
        f"the paper, on its testbed: resize {PAPER['resize_median_s']:g} s median, {PAPER['resize_p95_s']:g} s p95; "
        f"checkpoint {PAPER['checkpoint_least_s']:g} to {PAPER['checkpoint_most_s']:g} s",
        f"load of the machine (1 min) after the rounds: {', '.join(f'{load:.1f}' for load in loads)}",
    ]
