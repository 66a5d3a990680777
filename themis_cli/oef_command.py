"""`themis oef`: the fair shares of one instance, from a file."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from themis.config.examples import ExampleKind
from themis.errors import UnknownNameError
from themis_cli.instance_input import read_content
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from rm_plugin.policies.oef.fair_share import FairShare
    from rm_plugin.policies.oef.speedup import Instance


def add_to(commands: Subcommands) -> None:
    """Add `oef`."""
    parser = commands.add_parser("oef", help="compute fair shares of several GPU types from an instance file")
    parser.add_argument(
        "--instance",
        required=True,
        metavar="FILE",
        help="a JSON file, or the name of an example; `-` for standard input",
    )
    parser.add_argument(
        "--mode",
        default="cooperative",
        metavar="NAME",
        help="cooperative, noncooperative, or a baseline: max_min, gavel, gavel_capped, gandiva_fair, incentive_only, "
        "pure_efficiency; default: %(default)s",
    )
    parser.add_argument(
        "--one-more", metavar="TYPE", help="also show what one more device of this type is worth to each"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    # Imported late, because the solver is slow to import.
    from rm_plugin.policies.oef.audit import one_more
    from rm_plugin.policies.oef.evaluator import evaluate
    from rm_plugin.policies.oef.instance_file import read_instance
    from rm_plugin.policies.oef.registry import rule_named
    from rm_plugin.solvers.highs_linear import HighsModel

    rule = rule_named(options.mode, HighsModel)
    instance = read_instance(*read_content(options.instance, ExampleKind.OEF_INSTANCE))
    if options.one_more is not None and options.one_more not in instance.types:
        raise UnknownNameError("GPU type in --one-more", options.one_more, instance.types)
    began_s = time.perf_counter()
    fair = evaluate(instance, rule)
    solve_s = time.perf_counter() - began_s
    more = None if options.one_more is None else one_more(instance, rule, fair, options.one_more)
    if options.json:
        sys.stdout.write(json.dumps(as_document(options.mode, instance, fair, solve_s, more), allow_nan=False) + "\n")
    else:
        from themis_cli.oef_table import print_shares

        print_shares(options.mode, instance, fair, solve_s, options.one_more, more)
    return 0


def as_document(
    mode: str, instance: Instance, fair: FairShare, solve_s: float, more: Mapping[str, float] | None
) -> dict[str, object]:
    """The result as a JSON document; docs/explanation/oef.md says what every key means."""
    from rm_plugin.policies.oef.audit import largest_envy, sharing_incentive

    envious = largest_envy(fair)
    prices = None if fair.prices is None else dict(zip(instance.types, fair.prices, strict=True))
    document: dict[str, object] = {
        "status": fair.status.value,
        "mode": mode,
        "share": {tenant: list(share) for tenant, share in fair.share.items()},
        "efficiency": dict(fair.efficiency),
        "total": fair.total,
        "envy": max((envy.by for envy in envious.values()), default=0.0),
        "envious": {tenant: {"of": envy.of, "by": envy.by} for tenant, envy in envious.items()},
        "sharing_incentive": dict(sharing_incentive(fair)),
        "prices": prices,
        "reference": instance.types[fair.speedups.reference],
        "warnings": list(fair.speedups.warnings),
        "solve_s": solve_s,
    }
    return document if more is None else {**document, "one_more": dict(more)}
