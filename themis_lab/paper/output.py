"""What an experiment leaves in its folder: NAME.csv, NAME.png, and the paper set beside us as text and as Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg

from themis_lab.paper.plotting import house_style
from themis_lab.paper.port import Comparison, Experiment, Findings
from themis_lab.paper.result_files import write_whole
from themis_lab.paper.statistics import Row

HEADINGS = ("what", "paper", "ours", "least to largest", "ours / paper")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The files of one experiment."""

    csv: Path
    png: Path
    text: Path
    markdown: Path


def write(experiment: Experiment, findings: Findings, folder: Path) -> Written:
    """Write all files of an experiment into a folder that is there; InputError when there is no room."""
    stem = folder / experiment.name
    files = Written(
        csv=stem.with_suffix(".csv"),
        png=stem.with_suffix(".png"),
        text=stem.with_suffix(".txt"),
        markdown=stem.with_suffix(".md"),
    )
    write_whole(files.csv, csv_text(findings.rows).encode())
    write_whole(files.text, table_text(experiment, findings).encode())
    write_whole(files.markdown, table_markdown(experiment, findings).encode())
    write_whole(files.png, png_bytes(experiment, findings))
    return files


def png_bytes(experiment: Experiment, findings: Findings) -> bytes:
    """Draw the figure; needs no display, and the same findings give the same bytes."""
    stream = io.BytesIO()
    with house_style():
        figure = experiment.draw(findings)
        FigureCanvasAgg(figure)
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def csv_text(rows: Sequence[Row]) -> str:
    """The rows as CSV. Numbers are written so that reading them back gives the same number."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def table_text(experiment: Experiment, findings: Findings) -> str:
    """The comparison for a terminal."""
    lines = [HEADINGS, *(_cells(line) for line in findings.comparisons)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    table = ["  ".join(_padded(line, widths)).rstrip() for line in lines]
    notes = [f"* {sentence}" for sentence in _sentences(findings)]
    return "\n".join([f"{experiment.name}: {experiment.title}", "", *table, *([""] if notes else []), *notes]) + "\n"


def table_markdown(experiment: Experiment, findings: Findings, *, heading: str = "##") -> str:
    """The comparison for a page: a heading, the figure, the table and a sentence on whatever differs.

    Args:
        experiment: Named in the heading.
        findings: What it found.
        heading: What the heading begins with.
    """
    head = [
        f"{heading} {experiment.name}: {experiment.title}",
        "",
        f"![{experiment.title}]({experiment.name}.png)",
    ]
    table = [
        f"| {' | '.join(HEADINGS)} |",
        f"|{'|'.join(['---', *['---:'] * (len(HEADINGS) - 1)])}|",
        *(f"| {' | '.join(_cells(line))} |" for line in findings.comparisons),
    ]
    notes = [f"- {sentence}" for sentence in _sentences(findings)]
    return "\n".join([*head, "", *table, *(["", *notes] if notes else [])]) + "\n"


def summary_markdown(done: Sequence[tuple[Experiment, Findings]], how: str) -> str:
    """All experiments on one page: the paper's claims beside what came out, why they differ, then one by one.

    Args:
        done: In the order of the page.
        how: A sentence on how the numbers came about: scale, seeds.
    """
    claims = [claim for _, findings in done for claim in findings.claims]
    causes = [cause for _, findings in done for cause in findings.causes]
    overview = [
        "## What to expect, in short",
        "",
        "| claim of the paper | here |",
        "|---|---|",
        *(f"| {claim.paper} | {claim.here} |" for claim in claims),
        "",
        "## Why it does not match",
        "",
        *(f"{place}. {cause}" for place, cause in enumerate(causes, start=1)),
    ]
    parts = [table_markdown(experiment, findings, heading="###") for experiment, findings in done]
    return "\n".join(["# Reproduction", "", how, "", *overview, "", "## The experiments", "", *parts])


def overview_text(done: Sequence[tuple[Experiment, Findings]]) -> str:
    """The paper's claims and what came out, for a terminal."""
    claims = [claim for _, findings in done for claim in findings.claims]
    return "\n".join(f"{claim.paper}\n    here: {claim.here}" for claim in claims) + "\n"


def document(experiment: Experiment, findings: Findings, files: Written | None) -> dict[str, object]:
    """The findings for `--json`, without the rows, which are in the CSV.

    What is not finite becomes null, and so do files that could not be written.
    """
    return {
        "name": experiment.name,
        "title": experiment.title,
        "comparisons": [_comparison(line) for line in findings.comparisons],
        "remarks": list(findings.remarks),
        "claims": [{"paper": claim.paper, "here": claim.here} for claim in findings.claims],
        "causes": list(findings.causes),
        "files": files
        and {"csv": str(files.csv), "png": str(files.png), "text": str(files.text), "md": str(files.markdown)},
    }


def number_text(value: float) -> str:
    """Three digits that count, without an exponent where that is readable."""
    if not math.isfinite(value):
        return "none"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _comparison(line: Comparison) -> dict[str, object]:
    return {
        "what": line.what,
        "paper": line.paper,
        "paper_value": line.paper_value,
        "ours": _finite(line.ours),
        "spread": None if line.spread is None else [_finite(value) for value in line.spread],
        "ratio": None if line.ratio is None else _finite(line.ratio),
        "remark": line.remark,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cells(line: Comparison) -> tuple[str, ...]:
    spread = "" if line.spread is None else " to ".join(number_text(value) for value in line.spread)
    ratio = "" if line.ratio is None else number_text(line.ratio)
    return line.what, line.paper, number_text(line.ours), spread, ratio


def _padded(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The first column to the left, numbers to the right."""
    return [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]


def _sentences(findings: Findings) -> list[str]:
    """Remarks on single lines name their line; then those on the whole."""
    return [*(f"{line.what}: {line.remark}" for line in findings.comparisons if line.remark), *findings.remarks]
