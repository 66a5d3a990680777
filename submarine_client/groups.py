"""From a group file to an app that is ready to be submitted."""

from __future__ import annotations

from pathlib import Path

from submarine_client.programs import check_program
from themis.apps import AppSpec
from themis.config.group_file import load_group


def load_app(path: Path) -> AppSpec:
    """Read a group file and check all of it, its program and parameters included; raises InputError."""
    return check_program(load_group(path), str(path))
