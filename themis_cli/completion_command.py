"""`themis completion`: print the shell code that completes the command's words."""

from __future__ import annotations

import argparse
import sys

from themis.shell_completion import SHELLS, shell_code
from themis_cli.parsers import Subcommands

_DESCRIPTION = """\
Print the shell code that completes the command's words. For bash, put this line into ~/.bashrc:
eval "$(themis completion bash)"
"""


def add_to(commands: Subcommands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completion", help="print the shell code that completes the command's words", description=_DESCRIPTION
    )
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS))
    parser.set_defaults(run=_print)


def _print(options: argparse.Namespace) -> int:
    sys.stdout.write(f"{shell_code('themis', options.shell)}\n")
    return 0
