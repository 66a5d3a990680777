"""`themis auction`: the auction of one market, from a file or a recorded round."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys

from themis.choices import Rounding
from themis.config.examples import ExampleKind
from themis.number_parsing import parse_number
from themis_cli.instance_input import read_content
from themis_cli.parsers import Subcommands

EXIT_FAILED = 1
_DEFAULT_SOLVER = "exact"
_DEFAULT_TIME_LIMIT_S = 300.0


def add_to(commands: Subcommands) -> None:
    """Add `auction`."""
    parser = commands.add_parser("auction", help="run the auction of a market file")
    parser.add_argument(
        "--market", required=True, metavar="FILE", help="a JSON file or example; `-` for standard input"
    )
    parser.add_argument(
        "--solver",
        default=_DEFAULT_SOLVER,
        metavar="NAME",
        help="exact, highs, gurobi or brute_force; default: %(default)s",
    )
    parser.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="seed of the rounding (default: %(default)s)"
    )
    parser.add_argument(
        "--rounding",
        choices=[rounding.value for rounding in Rounding],
        default=Rounding.PROBABILISTIC.value,
        help="rule that rounds kept shares to whole gangs (default: %(default)s)",
    )
    parser.add_argument(
        "--time-limit-s",
        type=_seconds,
        default=_DEFAULT_TIME_LIMIT_S,
        metavar="S",
        help="for all problems together; when it is over, shows the best result with its gap (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_auction)


def _auction(options: argparse.Namespace) -> int:
    # Imported late, because solvers are slow to import.
    from rm_plugin.arbiter.market_file import read_market
    from rm_plugin.solvers.port import SolveStatus
    from rm_plugin.solvers.registry import solver
    from themis_cli.auction_result import as_document, hold_auction

    chosen = solver(options.solver)
    rounding = Rounding(options.rounding)
    market = read_market(*read_content(options.market, ExampleKind.MARKET))
    result = hold_auction(market, chosen, seed=options.seed, rounding=rounding, time_limit_s=options.time_limit_s)
    if options.json:
        sys.stdout.write(json.dumps(as_document(result), allow_nan=False) + "\n")
    else:
        from themis_cli.auction_table import print_result

        print_result(result, seed=options.seed, rounding=rounding)
    if result.outcome.status is SolveStatus.LICENCE:
        sys.stderr.write(f"themis: the market is past the licence of {options.solver}; choose another --solver\n")
        return EXIT_FAILED
    return 0


def _seed(text: str) -> int:
    """Parse a signed or unsigned whole number of 64 bits, as seeds of apps and rounds are."""
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text) or not -(2**63) <= int(text) < 2**64:
        raise argparse.ArgumentTypeError(f"must be a whole number of 64 bits: {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = parse_number(float, text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0: {text!r}")
    return seconds
