"""What `import themis` offers."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import themis


@pytest.mark.parametrize("name", themis.__all__)
def test_listed_name_exists(name):
    assert getattr(themis, name) is not None


def test_type_checkers_see_lazily_loaded_names():
    source = Path(themis.__file__).read_text(encoding="utf-8")
    for module, names in themis._MODULES.items():
        assert f"    from {module} import {', '.join(names)}\n" in source


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'themis' has no attribute 'Clutser'"):
        themis.Clutser  # noqa: B018


def test_version_is_that_of_the_installed_package():
    assert themis.__version__ == version("themis-scheduler")


def test_import_loads_nothing_else():
    code = "import sys; before = set(sys.modules); import themis; print(sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "themis.apps" not in loaded
    assert "themis" in loaded
