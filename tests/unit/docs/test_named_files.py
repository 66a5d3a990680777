"""Files that source files and decision records name exist."""

import re

import pytest
from documents import ROOT

FOLDERS = (
    "themis",
    "rm_plugin",
    "am",
    "submarine_client",
    "themis_cli",
    "themis_lab",
    "tf_jobs",
    "tests",
    "tools",
    "docs",
)
FILES = sorted(
    path.relative_to(ROOT)
    for place in (*(ROOT / folder for folder in FOLDERS), ROOT)
    for path in (place.glob("*") if place == ROOT else place.rglob("*"))
    if path.suffix in {".md", ".py", ".pyi", ".c", ".h"}
)
SOURCES = [path for path in FILES if path.suffix != ".md"]
RECORDS = [path for path in FILES if re.fullmatch(r"docs/decisions/\d.*\.md", path.as_posix())]
EXISTING = [f"/{path}" for path in FILES]
PAGE = re.compile(r"[\w./-]*[\w-]\.md\b")
CODE = re.compile(r"[\w./-]*[\w-]\.(?:py|c)\b")
THEN = "then named"
"""On a line of a record: the file has another name today, or is gone."""

WRITTEN_BY_RUNS = {"summary.md", "report.md", "notes.md", "fig0.md", "fig6.md"}
"""Pages that commands write, or that tests make up."""


def missing(pattern, text):
    """The files named in a text that do not exist. A name is a path, or its last parts."""
    lines = [line for line in text.splitlines() if THEN not in line]
    names = [name for line in lines for name in pattern.findall(line) if name not in WRITTEN_BY_RUNS]
    return [name for name in names if not any(path.endswith(f"/{name.lstrip('./')}") for path in EXISTING)]


def test_pages_that_source_files_name_exist():
    found = {str(path): missing(PAGE, (ROOT / path).read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem[:4])
def test_files_that_a_decision_record_names_exist(record):
    text = (ROOT / record).read_text(encoding="utf-8")
    assert missing(PAGE, text) == []
    assert missing(CODE, text) == []


def test_a_file_that_does_not_exist_is_found():
    gone = "gone" + ".md"
    assert missing(PAGE, f"See docs/{gone}, docs/README.md and auction.md.") == [f"docs/{gone}"]
    assert missing(CODE, "`gone.py` and `setup.py`") == ["gone.py"]
    assert missing(CODE, "`gone.py` (then named so)") == []
