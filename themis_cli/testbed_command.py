"""`themis testbed`: the main job, see the package `testbed`."""

from __future__ import annotations

import argparse

from testbed.cli import add_arguments, run
from themis_cli.parsers import Subcommands


def add_to(commands: Subcommands) -> None:
    """Add `testbed`."""
    add_arguments(commands)
    commands.choices["testbed"].set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.action == "run":
        # The testbed knows the ResourceManager by its wire only; an unknown policy is told before anything is made.
        from rm_plugin.policies.registry import make_policy

        make_policy(options.policy)
    return run(options)
