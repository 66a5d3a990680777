"""The options shared by `themis simulate` and `themis replay`: every choice of a run, with its meaning."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from themis.choices import (
    Bidders,
    BidValues,
    BundleRule,
    EmptyBundle,
    GangPlacement,
    LateOrder,
    LeaseEnds,
    LeftoverOrder,
    Placer,
    Rounding,
    TenantOf,
)
from themis.errors import InputError
from themis.number_parsing import parse_number

if TYPE_CHECKING:
    from rm_plugin.arbiter.core import LeasePolicy
    from rm_plugin.arbiter.round_values import RoundSettings
    from themis_lab.simulator.costs import Costs
    from themis_lab.simulator.runs import LieChoice
    from themis_lab.simulator.settings import NodeOutage, Settings

DEFAULT_SEED = 1

_OUTAGE = "MACHINE:FROM:TO"
_WEIGHT = "TENANT:WEIGHT"
_LIE_HELP = (
    "make an app lie; kinds: rows, largest_row, rho, throughout, work, slowdown, speed, stated_speed; repeatable"
)


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run. Defaults are None: the workload or the settings then decide."""
    add = parser.add_argument
    add("--lease-s", type=float, metavar="S", help="length of a lease in seconds; default: 600, or the mix's")
    add(
        "--lead-s",
        type=float,
        metavar="S",
        help="seconds before leases end at which their renewal round starts (default: 5, or the mix's value)",
    )
    add("--lease-ends", choices=[each.value for each in LeaseEnds], help="default: aligned")
    add("--f", type=float, help="the worst ceil((1 - f) N) apps bid; default: 0.8, or the mix's")
    add("--bundle-rule", choices=[each.value for each in BundleRule], help="default: continuation")
    add("--empty-bundle", choices=[each.value for each in EmptyBundle], help="default: finite")
    add("--rounding", choices=[each.value for each in Rounding], help="default: probabilistic")
    add("--bidders", choices=[each.value for each in Bidders], help="who bids under themis; default: worst_rho")
    add("--values", choices=[each.value for each in BidValues], help="what bids are worth under themis; default: rho")
    add(
        "--leftovers",
        choices=[each.value for each in LeftoverOrder],
        help="who gets what the auction leaves; default: random",
    )
    add(
        "--gang-placement",
        choices=[each.value for each in GangPlacement],
        help="how policies without an auction place gangs; default: best_fit",
    )
    add("--tenant-of", choices=[each.value for each in TenantOf], help="who shares under OEF and AlloX; default: user")
    add(
        "--tenant-weight",
        action="append",
        metavar=_WEIGHT,
        help="weight of a user, queue or app under OEF; default: 1; repeatable",
    )
    add("--placer", choices=[each.value for each in Placer], help="who places gangs under OEF; default: compact")
    add("--cap-demand", action="store_true", help="shares have no more GPUs than a tenant can use under OEF")
    add("--profiling-runs", action="store_true", help="apps run on every type before they share under OEF and AlloX")
    add("--alpha", type=float, help="share of the users whose jobs AlloX considers first; default: 0.1")
    add(
        "--late-order",
        choices=[each.value for each in LateOrder],
        help="which late jobs AlloX+ starts first; default: shortest",
    )
    add(
        "--preemption-margin",
        type=float,
        metavar="SHARE",
        help="how much less work an app that holds its GPUs counts as having left under fair_finish; default: 0.8",
    )
    add("--no-payments", action="store_true", help="let winners keep all that they won")
    add("--solver", metavar="NAME", help="exact, highs, gurobi or brute_force; default: exact")
    add("--checkpoint-s", type=float, metavar="S", help="seconds to write a checkpoint when a job stops (default: 5)")
    add("--restore-s", type=float, metavar="S", help="seconds to read a checkpoint when a job starts (default: 5)")
    add(
        "--container-s",
        type=float,
        metavar="S",
        help="seconds to start containers on GPUs new to the app (default: 30)",
    )
    add(
        "--outage",
        action="append",
        metavar=_OUTAGE,
        help="machine unavailable between two times in seconds; repeatable",
    )
    add("--error", type=float, metavar="X", help="every app's estimates are wrong by up to X, below 1")
    add("--lie", action="append", metavar="APP:KIND:FACTOR", help=_LIE_HELP)
    add("--jobs", type=int, default=1, metavar="N", help="number of processes (default: %(default)s)")
    add("--json", action="store_true", help="print JSON")


def chosen_settings(options: argparse.Namespace, base: Settings) -> Settings:
    """Return the settings changed by the options. Outages are added to the existing ones.

    Raises:
        InputError: An option out of range, or two that exclude each other.
    """
    from rm_plugin.solvers.registry import solver

    check_ranges(options)
    if options.solver:
        solver(options.solver)
    chosen = replace(
        base,
        leases=_leases(options, base.leases),
        rounds=_rounds(options, base.rounds),
        costs=_costs(options, base.costs),
        **_given(bundle_rule=options.bundle_rule and BundleRule(options.bundle_rule), solver=options.solver),
    )
    lexicographic = chosen.rounds.empty_bundle is EmptyBundle.LEXICOGRAPHIC
    if chosen.bundle_rule is BundleRule.LEXICOGRAPHIC and not lexicographic:
        remedy = "add --empty-bundle lexicographic"
        raise InputError("--bundle-rule lexicographic values an empty bundle at 0", remedy=remedy)
    outages = tuple(_outage(text, base) for text in options.outage or ())
    return replace(chosen, outages=(*base.outages, *outages))


def chosen_lies(options: argparse.Namespace) -> tuple[LieChoice, ...]:
    """The lies that the options choose."""
    from themis_lab.simulator.runs import LieChoice

    lies = []
    for text in options.lie or ():
        app, kind, factor = _three(text, "--lie", "APP:KIND:FACTOR")
        lies.append(LieChoice(app=app, kind=kind, factor=_number(factor, "the factor of --lie")))
    return tuple(lies)


def check_ranges(options: argparse.Namespace) -> None:
    """Raise InputError for a number out of range."""
    for name, fits, what in _RANGES:
        value = getattr(options, name, None)
        if value is not None and not (math.isfinite(value) and fits(value)):
            raise InputError(f"--{name.replace('_', '-')} {what}", value=value)


_A_DAY_S = 86_400.0
_A_CENTURY_S = 100 * 365.25 * _A_DAY_S
_MAX_SEEDS = 10_000
"""All their workloads are generated before the first run."""

_RANGES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("lease_s", lambda value: 0 < value <= _A_CENTURY_S, "must be above 0, and a century at most"),
    ("lead_s", lambda value: value >= 0, "must be 0 or more"),
    ("checkpoint_s", lambda value: 0 <= value <= _A_DAY_S, "must be 0 to a day"),
    ("restore_s", lambda value: 0 <= value <= _A_DAY_S, "must be 0 to a day"),
    ("container_s", lambda value: 0 <= value <= _A_DAY_S, "must be 0 to a day"),
    ("f", lambda value: 0 <= value <= 1, "must lie in 0 to 1"),
    ("preemption_margin", lambda value: 0 <= value <= 1, "must lie in 0 to 1"),
    ("error", lambda value: 0 <= value < 1, "must be 0 or more and less than 1"),
    ("seeds", lambda value: 1 <= value <= _MAX_SEEDS, f"must be 1 to {_MAX_SEEDS:,}"),
    ("jobs", lambda value: value >= 1, "must be 1 or more"),
)


def _leases(options: argparse.Namespace, base: LeasePolicy) -> LeasePolicy:
    ends = options.lease_ends and LeaseEnds(options.lease_ends)
    lease_s = base.duration_s if options.lease_s is None else options.lease_s
    lead_s = base.checkpoint_lead_s if options.lead_s is None else options.lead_s
    if lead_s >= lease_s:
        value = f"lead {lead_s:g} s, lease {lease_s:g} s"
        raise InputError("the lead must be shorter than the lease", value=value, remedy="change --lead-s or --lease-s")
    return replace(base, **_given(duration_s=lease_s, checkpoint_lead_s=lead_s, ends=ends))


def _rounds(options: argparse.Namespace, base: RoundSettings) -> RoundSettings:
    empty = options.empty_bundle and EmptyBundle(options.empty_bundle)
    rounding = options.rounding and Rounding(options.rounding)
    payments = False if options.no_payments else None
    tenant_of = options.tenant_of and TenantOf(options.tenant_of)
    weights = {**base.tenant_weights, **dict(_weight(text) for text in options.tenant_weight or ())}
    given = _given(
        f=options.f,
        empty_bundle=empty,
        rounding=rounding,
        payments=payments,
        tenant_of=tenant_of,
        placer=options.placer and Placer(options.placer),
        cap_demand=options.cap_demand or None,
        profiling_runs=options.profiling_runs or None,
        alpha=options.alpha,
        late_order=options.late_order and LateOrder(options.late_order),
        preemption_margin=options.preemption_margin,
        bidders=options.bidders and Bidders(options.bidders),
        values=options.values and BidValues(options.values),
        leftovers=options.leftovers and LeftoverOrder(options.leftovers),
        gang_placement=options.gang_placement and GangPlacement(options.gang_placement),
    )
    return replace(base, **given, tenant_weights=weights)


def _weight(text: str) -> tuple[str, float]:
    tenant, _, weight = text.rpartition(":")
    if not tenant:
        raise _unparsed("--tenant-weight", text, _WEIGHT)
    return tenant, _number(weight, "WEIGHT of --tenant-weight")


def _costs(options: argparse.Namespace, base: Costs) -> Costs:
    return replace(
        base,
        **_given(checkpoint_s=options.checkpoint_s, restore_s=options.restore_s, container_s=options.container_s),
    )


def _outage(text: str, base: Settings) -> NodeOutage:
    from themis_lab.simulator.settings import NodeOutage

    machine, lost, back = _three(text, "--outage", _OUTAGE)
    if ":" in machine and not any(":" in each.machine_id for each in base.cluster.machines):
        # A machine id may contain colons, through a cluster file's prefix. Without such an id there is a number too
        # many.
        raise _unparsed("--outage", text, _OUTAGE)
    base.cluster.machine(machine)
    lost_s, back_s = _number(lost, "FROM of --outage"), _number(back, "TO of --outage")
    if lost_s < 0:
        raise InputError("an outage cannot begin before the run", value=text, remedy="FROM is 0 or more")
    if not lost_s < back_s:
        raise InputError("an outage must end after it begins", value=text, remedy=f"write seconds: {_OUTAGE}")
    return NodeOutage(machine_id=machine, lost_at_s=lost_s, back_at_s=back_s)


def _three(text: str, option: str, form: str) -> tuple[str, str, str]:
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not all(parts):
        raise _unparsed(option, text, form)
    return parts[0], parts[1], parts[2]


def _unparsed(option: str, text: str, form: str) -> InputError:
    return InputError(f"{option} does not parse", value=text, remedy=f"write {form}")


def _number(text: str, what: str) -> float:
    try:
        value = parse_number(float, text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{what} must be a finite number", value=text)
    return value


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
