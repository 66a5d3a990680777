"""The benchmark of OEF's programmes: CPU time by size, against the full programme and against peers, in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from rm_plugin.policies.oef.cooperative import cooperative
from rm_plugin.policies.oef.evaluator import Rule
from rm_plugin.policies.oef.fair_share import FairShare
from rm_plugin.policies.oef.registry import rule_named
from rm_plugin.policies.oef.speedup import Speedups, normalise
from rm_plugin.solvers.highs_linear import HighsModel
from themis.values import Value
from themis_lab.bench.oef_peers import objective_of, solve_as_peer
from themis_lab.simulator.workloads.speedups import random_speedups

MODES = ("noncooperative", "cooperative", "gavel_capped")
"""The rules that are measured: OEF's two programmes, and Gavel's, for which only a peer's time is of interest."""

LIMITS_S = {("cooperative", 100): 0.3, ("cooperative", 300): 10.0, ("noncooperative", 300): 0.05}
"""CPU seconds that a programme on ten types should not exceed, by mode and tenants."""


Timed = tuple[float, FairShare]
"""CPU seconds of a solve, and its result."""


class OefBenchPlan(Value, frozen=True, kw_only=True):
    """What to measure.

    Attributes:
        sizes: Numbers of tenants.
        types: GPU types.
        repeats: Instances of each size; the least time counts, because other processes only add to it.
        full: The largest size at which the full cooperative programme is solved too.
        peers: The largest size at which the peers' programmes are solved too; 0 for none.
        seed: Of the first instance.
    """

    sizes: tuple[int, ...]
    types: int
    repeats: int
    full: int
    peers: int
    seed: int


class OefRow(Value, frozen=True, kw_only=True):
    """One mode at one size.

    Attributes:
        mode: The programme.
        tenants: Its size.
        cpu_s: CPU seconds, the least over the instances.
        limit_s: What it should not exceed; None without a limit.
        rows: Constraints when it was solved, of the instance with the least time.
        solves: How often the programme was solved for it.
        full_s: CPU seconds of the programme with all envy constraints, on the same instance; None if not measured.
        ratio: `full_s` over `cpu_s`, the mean over the instances.
        difference: The largest relative difference of the two totals.
        peer_s: CPU seconds of the peer's programme on the same instance (`oef_peers`); None if not measured.
        peer_ratio: `peer_s` over `cpu_s`, the mean over the instances.
        peer_difference: The largest relative difference of the two optima.
    """

    mode: str
    tenants: int
    cpu_s: float
    limit_s: float | None
    rows: int
    solves: int
    full_s: float | None = None
    ratio: float | None = None
    difference: float | None = None
    peer_s: float | None = None
    peer_ratio: float | None = None
    peer_difference: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether it took longer than its limit."""
        return self.limit_s is not None and self.cpu_s > self.limit_s


def run_plan(plan: OefBenchPlan) -> Iterator[OefRow]:
    """Measure every size under both modes, and with peers also under capped Gavel.

    Raises:
        InputError: The plan has peers, and their package is not installed.
    """
    if plan.peers:
        # The first problem loads parts of cvxpy.
        solve_as_peer("noncooperative", normalise(random_speedups(plan.seed, 2, 2)))
    for tenants in plan.sizes:
        instances = [
            normalise(random_speedups(plan.seed + place, tenants, plan.types)) for place in range(plan.repeats)
        ]
        for mode in MODES:
            with_peer = tenants <= plan.peers
            if mode == "gavel_capped" and not with_peer:
                continue
            timed = [_timed(rule_named(mode, HighsModel), each) for each in instances]
            cpu_s, fair = min(timed, key=lambda pair: pair[0])
            limit_s = LIMITS_S.get((mode, tenants)) if plan.types == 10 else None
            row = OefRow(
                mode=mode, tenants=tenants, cpu_s=cpu_s, limit_s=limit_s, rows=fair.constraints, solves=fair.solves
            )
            if mode == "cooperative" and tenants <= plan.full:
                row = _with_full(row, timed)
            yield _with_peer(row, timed) if with_peer else row


def _with_full(row: OefRow, timed: Sequence[Timed]) -> OefRow:
    whole = partial(cooperative, make_model=HighsModel, generate_rows=False)
    full = [_timed(whole, fair.speedups) for _, fair in timed]
    pairs = list(zip(timed, full, strict=True))
    return replace(
        row,
        full_s=min(seconds for seconds, _ in full),
        ratio=statistics.fmean(slow / quick for (quick, _), (slow, _) in pairs),
        difference=max(abs(one.total / two.total - 1) for (_, one), (_, two) in pairs),
    )


def _with_peer(row: OefRow, timed: Sequence[Timed]) -> OefRow:
    pairs = [(each, solve_as_peer(row.mode, each[1].speedups)) for each in timed]
    return replace(
        row,
        peer_s=min(peer.cpu_s for _, peer in pairs),
        peer_ratio=statistics.fmean(peer.cpu_s / quick for (quick, _), peer in pairs),
        peer_difference=max(abs(objective_of(row.mode, fair) / peer.objective - 1) for (_, fair), peer in pairs),
    )


def _timed(solve: Rule, speedups: Speedups) -> Timed:
    began_s = time.process_time()
    fair = solve(speedups)
    return time.process_time() - began_s, fair


def table(rows: list[OefRow]) -> str:
    """The rows for readers."""
    titles = ("mode", "tenants", "CPU s", "limit s", "rows", "solves", "full s", "ratio", "difference")
    lines: list[tuple[str, ...]] = [(*titles, "peer s", "ratio", "difference")]
    for row in rows:
        numbers = (row.full_s, row.ratio, row.difference, row.peer_s, row.peer_ratio, row.peer_difference)
        limit, *measured = ("-" if number is None else f"{number:.3g}" for number in (row.limit_s, *numbers))
        limit += ", over" if row.is_over else ""
        lines.append((row.mode, str(row.tenants), f"{row.cpu_s:.4f}", limit, str(row.rows), str(row.solves), *measured))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def document(plan: OefBenchPlan, rows: list[OefRow]) -> dict[str, object]:
    """The plan and the rows as a JSON document."""
    return {"plan": msgspec.to_builtins(plan), "rows": [msgspec.to_builtins(row) for row in rows]}
