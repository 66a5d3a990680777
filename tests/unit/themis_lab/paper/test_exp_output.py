import csv
import io
import json
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from themis_lab.paper.output import document, overview_text, section, summary_markdown, write
from themis_lab.paper.plotting import grouped_bars, new_figure
from themis_lab.paper.port import Comparison, Findings, PaperClaim
from themis_lab.paper.report_frame import csv_text, number_text
from themis_lab.paper.statistics import summary

FINDINGS = Findings(
    rows=({"policy": "themis", "seed": 1, "x": 0.1}, {"policy": "drf", "seed": 1, "x": 1 / 3}),
    comparisons=(
        Comparison(what="max rho", paper="2.2", paper_value=2.2, ours=1.1, spread=(1.0, 1.25), remark="it is smaller."),
        Comparison(what="other", ours=12345.6),
    ),
    remarks=("All of it is made up.",),
)


def draw(findings):
    figure = new_figure()
    bars = {str(row["policy"]): [summary([float(row["x"])])] for row in findings.rows}
    grouped_bars(figure.axes[0], ["x"], bars)
    return figure


EXPERIMENT = SimpleNamespace(name="fig0", title="an example", draw=draw)


def test_csv_reads_back_to_same_numbers():
    rows = list(csv.DictReader(io.StringIO(csv_text(FINDINGS.rows))))
    assert [float(row["x"]) for row in rows] == [0.1, 1 / 3]
    assert csv_text(()) == "\n"


def test_csv_with_differing_columns_is_refused():
    with pytest.raises(ValueError, match="fields not in"):
        csv_text(({"a": 1.0}, {"b": 1.0}))


def test_text_table_has_a_line_per_comparison_and_remarks():
    lines = section(EXPERIMENT, FINDINGS).text().splitlines()
    assert lines[0] == "fig0: an example"
    assert lines[2].split("  ")[0] == "what"
    assert lines[3].split() == ["max", "rho", "2.2", "1.1", "1", "to", "1.25", "0.5"]
    assert lines[4].split() == ["other", "12,346"]
    assert lines[6:] == ["* max rho: it is smaller.", "* All of it is made up."]


def test_markdown_section_has_figure_table_and_remarks():
    text = section(EXPERIMENT, FINDINGS).markdown("##")
    assert text.startswith("## fig0: an example\n\n![an example](fig0.png)\n\n| what |")
    assert "| max rho | 2.2 | 1.1 | 1 to 1.25 | 0.5 |" in text
    assert text.endswith("- All of it is made up.\n")


def test_summary_starts_with_claims_and_causes():
    findings = replace(
        FINDINGS, claims=(PaperClaim(paper="twice as good", here="as good"),), causes=("**It is small.**",)
    )
    text = summary_markdown([(EXPERIMENT, findings), (EXPERIMENT, FINDINGS)], "How.")
    assert text.startswith("# Reproduction\n\nHow.\n\n## What to expect, in short\n\n")
    assert "|---|---|\n| twice as good | as good |\n\n## Why it does not match\n\n1. **It is small.**\n\n" in text
    assert text.count("\n### fig0: an example\n") == 2
    assert overview_text([(EXPERIMENT, findings)]) == "twice as good\n    here: as good\n"


def test_equal_findings_write_equal_files(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = write(EXPERIMENT, FINDINGS, tmp_path / "one")
    again = write(EXPERIMENT, FINDINGS, tmp_path / "two")
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["fig0.csv", "fig0.md", "fig0.png", "fig0.txt"]
    assert first.png.read_bytes() == again.png.read_bytes()
    assert first.png.read_bytes()[:4] == b"\x89PNG"


def test_document_has_null_for_nan(tmp_path):
    findings = Findings(rows=FINDINGS.rows, comparisons=(Comparison(what="nothing", ours=float("nan")),))
    parsed = json.loads(
        json.dumps(document(EXPERIMENT, findings, write(EXPERIMENT, findings, tmp_path)), allow_nan=False)
    )
    assert parsed["comparisons"][0]["ours"] is None


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.12345, "0.123"), (99.96, "100"), (1234.5, "1,234"), (float("inf"), "none")]
)
def test_number_text_keeps_three_digits(value, text):
    assert number_text(value) == text
