"""Other users of this machine, for tests that run as root: folders and an interpreter that they can use."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm_plugin.engines import submitters

ROOT = Path(__file__).parents[1]
ANN, BOB = 54_321, 54_322
"""Numbers without accounts."""

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users of this machine")


def open_folder() -> Iterator[Path]:
    """A temporary folder that other users can pass; those of pytest are private."""
    folder = Path(tempfile.mkdtemp(prefix="themis-other-users-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def python_for_all(folder: Path) -> str:
    """Return an interpreter that other users can run, with the packages of this one; skips the test without one."""
    if not submitters._closed_to_others(folder):
        return sys.executable
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    system = Path("/usr/bin", version)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    if not system.exists() or not all(_is_open(Path(path)) for path in (ROOT, *packages)):
        pytest.skip(f"other users can run neither {sys.executable} nor {system} with Themis")
    venv = folder / "venv"
    site = venv / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (site / "themis.pth").write_text("\n".join([str(ROOT), *packages]) + "\n")
    (venv / "bin").mkdir()
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (venv / "bin" / "python").symlink_to(system)
    return str(venv / "bin" / "python")


def _is_open(path: Path) -> bool:
    return all(each.stat().st_mode & 0o005 == 0o005 for each in (path, *path.parents))
