"""`themis audit`: check the properties of the auction, of AlloX or of OEF on random cases."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from themis.errors import InputError, UnknownNameError
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_lab.audit.fuzzing import FuzzPlan, FuzzResult

EXIT_VIOLATION = 1
EXIT_INTERRUPTED = 3
_WRITE_EVERY_S = 5.0
_SHARING = "sharing"
_AUCTION = "auction"
_OF_THE_AUCTION = ("worlds", "family")


def add_to(commands: Subcommands) -> None:
    """Add `audit`."""
    parser = commands.add_parser(
        "audit",
        help="check properties of the auction, AlloX or OEF on random cases; exits with 1 if one is violated",
    )
    parser.add_argument(
        "--mechanism", choices=(_AUCTION, "allox", "oef"), default=_AUCTION, help="what to check (default auction)"
    )
    parser.add_argument(
        "--markets", type=int, default=200, metavar="N", help="how many markets or instances (default 200)"
    )
    parser.add_argument(
        "--worlds", type=int, metavar="N", help="worlds for the sharing incentive (default: markets / 50)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices (default 1)")
    parser.add_argument("--solver", default="exact", help="solver to audit (default exact)")
    parser.add_argument(
        "--family", action="append", metavar="NAME", help="check only this family; repeat the option for several"
    )
    parser.add_argument("--property", action="append", metavar="NAME", help="check only these properties and measures")
    parser.add_argument(
        "--budget-s", type=float, default=math.inf, metavar="S", help="begin and shrink no market after S seconds"
    )
    parser.add_argument("--show", metavar="FAMILY:NUMBER", help="print this market of the seed, and check nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    # Imported late: solvers and agents are slow to import, and other commands do not need them.
    from themis_lab.audit.fuzzing import FuzzResult, fuzz
    from themis_lab.audit.report import document, text

    if options.mechanism != _AUCTION:
        return _run_subject(options)
    if options.show is not None:
        return _show(options)
    plan = _plan(options)
    found = fuzz(plan, FuzzResult(), keep_going=_until(options.budget_s), on_market=_progress_writer(plan))
    sys.stdout.write(json.dumps(document(plan, found), indent=1) + "\n" if options.json else text(plan, found))
    if found.ended == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_VIOLATION if found.broken.total() else 0


def _run_subject(options: argparse.Namespace) -> int:
    from themis_lab.audit.instance_audit import InstanceAudit, audit_instances, document, text
    from themis_lab.audit.subjects import SUBJECTS

    subject = SUBJECTS[options.mechanism]
    for name in _OF_THE_AUCTION:
        if getattr(options, name) is not None:
            value, title = getattr(options, name), subject.title
            raise InputError(f"--{name} has no meaning for {title}", value=value, remedy="leave it out")
    _check_numbers(options)
    if options.show is not None:
        if not (options.show.isascii() and options.show.isdigit()):
            raise InputError(f"--show wants a number for {subject.title}", value=options.show)
        instance = subject.draw(options.seed, int(options.show))
        sys.stdout.write(json.dumps(subject.document(instance), indent=1) + "\n")
        return 0
    known = (*subject.properties, *subject.claims)
    for name in options.property or ():
        if name not in known:
            raise UnknownNameError("property", name, known)
    names = [name for name in known if name in (options.property or known)]
    plan = InstanceAudit(subject=subject, seed=options.seed, planned=options.markets, names=names)
    found = audit_instances(plan, _until(options.budget_s))
    sys.stdout.write(json.dumps(document(found), indent=1) + "\n" if options.json else text(found))
    if found.ended == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_VIOLATION if found.violations else 0


def _check_numbers(options: argparse.Namespace) -> None:
    for name, least in (("markets", 0), ("worlds", 0)):
        if (getattr(options, name) or least) < least:
            raise InputError(f"--{name} must be {least} or more", value=getattr(options, name))
    if not options.budget_s > 0:
        raise InputError("--budget-s must be more than 0", value=options.budget_s)


def _plan(options: argparse.Namespace) -> FuzzPlan:
    from rm_plugin.solvers.registry import solver
    from themis_lab.audit.case import Mechanism
    from themis_lab.audit.families import FAMILIES, family
    from themis_lab.audit.fuzzing import FuzzPlan
    from themis_lab.audit.measures.registry import MEASURES
    from themis_lab.audit.properties.registry import PROPERTIES

    _check_numbers(options)
    solver(options.solver)
    known = (*PROPERTIES, *MEASURES, _SHARING)
    wanted = tuple(options.property or known)
    for name in wanted:
        if name not in known:
            raise UnknownNameError("property", name, known)
    worlds = options.markets // 50 if options.worlds is None else options.worlds
    return FuzzPlan(
        families=[family(name) for name in options.family or FAMILIES],
        markets=options.markets,
        seed=options.seed,
        mechanism=Mechanism(make_solver=lambda: solver(options.solver)),
        properties=tuple(name for name in PROPERTIES if name in wanted),
        measures=tuple(name for name in MEASURES if name in wanted),
        worlds=worlds if _SHARING in wanted else 0,
    )


def _show(options: argparse.Namespace) -> int:
    from rm_plugin.arbiter.market_document import market_document
    from themis_lab.audit.families import family

    name, _, number = options.show.partition(":")
    if not (number.isascii() and number.isdigit()):
        raise InputError("--show wants a family and a number", value=options.show, remedy="write FAMILY:NUMBER")
    market = family(name).market(options.seed, int(number))
    sys.stdout.write(json.dumps(market_document(market), indent=1) + "\n")
    return 0


def _until(budget_s: float) -> Callable[[], bool]:
    begun_s = time.monotonic()
    return lambda: time.monotonic() - begun_s < budget_s


def _progress_writer(plan: FuzzPlan) -> Callable[[FuzzResult], None]:
    """Progress on standard error: a line that is redrawn, or without a terminal one line every few seconds."""
    live = sys.stderr.isatty()
    written_s = time.monotonic()

    def write(found: FuzzResult) -> None:
        nonlocal written_s
        last = found.drawn.total() == plan.markets
        if not last and time.monotonic() - written_s < (0.1 if live else _WRITE_EVERY_S):
            return
        written_s = time.monotonic()
        worlds = f"{len(found.worlds)} of {plan.worlds} worlds, " if plan.worlds else ""
        line = f"audit: {worlds}{found.drawn.total()} of {plan.markets} markets, {found.broken.total()} violations"
        sys.stderr.write(f"\r{line}" + ("\n" if last else "") if live else f"{line}\n")
        sys.stderr.flush()

    return write
