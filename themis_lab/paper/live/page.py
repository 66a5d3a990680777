"""The HTML page of a live experiment. It needs no other file, and links to the pages of the runs."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from themis_lab.paper.live.findings import Shown
from themis_lab.paper.live.plan import Experiment
from themis_lab.paper.live.results import Results
from themis_lab.paper.live.summary import failures, how_it_was_run
from themis_lab.paper.live.tables import section
from themis_lab.testbed.outcome import shown as number
from themis_lab.testbed.page import html_page
from themis_lab.testbed.page_tables import percent, table, text


def page(experiment: Experiment, results: Results, shown: Sequence[Shown]) -> str:
    """The whole page."""
    sections = [_heading(experiment, results), _runs(results), *(_section(each) for each in shown if each.lines)]
    return html_page(f"{experiment.name}: the testbed experiment", sections)


def _heading(experiment: Experiment, results: Results) -> str:
    failed = failures(results)
    verdict = "failed" if failed else "passed"
    scale = f"<small>at the scale {text(experiment.scale.name)}</small>"
    return (
        f"<header><h1>Testbed experiment, workload {text(experiment.workload[1:])} {scale} "
        f'<span class="verdict {verdict}">{verdict}</span></h1>'
        + "".join(f"<p>{text(sentence)}</p>" for sentence in how_it_was_run(experiment, results))
        + "".join(f'<p class="failure">{text(line)}</p>' for line in failed[:20])
        + "</header>"
    )


def _runs(results: Results) -> str:
    headings = (
        "policy",
        "max rho (themis)",
        "rounds",
        "GPU time leased",
        "wall time, s",
        "checks",
        "violations",
        "processes",
    )
    rows = [
        (f'<a href="runs/{text(policy)}/report.html">{text(policy)}</a>', *_figures(report))
        for policy, report in results.reports.items()
    ]
    return f"<section><h2>Runs</h2>{_table(headings, rows)}</section>"


def _figures(report: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        number(report["max_rho"]["themis"], 2),
        str(report["rounds"]),
        percent(report["utilisation"]["leased"]),
        number(report["wall_s"], 0),
        f"{sum(report['invariants']['checks'].values()):,}",
        str(len(report["invariants"]["violations"])),
        str(report["processes"]["peak_count"]),
    )


def _section(shown: Shown) -> str:
    figure = ""
    if shown.figure is not None:
        data = base64.b64encode(shown.figure.read_bytes()).decode("ascii")
        image = f'<img alt="{text(shown.view.title)}" src="data:image/png;base64,{data}">'
        figure = f'<figure class="plot">{image}</figure>'
    compared = section(shown)
    rows = [tuple(text(cell) for cell in row) for row in compared.rows]
    remarks = "".join(f"<p>{text(remark)}</p>" for remark in compared.remarks)
    table_html = _table(compared.headings, rows)
    return f"<section><h2>{text(compared.heading)}</h2>{figure}{table_html}{remarks}</section>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML; the first column is text, all others are numbers."""
    cells_of = [[(cell, "number" if place else "") for place, cell in enumerate(row)] for row in rows]
    return table(headings, cells_of, first_number=1)
