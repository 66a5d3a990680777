"""What is packaged: every package of ours reaches a build, also one inside Docker, whose context is a list."""

import tomllib
from pathlib import Path

from documents import code, table_rows

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["setuptools"]["packages"]


def test_every_folder_of_modules_is_a_package():
    roots = {name.partition(".")[0] for name in PACKAGES}
    found = {
        ".".join(path.relative_to(ROOT).parts)
        for root in roots
        for path in (ROOT / root, *(ROOT / root).rglob("*"))
        if path.is_dir() and any(path.glob("*.py"))
    }
    assert found == set(PACKAGES)


def test_the_build_in_docker_gets_all_of_them():
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name.partition(".")[0] for name in PACKAGES} <= let_in


def test_all_of_them_are_typed():
    typed = set(PROJECT["tool"]["mypy"]["files"])
    assert {name.partition(".")[0] for name in PACKAGES} <= typed


def test_the_guide_to_installing_lists_every_extra():
    rows = table_rows("docs/how-to/install.md", "extra")
    assert {name for row in rows for name in code(row[0])} == set(PROJECT["project"]["optional-dependencies"])
