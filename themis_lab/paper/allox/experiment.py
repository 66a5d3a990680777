"""What every experiment on AlloX has in common: its runs, and one colour per policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from themis_lab.paper.allox.driver import Profiling, RunResult, run
from themis_lab.paper.allox.policies import ALPHA, NEEDS_NO_ESTIMATES, policy_named
from themis_lab.paper.port import Scale
from themis_lab.paper.statistics import Summary, summary
from themis_lab.simulator.workloads.interchangeable import Trace, large

JOBS_PER_USER: Mapping[Scale, int] = {Scale.QUICK: 100, Scale.PAPER: 1000}
"""Jobs of each of the ten users. The load is the same at both scales."""

COLOURS: Mapping[str, str] = {
    "allox": "#c0392b",
    "allox_plus": "#e08e1b",
    "srpt": "#7f8c8d",
    "sjf": "#2bb3b1",
    "jsq": "#d4a72c",
    "bf": "#59a14f",
    "drfa": "#4c9f70",
    "es": "#8e6bbf",
    "drfs": "#9c6644",
    "drff": "#2e86ab",
}


@cache
def large_trace(scale: Scale, seed: int) -> Trace:
    """The workload of the simulations."""
    return large(seed, JOBS_PER_USER[scale])


@cache
def large_run(
    scale: Scale, seed: int, policy: str, alpha: float = ALPHA, sigma: float = 0.0, overhead: float = 0.0
) -> RunResult:
    """A run of the simulations' workload; several figures show the same run."""
    trace = large_trace(scale, seed)
    profiling = None if policy in NEEDS_NO_ESTIMATES else Profiling(sigma=sigma, overhead=overhead)
    return run(trace, policy_named(policy, trace, alpha), seed, profiling)


def over_seeds(seeds: int, value: Callable[[int], float]) -> Summary:
    """A quantity over seeds from 1 on."""
    return summary(value(seed) for seed in range(1, seeds + 1))


def ordered(summaries: Mapping[str, Summary]) -> str:
    """Names by their medians, the smallest first."""
    names: Iterable[str] = sorted(summaries, key=lambda name: summaries[name].median)
    return " < ".join(f"{name} {summaries[name].median:.4g}" for name in names)
