"""Ablations: each choice that the paper leaves open, compared with its alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from msgspec.structs import replace

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import RoundSettings
from themis.choices import BundleRule, EmptyBundle, LeaseEnds, Rounding
from themis.values import Value
from themis_lab.paper import sweeps
from themis_lab.paper.macro import CLUSTER, LOADS
from themis_lab.paper.plans import LEAD_S, make_workload, settings_of, workload_arguments
from themis_lab.paper.plotting import INK, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, Scale
from themis_lab.paper.statistics import DEFINITIONS, Row, Summary
from themis_lab.paper.strategies import FILTERS, ranked_agent
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.settings import Settings

STAGGERED = LeasePolicy(ends=LeaseEnds.STAGGERED, checkpoint_lead_s=LEAD_S)
DEFAULT, SHIPPED = "default", "as shipped"
WORKLOADS = ("w1", "w2")


class Variant(Value, frozen=True, kw_only=True):
    """One alternative. Attributes that are None keep the default.

    Attributes:
        choice: The choice, for example `rounding`.
        alternative: The value used instead of the default.
        ranked_by: A key of `strategies.FILTERS`: the definition of rho in the reports.
        against: Name of the variant to compare with.
        slow: Whether the run is slow, or part of another figure too; such variants are omitted at quick scale.
    """

    choice: str
    alternative: str
    leases: LeasePolicy | None = None
    rounds: RoundSettings | None = None
    bundle_rule: BundleRule | None = None
    costs: Costs | None = None
    ranked_by: str = ""
    against: str = f"{DEFAULT}: {SHIPPED}"
    slow: bool = False

    @property
    def name(self) -> str:
        """Choice and alternative."""
        return f"{self.choice}: {self.alternative}"

    def applied_to(self, settings: Settings) -> Settings:
        """The settings with this alternative."""
        return replace(
            settings,
            leases=self.leases or settings.leases,
            rounds=self.rounds or settings.rounds,
            bundle_rule=self.bundle_rule or settings.bundle_rule,
            costs=self.costs or settings.costs,
        )


VARIANTS = (
    Variant(choice=DEFAULT, alternative=SHIPPED),
    Variant(choice="lease ends", alternative="staggered", leases=STAGGERED),
    Variant(choice="bundle rule", alternative="idle_then_share", bundle_rule=BundleRule.IDLE_THEN_SHARE),
    Variant(
        choice="bundle rule",
        alternative="lexicographic",
        bundle_rule=BundleRule.LEXICOGRAPHIC,
        rounds=RoundSettings(empty_bundle=EmptyBundle.LEXICOGRAPHIC),
    ),
    Variant(choice="payments", alternative="off", rounds=RoundSettings(payments=False)),
    Variant(choice="rounding", alternative="nearest", rounds=RoundSettings(rounding=Rounding.NEAREST), slow=True),
    Variant(choice="rounding", alternative="by_gpu", rounds=RoundSettings(rounding=Rounding.BY_GPU)),
    Variant(choice="restart cost", alternative="0 s", costs=Costs(checkpoint_s=0.0, container_s=0.0, restore_s=0.0)),
    Variant(choice="restart cost", alternative="60 s", costs=Costs(checkpoint_s=10.0, container_s=45.0, restore_s=5.0)),
    *(Variant(choice="filter by", alternative=name, ranked_by=name) for name in FILTERS),
    Variant(choice="f", alternative="0", rounds=RoundSettings(f=0.0)),
    Variant(choice="f", alternative="0.5", rounds=RoundSettings(f=0.5), slow=True),
    Variant(choice="f", alternative="1", rounds=RoundSettings(f=1.0)),
    Variant(choice="f and payments", alternative="0, off", rounds=RoundSettings(f=0.0, payments=False), against="f: 0"),
    Variant(
        choice="f and rounding",
        alternative="0, nearest",
        rounds=RoundSettings(f=0.0, rounding=Rounding.NEAREST),
        against="f: 0",
        slow=True,
    ),
    Variant(
        choice="f and rounding",
        alternative="0, by_gpu",
        rounds=RoundSettings(f=0.0, rounding=Rounding.BY_GPU),
        against="f: 0",
        slow=True,
    ),
    Variant(
        choice="lease ends and bundle rule",
        alternative="staggered, idle_then_share",
        against="lease ends: staggered",
        leases=STAGGERED,
        bundle_rule=BundleRule.IDLE_THEN_SHARE,
        slow=True,
    ),
    Variant(
        choice="lease ends and bundle rule",
        alternative="staggered, lexicographic",
        against="lease ends: staggered",
        leases=STAGGERED,
        bundle_rule=BundleRule.LEXICOGRAPHIC,
        rounds=RoundSettings(empty_bundle=EmptyBundle.LEXICOGRAPHIC),
        slow=True,
    ),
    Variant(
        choice="lease ends and payments",
        alternative="staggered, off",
        against="lease ends: staggered",
        leases=STAGGERED,
        rounds=RoundSettings(payments=False),
        slow=True,
    ),
)
"""The default, then one alternative after the other.

The default restart takes 40 s: 5 s to write a checkpoint, 30 s for containers, 5 s to read it. The paper measures 35 s
at the median and 50 s at the 95th percentile for containers, and 5 to 10 s for a checkpoint: 60 s are its slow end.
With none at all jobs do not move without end: a running one grows only onto more GPUs that make it strictly faster
(`growth_pays`), and a gang is formed again only when leases of it end.
"""

TABLE: Mapping[str, tuple[str, str]] = {
    **{f"max_rho_{name}": ("max rho\n" + name.replace("_", "\n"), ".2f") for name in DEFINITIONS},
    "share_rho_above_1.05": ("apps with\nrho\n> 1.05", ".1%"),
    sweeps.GPU_TIME: ("GPU time,\nhours", ".0f"),
    "leftover_share": ("GPUs by\nleftovers", ".0%"),
    "bids_an_auction": ("bids an\nauction", ".1f"),
    "wins_to_nothing": ("wins\nreduced\nto nothing", ".0f"),
    "queueing_max_s": ("longest wait\nfor a first\nGPU, s", ".0f"),
}
"""Columns of the table, with headings and formats."""


class Ablations(Value, frozen=True, kw_only=True):
    """Themis on the testbed with both workloads, one choice changed at a time."""

    name: str = "ablations"
    title: str = "each choice that the paper leaves open against its alternatives"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Each alternative on both workloads."""
        return [
            _cell(variant, workload, scale, seed)
            for variant in VARIANTS
            if scale is Scale.PAPER or not variant.slow
            for workload in WORKLOADS
            for seed in range(1, seeds + 1)
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return rows of runs. The comparison divides each alternative by the default, run by run."""
        rows = tuple(
            {**row, "bids_an_auction": run.record.counts.bids / max(1, run.record.counts.auctions)}
            for row, run in zip(sweeps.rows_of_runs(done), done, strict=True)
        )
        present = {(row["choice"], row["alternative"]) for row in rows}
        variants = [each for each in VARIANTS[1:] if (each.choice, each.alternative) in present]
        compared = [line for variant in variants for line in _lines(rows, variant)]
        return Findings(rows=rows, comparisons=tuple(compared), remarks=_remarks(rows), causes=_causes(rows, variants))

    def draw(self, findings: Findings) -> Figure:
        """Draw the table: one row per alternative, one column per metric, medians over seeds.

        Each workload has one half.
        """
        rows = findings.rows
        names = list(dict.fromkeys((str(row["choice"]), str(row["alternative"])) for row in rows))
        figure = new_figure(1, width=12.5, height=0.9 + 0.24 * (2 * len(names) + 5))
        _table(figure.axes[0], rows, names)
        return figure


def _cell(variant: Variant, workload: str, scale: Scale, seed: int) -> Cell:
    settings = settings_of(CLUSTER, sweeps.OURS, seed)
    return Cell(
        labels={"workload": workload, "choice": variant.choice, "alternative": variant.alternative, "seed": seed},
        make_workload=make_workload,
        workload_arguments=workload_arguments(LOADS[scale][workload], seed, CLUSTER),
        settings=variant.applied_to(settings),
        make_agent=ranked_agent if variant.ranked_by else None,
        agent_arguments={"by": variant.ranked_by} if variant.ranked_by else {},
    )


def _lines(rows: Sequence[Row], variant: Variant) -> list[Comparison]:
    lines = []
    for workload in WORKLOADS:
        chosen = sweeps.where(rows, workload=workload)
        for column, what in ((sweeps.MAX_RHO, "max rho"), (sweeps.GPU_TIME, "GPU time")):
            lines.append(
                sweeps.line(
                    f"{what}, {variant.name} / {_short(variant.against)}, {workload}",
                    _ratio(chosen, column, variant),
                )
            )
    return lines


def _ratio(rows: Sequence[Row], column: str, variant: Variant) -> Summary:
    """A variant over the variant it is compared with, seed by seed."""
    usual = next(each for each in VARIANTS if each.name == variant.against)
    return sweeps.ratios(rows, column, _is(variant), _is(usual))


def _is(variant: Variant) -> dict[str, str]:
    return {"choice": variant.choice, "alternative": variant.alternative}


def _short(name: str) -> str:
    return name.removesuffix(f": {SHIPPED}")


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    settled = []
    for variant in VARIANTS[1:]:
        ratios = {
            workload: _ratio(sweeps.where(rows, workload=workload), sweeps.MAX_RHO, variant) for workload in WORKLOADS
        }
        if not all(ratio.runs for ratio in ratios.values()):
            continue
        settled.append((variant.name, _verdict(ratios)))
    by_verdict = [
        f"Max rho {verdict}: {', '.join(name for name, each in settled if each == verdict)}."
        for verdict in dict.fromkeys(verdict for _, verdict in settled)
    ]
    slow = [variant.name for variant in VARIANTS if variant.slow and not sweeps.where(rows, **_is(variant))]
    left_out = f" Left out at this scale: {'; '.join(slow)}." if slow else ""
    return (
        *by_verdict,
        _bidders(rows),
        "Ratios are of runs on the same workload and seed, by definition `themis`; the CSV has all five. "
        "Differences of a few percent are what another course of events makes anyway.",
        "These choices have no alternative to measure: leases are always renewed in place; leftovers renew first and "
        "then take least S; rounds are not delayed to join events." + left_out,
    )


def _bidders(rows: Sequence[Row]) -> str:
    """Payments and rounding matter only if apps compete in an auction. Often the filter admits only one bidder."""
    texts = []
    for workload in WORKLOADS:
        chosen = sweeps.where(rows, workload=workload)
        few = sweeps.over_seeds(chosen, "bids_an_auction", choice=DEFAULT).median
        many = sweeps.over_seeds(chosen, "bids_an_auction", choice="f", alternative="0").median
        texts.append(f"{workload} {few:.3g} (f = 0: {many:.3g})")
    return (
        f"Bids an auction by default: {', '.join(texts)}. An app that bids alone pays nothing, so where the filter "
        "lets one in, payments and their rounding have nothing to decide: compare them with f = 0."
    )


_QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "the restart cost": ("restart cost",),
    "the definition of rho that apps are filtered by": ("filter by",),
    "the value of the empty bundle": ("bundle rule",),
    "payments and their rounding": ("payments", "rounding"),
    "lease ends": ("lease ends",),
    "f": ("f",),
}
"""Choices that might be why numbers are not the paper's."""


def _causes(rows: Sequence[Row], variants: Sequence[Variant]) -> tuple[str, ...]:
    """What the ablations say about differences from the paper's numbers."""
    texts = []
    for question, choices in _QUESTIONS.items():
        ratios = [
            _ratio(sweeps.where(rows, workload=workload), sweeps.MAX_RHO, variant).median
            for variant in variants
            if variant.choice in choices
            for workload in WORKLOADS
        ]
        if ratios:
            texts.append(f"{question} {min(ratios):.2f} to {max(ratios):.2f}")
    leftovers = ", ".join(
        f"{workload} {sweeps.over_seeds(rows, 'leftover_share', workload=workload, choice=DEFAULT).median:.0%}"
        for workload in WORKLOADS
    )
    return (
        f"**Auctions have few bidders.** {_bidders(rows)} Leftovers, which no auction protects, are of all GPUs "
        f"granted: {leftovers}.",
        "**The effect of choices that the paper leaves open.** Max rho with another choice over max rho by "
        f"default, from the least to the largest median over both workloads and all alternatives: {'; '.join(texts)}. "
        "1 means no difference; another course of events alone changes it by some percent.",
    )


def _verdict(ratios: Mapping[str, Summary]) -> str:
    """Worse or better only if all seeds agree, on at least one workload."""
    worse = [name for name, ratio in ratios.items() if ratio.least > 1.0 + _MARGIN]
    better = [name for name, ratio in ratios.items() if ratio.most < 1.0 - _MARGIN]
    if worse and better:
        return f"is larger with every seed on {' and '.join(worse)}, smaller on {' and '.join(better)}"
    if worse:
        return f"is larger with every seed on {' and '.join(worse)}"
    if better:
        return f"is smaller with every seed on {' and '.join(better)}"
    return "changes with no workload in the same direction for every seed"


_MARGIN = 0.01


# ---- the table ------------------------------------------------------------------------------------------------------


def _table(axes: Axes, rows: Sequence[Row], names: Sequence[tuple[str, str]]) -> None:
    axes.set_axis_off()
    cells, shades, labels = [], [], []
    for workload in WORKLOADS:
        chosen = sweeps.where(rows, workload=workload)
        usual = {column: sweeps.over_seeds(chosen, column, choice=DEFAULT).median for column in TABLE}
        for choice, alternative in names:
            values = {
                column: sweeps.over_seeds(chosen, column, choice=choice, alternative=alternative).median
                for column in TABLE
            }
            cells.append([f"{values[column]:{form}}" for column, (_, form) in TABLE.items()])
            shades.append([_shade(column, values[column], usual[column]) for column in TABLE])
            labels.append(f"{workload}  {choice}: {alternative}")
    table = axes.table(
        cellText=cells,
        cellColours=shades,
        rowLabels=labels,
        colLabels=[heading for heading, _ in TABLE.values()],
        cellLoc="right",
        loc="center",
        bbox=Bbox.from_bounds(0.2, 0.0, 0.8, 1.0),
    )
    table.auto_set_font_size(False)
    table.set_fontsize(7.5)
    for (row, _), cell in table.get_celld().items():
        cell.set_edgecolor("#ffffff")
        cell.set_text_props(color=INK)
        if not row:
            cell.set_height(cell.get_height() * 2.6)
            cell.set_text_props(weight="bold")


def _shade(column: str, value: float, usual: float) -> str:
    """Red if the default is better by a twentieth, green if the alternative is, no colour otherwise."""
    if column in _NEITHER or not usual:
        return "#f7f7f7"
    ratio = value / usual
    if ratio > 1.0 + _TELLING:
        return "#f6cfc9"
    return "#cfe8d5" if ratio < 1.0 - _TELLING else "#f7f7f7"


_TELLING = 0.05
_NEITHER = ("leftover_share", "bids_an_auction")

EXPERIMENT = Ablations()
