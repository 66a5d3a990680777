"""The pages of docs/explanation on reproductions, made again by today's code: every result but measured times."""

import re
import subprocess
import sys

import pytest
from documents import ROOT

MARK = "<!-- below: tools/write_reproduction.py -->\n\n"


def results(text):
    """The lines of results that hold no measured times; figures by their names alone."""
    found = text[text.index("## What to expect, in short") :].replace("](../figures/", "](")
    return [line for line in found.splitlines() if not re.search(r"\bms\b|CPU seconds|s of CPU", line)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "page_name"), [pytest.param("all", "reproduction", marks=pytest.mark.nightly), ("oef", "reproduction-oef")]
)
def test_the_page_shows_the_findings_of_all_experiments(tmp_path, name, page_name):
    command = [sys.executable, "-m", "themis_cli.main", "reproduce", name, "--scale", "quick", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    parts = [ROOT / "docs" / "explanation" / f"{part}.md" for part in (page_name, f"{page_name}-details")]
    texts = [path.read_text(encoding="utf-8").partition(MARK)[2] for path in parts if path.is_file()]
    page = results("\n".join(texts))
    assert results((tmp_path / "summary.md").read_text(encoding="utf-8")) == page
    assert len(list(tmp_path.glob("*.png"))) == sum(line.startswith("![") for line in page)
