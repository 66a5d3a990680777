"""The environment of a run, and the digest of its code."""

import shutil
from pathlib import Path

import themis
from themis_lab.testbed.environment import PACKAGES, code_digest, environment

ROOT = Path(themis.__file__).parents[1]


def copied(tmp_path, name):
    root = tmp_path / name
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_digest_does_not_depend_on_folder(tmp_path):
    assert code_digest(copied(tmp_path, "one")) == environment()["code"]


def test_digest_changes_with_any_line(tmp_path):
    for package, name in (
        ("am", "app.py"),
        ("rm_plugin", "solvers/exact/core/search.c"),
        ("themis", "clock.py"),
        ("themis/hadoop", "__init__.py"),
    ):
        root = copied(tmp_path, package.replace("/", "-"))
        with (root / package / name).open("a", encoding="utf-8") as file:
            file.write("\n")
        assert code_digest(root) != environment()["code"], name


def test_digest_ignores_compiled_files(tmp_path):
    root = copied(tmp_path, "one")
    (root / "am" / "agent" / "core.o").write_bytes(b"\0")
    assert code_digest(root) == environment()["code"]


def test_environment_has_machine_and_versions():
    reported = environment()
    assert reported["cpus"] >= 1
    assert reported["load_1min"] >= 0.0
    assert reported["python"].startswith("3.")
