"""The report of a live experiment: rows as CSV, figures, and tables for programs and for readers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from themis_lab.paper.live.findings import Shown, View
from themis_lab.paper.live.folder import ExperimentFolder
from themis_lab.paper.live.page import page
from themis_lab.paper.live.plan import Experiment
from themis_lab.paper.live.results import Results
from themis_lab.paper.live.summary import failures, how_it_was_run, over_figures
from themis_lab.paper.live.tables import document, section
from themis_lab.paper.live.views.registry import VIEWS
from themis_lab.paper.report_frame import csv_text, figure_png


def write_report(experiment: Experiment, folder: ExperimentFolder, results: Results) -> None:
    """Write results.csv, a PNG for each figure, report.json, report.md and report.html."""
    (folder.root / "results.csv").write_text(csv_text(results.rows), encoding="utf-8", newline="")
    note = over_figures(experiment)
    shown = [_show(view, results, folder.root, note) for view in VIEWS[results.workload]]
    report = _document(experiment, results, shown)
    folder.report.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    folder.markdown.write_text(markdown_page(experiment, results, shown), encoding="utf-8")
    folder.page.write_text(page(experiment, results, shown), encoding="utf-8")


def markdown_page(experiment: Experiment, results: Results, shown: Sequence[Shown]) -> str:
    """The whole report as Markdown."""
    parts = [
        f"## Workload {experiment.workload[1:]}, {experiment.scale.name}",
        *how_it_was_run(experiment, results),
        *(f"**FAILED** {text}" for text in failures(results)),
        *(section(each).markdown("###") for each in shown if each.lines),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _show(view: View, results: Results, root: Path, note: str) -> Shown:
    png = figure_png(lambda: view.draw(results), note)
    path = root / f"{view.name}.png" if png else None
    if path and png:
        path.write_bytes(png)
    return Shown(view=view, lines=view.lines(results), figure=path)


def _document(experiment: Experiment, results: Results, shown: Sequence[Shown]) -> dict[str, Any]:
    return {
        "workload": results.workload,
        "scale": experiment.scale.name,
        "seed": experiment.seed,
        "time_scale": experiment.scale.time_scale,
        "lease_s": experiment.scale.lease.duration_s,
        "emulated": True,
        "policies": {policy: _of_a_run(report) for policy, report in results.reports.items()},
        "unfinished": {policy: list(names) for policy, names in results.unfinished.items() if names},
        "failures": failures(results),
        "views": {
            each.view.name: {"title": each.view.title, "lines": [document(line) for line in each.lines]}
            for each in shown
        },
    }


def _of_a_run(report: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("ending", "wall_s", "max_rho", "rounds", "overheads", "utilisation", "processes")
    audit = report["invariants"]
    return {key: report[key] for key in keys} | {
        # Runs recorded before the environment was kept have none.
        "environment": report.get("environment", {}),
        "checks": sum(audit["checks"].values()),
        "violations": list(audit["violations"]),
    }
