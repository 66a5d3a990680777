"""The report of an experiment: its rows as CSV, its figures, and its tables for programs and for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiment.findings import Line, View
from experiment.folder import ExperimentFolder
from experiment.plan import Experiment
from experiment.results import PREDICTIONS, Results
from experiment.tables import document, markdown
from experiment.views.registry import VIEWS
from simulator.experiments.output import csv_text
from testbed.outcome import failed_conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A view with what it shows; `figure` is None for a table only."""

    view: View
    lines: Sequence[Line]
    figure: Path | None


def write_report(experiment: Experiment, folder: ExperimentFolder, results: Results) -> dict[str, Any]:
    """Write results.csv, a PNG a figure, report.json, report.md and report.html; returns the report."""
    (folder.root / "results.csv").write_text(csv_text(results.rows), encoding="utf-8", newline="")
    shown = [_show(view, results, folder.root) for view in VIEWS[results.workload]]
    report = _document(experiment, results, shown)
    folder.report.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    folder.markdown.write_text(markdown_page(experiment, results, shown), encoding="utf-8")
    from experiment.page import page

    folder.page.write_text(page(experiment, results, shown), encoding="utf-8")
    return report


def how_it_was_run(experiment: Experiment, results: Results) -> tuple[str, ...]:
    """Sentences on what was run, on what, and what in it is emulated."""
    scale, arriving = experiment.scale, experiment.arriving
    trained = [arrival.spec.name for arrival in arriving if not arrival.spec.replay]
    jobs = sum(len(arrival.spec.jobs) for arrival in arriving)
    last_s = max(arrival.at_s for arrival in arriving)
    replay = (
        f"The other {len(arriving) - len(trained)} are replayed: real processes, leases and checkpoints, but they "
        f"follow measured speeds, {scale.time_scale:g} times faster than measured, and recorded loss curves."
    )
    return (
        f"Workload {experiment.workload[1:]} at the scale {scale.name}: {scale.about}.",
        f"{len(arriving)} apps with {jobs} jobs, the last of which comes after {last_s:.0f} s, on "
        f"{experiment.cluster.gpus} emulated GPUs in {len(experiment.cluster.machines)} machines: leases, auctions, "
        "app masters, task processes and checkpoints are real, the cards are not.",
        f"{', '.join(trained) or 'No app'} {'train' if len(trained) > 1 else 'trains'} with TensorFlow. {replay}",
        f"Leases of {scale.lease.duration_s:g} s; seed {experiment.seed}; one run a policy, of "
        f"{_range([report['wall_s'] for report in results.reports.values()])} s.",
        f"The simulator's column is the median of {PREDICTIONS} runs with the same arrivals, settings and apps, to "
        "which starts, stops and checkpoints take as long as the testbed's run measured.",
    )


def failures(results: Results) -> list[str]:
    """What went wrong in the runs, a line each."""
    return [
        f"{policy}: {condition}"
        for policy, report in results.reports.items()
        for condition in failed_conditions(dict(report))
    ]


def markdown_page(experiment: Experiment, results: Results, shown: Sequence[Shown]) -> str:
    """The whole report as Markdown."""
    parts = [
        f"## Workload {experiment.workload[1:]}, {experiment.scale.name}",
        *how_it_was_run(experiment, results),
        *(f"**FAILED** {text}" for text in failures(results)),
        *(
            markdown(f"{each.view.name}: {each.view.title}", each.figure.name if each.figure else "", each.lines)
            for each in shown
            if each.lines
        ),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _show(view: View, results: Results, root: Path) -> Shown:
    from simulator.experiments.plotting import house_style

    lines = view.lines(results)
    path = root / f"{view.name}.png"
    with house_style():
        figure = view.draw(results)
        if figure is None:
            return Shown(view=view, lines=lines, figure=None)
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        FigureCanvasAgg(figure)
        figure.savefig(path, format="png", metadata={"Software": None})
    return Shown(view=view, lines=lines, figure=path)


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
        "checks": sum(audit["checks"].values()),
        "violations": list(audit["violations"]),
    }


def _range(values: Sequence[float]) -> str:
    low, high = round(min(values)), round(max(values))
    return f"{low}" if low == high else f"{low} to {high}"
