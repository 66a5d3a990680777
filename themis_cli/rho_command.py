"""`themis rho`: finish-time fairness of worked examples, computed by the agent."""

from __future__ import annotations

import argparse
import json
import sys

from themis_cli.parsers import Subcommands

_EXAMPLES = ("nsdi",)


def add_to(commands: Subcommands) -> None:
    """Add `rho`."""
    parser = commands.add_parser("rho", help="compute finish-time fairness of a worked example")
    parser.add_argument("--example", choices=_EXAMPLES, required=True, help="nsdi: the paper's section 4.3.3")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_rho)


def _rho(options: argparse.Namespace) -> int:
    # Imported late: the agent is slow to import, and other commands do not need it.
    from am.agent.model.nsdi_example import nsdi_table

    table = nsdi_table()
    if options.json:
        sys.stdout.write(json.dumps(table) + "\n")
        return 0
    lines = [f"t_ideal {table['t_ideal_s']:g} s", "GPUs   rho"]
    lines += [f"{gpus:>4}   {rho:.3f}" for gpus, rho in table["rho"].items()]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
