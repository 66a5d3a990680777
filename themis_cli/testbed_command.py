"""`themis testbed`: the main job, see the package `testbed`."""

from __future__ import annotations

from testbed.cli import add_arguments, run
from themis_cli.parsers import Subcommands


def add_to(commands: Subcommands) -> None:
    """Add `testbed`."""
    add_arguments(commands)


__all__ = ["add_to", "run"]
