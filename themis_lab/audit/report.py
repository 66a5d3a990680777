"""The report of an audit: a document for programs, tables and markets for readers. Equal audits give equal bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from rm_plugin.arbiter.market_document import market_document
from themis_lab.audit.families import FAMILIES
from themis_lab.audit.fuzzing import MAX_SHRUNK, FuzzPlan, FuzzResult
from themis_lab.audit.sharing import WorldRho
from themis_lab.audit.tally import Tally


def document(plan: FuzzPlan, found: FuzzResult) -> dict[str, object]:
    """Return all results as a JSON document.

    Keys: `seed`, `markets` (drawn) and `markets_planned`, `ended` (`all`, `time`, `interrupted`), `families` (markets
    by family), `unsolved` (markets by family with a problem out of time or past a licence), `unreferenced` (problems by
    family that `optimality` did not compare, its reference being out of time), `properties` (`checked`, `violations`
    by name), `violations` (each with its shrunk market), `measures` (by measure and group of families),
    `sharing_incentive` (None unless worlds were played).
    """
    return {
        "seed": plan.seed,
        "markets": found.drawn.total(),
        "markets_planned": plan.markets,
        "ended": found.ended,
        "families": dict(found.drawn),
        "unsolved": {name: count for name, count in found.unsolved.items() if count},
        "unreferenced": {name: count for name, count in found.unreferenced.items() if count},
        "properties": {
            name: {"checked": found.checked[name], "violations": found.broken[name]}
            for name in _checked_names(plan, found)
        },
        "violations": [
            {
                "property": finding.property_name,
                "family": finding.family,
                "number": finding.number,
                "what": finding.what,
                "market": market_document(finding.market),
            }
            for finding in found.findings
        ],
        "measures": _measures(found),
        "sharing_incentive": _sharing(found.worlds),
    }


def _measures(found: FuzzResult) -> dict[str, dict[str, object]]:
    by_group: dict[str, dict[str, list[tuple[str, Tally]]]] = {}
    for (measure, family), tally in found.tallies.items():
        groups = by_group.setdefault(measure, {})
        groups.setdefault(FAMILIES[family].group, []).append((family, tally))
    return {
        measure: {group: _summary(tallies) for group, tallies in sorted(by_group[measure].items())}
        for measure in sorted(by_group)
    }


def _summary(tallies: Sequence[tuple[str, Tally]]) -> dict[str, object]:
    """Counts, quantiles and the worst value of a measure over families. The worst market is named `family:number`."""
    whole = Tally(values=[value for _, tally in tallies for value in tally.values])
    family, worst = max(tallies, key=lambda entry: entry[1].worst.value if entry[1].worst else 0.0)
    sample = worst.worst
    return {
        "samples": whole.samples,
        "above_0": len(whole.above_0),
        "median": whole.median,
        "median_above_0": whole.median_above_0,
        "p95": whole.p95,
        "worst": 0.0 if sample is None else sample.value,
        "worst_what": "" if sample is None else sample.what,
        "worst_market": f"{family}:{worst.worst_number}",
        "market": None if worst.worst_market is None else market_document(worst.worst_market),
    }


def _sharing(worlds: Sequence[WorldRho]) -> dict[str, object] | None:
    if not worlds:
        return None
    rho = sorted(value for world in worlds for value in world.rho.values())
    worst = max(worlds, key=lambda world: world.worst)
    return {
        "worlds": len(worlds),
        "apps": len(rho),
        "rounds": sum(world.rounds for world in worlds),
        "median_rho": rho[len(rho) // 2],
        "max_rho": rho[-1],
        "max_rho_world": worst.number,
        "share_above_1": sum(value > 1.0 for value in rho) / len(rho),
        "share_above_1_05": sum(value > 1.05 for value in rho) / len(rho),
    }


def text(plan: FuzzPlan, found: FuzzResult) -> str:
    """The same results as text."""
    report = document(plan, found)
    parts = [
        f"{found.drawn.total()} of {plan.markets} markets of {len(found.drawn)} families, seed {plan.seed};"
        f" ended: {found.ended}",
        _table(("property", "markets", "violations"), _property_rows(plan, found)),
    ]
    if found.unsolved.total():
        parts.append(f"not solved to the end: {report['unsolved']}")
    if found.unreferenced.total():
        parts.append(f"problems not compared by optimality, the reference out of time: {report['unreferenced']}")
    if found.tallies:
        columns = ("measure", "families", "samples", "above 0", "median >0", "95 %", "worst", "worst market")
        parts.append(_table(columns, _measure_rows(_measures(found))))
    if found.worlds:
        parts.append(f"sharing incentive: {json.dumps(report['sharing_incentive'])}")
    parts += [_violation(plan, found)] if found.findings else []
    return "\n\n".join(parts) + "\n"


def _property_rows(plan: FuzzPlan, found: FuzzResult) -> Iterable[tuple[str, ...]]:
    return [(name, str(found.checked[name]), str(found.broken[name])) for name in _checked_names(plan, found)]


def _checked_names(plan: FuzzPlan, found: FuzzResult) -> list[str]:
    """The names of the properties, and of the measures that raised an error."""
    return [*plan.properties, *(name for name in plan.measures if found.broken[name])]


def _measure_rows(measures: Mapping[str, Mapping[str, object]]) -> Iterable[tuple[str, ...]]:
    for measure, groups in measures.items():
        for group, summary in groups.items():
            assert isinstance(summary, dict)
            yield (
                measure,
                group,
                str(summary["samples"]),
                str(summary["above_0"]),
                f"{summary['median_above_0']:.3g}",
                f"{summary['p95']:.3g}",
                f"{summary['worst']:.3g}",
                summary["worst_market"],
            )


def _violation(plan: FuzzPlan, found: FuzzResult) -> str:
    lines = []
    for finding in found.findings:
        lines.append(f"VIOLATION of {finding.property_name} in {finding.family}:{finding.number}: {finding.what}")
        lines.append(json.dumps(market_document(finding.market)))
    hidden = sum(max(0, found.broken[name] - MAX_SHRUNK) for name in _checked_names(plan, found))
    return "\n".join([*lines, *([f"and {hidden} more"] if hidden else [])])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Format columns as wide as necessary: text left-aligned, numbers right-aligned."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if lines[-1][column][:1].isalpha() else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
