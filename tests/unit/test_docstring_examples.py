"""The examples in docstrings that are written as a session of Python (`>>>`) show what the code returns."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("themis", "rm_plugin", "am", "themis_lab", "submarine_client", "tf_jobs", "themis_cli")


def modules_with_examples():
    """Names of all modules with `>>>` in their text."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    parts = [path.relative_to(ROOT).with_suffix("").parts for path, text in texts.items() if ">>> " in text]
    return [".".join(part for part in each if part != "__init__") for each in parts]


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstring_examples_pass_in_any_folder(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert result.failed == 0
