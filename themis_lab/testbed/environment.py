"""The environment of a run: code, machine, and its load before the run."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import themis

PACKAGES = (
    *("am", "rm_plugin", "submarine_client", "tf_jobs", "themis", "themis_cli"),
    *("themis_lab/devcluster", "themis_lab/testbed"),
)
"""Packages that take part in a run."""

_KINDS = ("py", "c", "h", "csv", "json", "yaml")
"""Suffixes of code and data files."""

_CODE_DIGITS = 12


def environment() -> dict[str, Any]:
    """Return `code` (a digest), versions, `cpus` and `load_1min`, the mean number of running processes."""
    return {
        "code": code_digest(Path(themis.__file__).parents[1]),
        "python": platform.python_version(),
        "tensorflow": _version_of("tensorflow-cpu", "tensorflow"),
        "cpus": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def code_digest(root: Path) -> str:
    """A digest of all code and data of PACKAGES below a folder. Runs with equal digests used the same code."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted(path for suffix in _KINDS for path in (root / package).rglob(f"*.{suffix}")):
            digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:_CODE_DIGITS]


def _version_of(*names: str) -> str | None:
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
