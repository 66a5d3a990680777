"""The files of a simulated experiment: NAME.csv, NAME.png, and the comparison with the paper as text and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from themis.values import Value
from themis_lab.paper.port import Comparison, Findings, PaperClaim, Shown
from themis_lab.paper.report_frame import ReportSection, csv_text, figure_png, finite, number_text
from themis_lab.paper.result_files import write_whole

HEADINGS = ("what", "paper", "ours", "least to largest", "ours / paper")


class Written(Value, frozen=True, kw_only=True):
    """The files of one experiment."""

    csv: Path
    png: Path
    text: Path
    markdown: Path


def write(experiment: Shown, findings: Findings, folder: Path) -> Written:
    """Write all files of an experiment into an existing folder. Raises InputError if a file cannot be written."""
    stem = folder / experiment.name
    files = Written(
        csv=stem.with_suffix(".csv"),
        png=stem.with_suffix(".png"),
        text=stem.with_suffix(".txt"),
        markdown=stem.with_suffix(".md"),
    )
    write_whole(files.csv, csv_text(findings.rows).encode())
    compared = section(experiment, findings)
    write_whole(files.text, compared.text().encode())
    write_whole(files.markdown, compared.markdown("##").encode())
    png = figure_png(lambda: experiment.draw(findings))
    assert png is not None, "every experiment has a figure"
    write_whole(files.png, png)
    return files


def section(experiment: Shown, findings: Findings) -> ReportSection:
    """The table of an experiment, usually its comparison with the paper. Remarks on single lines come first."""
    headings, *rows = findings.table or (HEADINGS, *(_cells(line) for line in findings.comparisons))
    return ReportSection(
        name=experiment.name,
        title=experiment.title,
        figure=f"{experiment.name}.png",
        headings=headings,
        rows=tuple(rows),
        remarks=(
            *(f"{line.what}: {line.remark}" for line in findings.comparisons if line.remark),
            *findings.remarks,
        ),
    )


def summary_markdown(done: Sequence[tuple[Shown, Findings]], how: str) -> str:
    """One page on all experiments: the paper's claims and our results, causes of differences, then each experiment.

    Args:
        done: The experiments with their findings, in the order of the page.
        how: A sentence on how the numbers were made: scale and seeds.
    """
    claims = [claim for _, findings in done for claim in findings.claims]
    causes = [cause for _, findings in done for cause in findings.causes]
    overview = [
        "## What to expect, in short",
        "",
        *_overview_table(claims),
        "",
        "## Why it does not match",
        "",
        *(f"{place}. {cause}" for place, cause in enumerate(causes, start=1)),
        "",
    ]
    parts = [section(experiment, findings).markdown("###") for experiment, findings in done]
    of_a_paper = overview if claims or causes else []
    return "\n".join(["# Reproduction", "", how, "", *of_a_paper, "## The experiments", "", *parts])


def _overview_table(claims: Sequence[PaperClaim]) -> list[str]:
    """A line per claim. The last two columns are left out if no claim has them."""
    more = [("here / paper", "ratio"), ("by `fluid`", "fluid")]
    used = [(heading, name) for heading, name in more if any(getattr(claim, name) for claim in claims)]
    shown = [("claim of the paper", "paper"), ("here", "here"), *used]
    return [
        f"| {' | '.join(heading for heading, _ in shown)} |",
        f"|{'---|' * len(shown)}",
        *(f"| {' | '.join(getattr(claim, name) for _, name in shown)} |" for claim in claims),
    ]


def overview_text(done: Sequence[tuple[Shown, Findings]]) -> str:
    """The paper's claims and our results, for a terminal."""
    claims = [claim for _, findings in done for claim in findings.claims]
    return "\n".join(f"{claim.paper}\n    here: {claim.here}" for claim in claims) + "\n"


def document(experiment: Shown, findings: Findings, files: Written | None) -> dict[str, object]:
    """The findings for `--json`, without the rows, which the CSV holds.

    Numbers that are not finite become null. `files` is null if they could not be written.
    """
    return {
        "name": experiment.name,
        "title": experiment.title,
        "comparisons": [_comparison(line) for line in findings.comparisons],
        "remarks": list(findings.remarks),
        "claims": [
            {"paper": claim.paper, "here": claim.here, "ratio": claim.ratio, "fluid": claim.fluid}
            for claim in findings.claims
        ],
        "causes": list(findings.causes),
        "files": files
        and {"csv": str(files.csv), "png": str(files.png), "text": str(files.text), "md": str(files.markdown)},
    }


def _comparison(line: Comparison) -> dict[str, object]:
    return {
        "what": line.what,
        "paper": line.paper,
        "paper_value": line.paper_value,
        "ours": finite(line.ours),
        "spread": None if line.spread is None else [finite(value) for value in line.spread],
        "ratio": finite(line.ratio),
        "remark": line.remark,
    }


def _cells(line: Comparison) -> tuple[str, ...]:
    spread = "" if line.spread is None else " to ".join(number_text(value) for value in line.spread)
    return line.what, line.paper, number_text(line.ours), spread, number_text(line.ratio)
