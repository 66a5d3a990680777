"""Ablations: each choice that the paper leaves open, compared with its alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from msgspec.structs import replace

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import RoundSettings
from themis.choices import Bidders, BidValues, BundleRule, EmptyBundle, LeaseEnds, LeftoverOrder, Rounding
from themis.values import Value
from themis_lab.paper import sweeps
from themis_lab.paper.macro import CLUSTER, LOADS
from themis_lab.paper.plans import LEAD_S, make_workload, settings_of, workload_arguments
from themis_lab.paper.plotting import COLOURS, GRID, INK, new_figure
from themis_lab.paper.port import Cell, Done, Findings, Scale
from themis_lab.paper.statistics import Row, Summary, median, summary
from themis_lab.paper.strategies import FILTERS, ranked_agent
from themis_lab.simulator.compare import RANKED_BY, ratios_by_seed
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.settings import Settings

STAGGERED = LeasePolicy(ends=LeaseEnds.STAGGERED, checkpoint_lead_s=LEAD_S)
DEFAULT, SHIPPED = "default", "as shipped"
WORKLOADS = ("w1", "w2")
COMPLETION, RESTARTS = "completion_mean_s", "restarts"


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
    Variant(choice="rounding", alternative="capped", rounds=RoundSettings(rounding=Rounding.CAPPED)),
    Variant(choice="bidders", alternative="pressed", rounds=RoundSettings(bidders=Bidders.PRESSED)),
    Variant(choice="values", alternative="seconds", rounds=RoundSettings(values=BidValues.SECONDS)),
    Variant(choice="values", alternative="slack", rounds=RoundSettings(values=BidValues.SLACK)),
    Variant(choice="leftovers", alternative="need", rounds=RoundSettings(leftovers=LeftoverOrder.NEED)),
    Variant(choice="leftovers", alternative="shortest", rounds=RoundSettings(leftovers=LeftoverOrder.SHORTEST)),
    Variant(
        choice="bidders and leftovers",
        alternative="pressed, shortest",
        rounds=RoundSettings(bidders=Bidders.PRESSED, leftovers=LeftoverOrder.SHORTEST),
    ),
    Variant(
        choice="bidders, values and leftovers",
        alternative="pressed, seconds, shortest",
        rounds=RoundSettings(bidders=Bidders.PRESSED, values=BidValues.SECONDS, leftovers=LeftoverOrder.SHORTEST),
    ),
    Variant(choice="restart cost", alternative="0 s", costs=Costs(checkpoint_s=0.0, container_s=0.0, restore_s=0.0)),
    Variant(choice="restart cost", alternative="60 s", costs=Costs(checkpoint_s=10.0, container_s=45.0, restore_s=5.0)),
    *(Variant(choice="filter by", alternative=name, ranked_by=name) for name in FILTERS),
    Variant(choice="f", alternative="0", rounds=RoundSettings(f=0.0)),
    Variant(choice="f", alternative="0.5", rounds=RoundSettings(f=0.5), slow=True),
    Variant(choice="f", alternative="1", rounds=RoundSettings(f=1.0)),
    Variant(choice="f and payments", alternative="0, off", rounds=RoundSettings(f=0.0, payments=False), against="f: 0"),
    Variant(
        choice="f and rounding",
        alternative="0, capped",
        rounds=RoundSettings(f=0.0, rounding=Rounding.CAPPED),
        against="f: 0",
    ),
    Variant(
        choice="f and values",
        alternative="0, seconds",
        rounds=RoundSettings(f=0.0, values=BidValues.SECONDS),
        against="f: 0",
    ),
    Variant(
        choice="f and leftovers",
        alternative="0, shortest",
        rounds=RoundSettings(f=0.0, leftovers=LeftoverOrder.SHORTEST),
        against="f: 0",
    ),
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
(`extension_pays`), and a gang is formed again only when leases of it end.
"""

HEADINGS = (
    "workload and choice",
    "ratio, median",
    "ratio, worst",
    "max rho, themis",
    "completion / default",
    "GPU time / default",
    "restarts / default",
    "wins voided",
)


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
        """Return rows of runs, and a table with a line per workload and variant."""
        rows = tuple(
            {**row, "bids_an_auction": run.record.counts.bids / max(1, run.record.counts.auctions)}
            for row, run in zip(sweeps.rows_of_runs(done), done, strict=True)
        )
        return findings_of(rows)

    def draw(self, findings: Findings) -> Figure:
        """Draw the ratio and the mean completion time of each alternative by seed, with a bar at the median."""
        variants = [VARIANTS[0], *_present(findings.rows)]
        figure = new_figure(2 * len(WORKLOADS), width=15.0, height=0.9 + 0.21 * len(variants), sharey=True)
        for number, axes in enumerate(figure.axes):
            workload, fairness = WORKLOADS[number // 2], number % 2 == 0
            rows = sweeps.where(findings.rows, workload=workload)
            scores = _scores(rows)
            for place, variant in enumerate(variants):
                values = list(scores[variant.name].values()) if fairness else _over_default(rows, COMPLETION, variant)
                axes.plot(values, [place] * len(values), "o", color=INK, markersize=3.5, alpha=0.5)
                axes.vlines(median(values), place - 0.35, place + 0.35, color=COLOURS["themis"], linewidth=2.0)
            axes.axvline(1.0, color=INK, linewidth=0.8)
            axes.grid(axis="x", color=GRID)
            axes.set_title(workload)
            axes.set_xlabel("ratio of max rho to the best" if fairness else "mean completion / default")
            axes.set_ylim(len(variants) - 0.4, -0.6)
        figure.axes[0].set_yticks(range(len(variants)), [variant.name for variant in variants])
        return figure


def findings_of(rows: Sequence[Row]) -> Findings:
    """The findings from the rows of runs."""
    variants = _present(rows)
    lines = [line for workload in WORKLOADS for line in _lines(sweeps.where(rows, workload=workload), workload)]
    return Findings(
        rows=tuple(rows),
        comparisons=(),
        table=(HEADINGS, *lines),
        remarks=_remarks(rows, variants),
        causes=_causes(rows, variants),
    )


def _present(rows: Sequence[Row]) -> list[Variant]:
    """The alternatives that were run, the auction's first."""
    present = {(row["choice"], row["alternative"]) for row in rows}
    return [variant for variant in VARIANTS[1:] if (variant.choice, variant.alternative) in present]


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


def _lines(rows: Sequence[Row], workload: str) -> list[tuple[str, ...]]:
    """A line per variant of one workload."""
    scores, lines = _scores(rows), []
    for variant in (VARIANTS[0], *_present(rows)):
        own = scores[variant.name].values()
        relative = [median(_over_default(rows, column, variant)) for column in (COMPLETION, sweeps.GPU_TIME, RESTARTS)]
        lines.append(
            (
                f"{workload}, {variant.name}",
                *(f"{value:.2f}" for value in (median(own), max(own))),
                f"{sweeps.over_seeds(rows, sweeps.MAX_RHO, **_is(variant)).median:.2f}",
                *(f"{value:.2f}" for value in relative),
                f"{sweeps.over_seeds(rows, 'wins_to_nothing', **_is(variant)).median:.0f}",
            )
        )
    return lines


def _scores(rows: Sequence[Row]) -> dict[str, dict[float, float]]:
    """`ratios_by_seed` of the variants of one workload: each against the best other one of the seed."""
    return ratios_by_seed(
        {
            "policy": f"{row['choice']}: {row['alternative']}",
            "seed": row["seed"],
            "max_rho": {name: row[f"max_rho_{name}"] for name in RANKED_BY},
        }
        for row in rows
    )


def _over_default(rows: Sequence[Row], column: str, variant: Variant) -> list[float]:
    """A variant over the default, seed by seed."""
    return _pairs(rows, column, variant, VARIANTS[0])


def _pairs(rows: Sequence[Row], column: str, variant: Variant, usual: Variant) -> list[float]:
    over, under = (
        {row["seed"]: float(row[column]) for row in sweeps.where(rows, **_is(each))} for each in (variant, usual)
    )
    return [over[seed] / under[seed] for seed in sorted(over.keys() & under.keys(), key=float) if under[seed]]


def _by_ratio(rows: Sequence[Row], variant: Variant) -> list[float]:
    """How the ratio changes against the variant that this one is compared with, seed by seed."""
    scores = _scores(rows)
    own, usual = scores[variant.name], scores[variant.against]
    return [own[seed] / usual[seed] for seed in sorted(own.keys() & usual.keys())]


def _by_paper(rows: Sequence[Row], variant: Variant) -> list[float]:
    """As `_by_ratio`, but of max rho by the paper's definition."""
    usual = next(each for each in VARIANTS if each.name == variant.against)
    return _pairs(rows, sweeps.MAX_RHO, variant, usual)


def _is(variant: Variant) -> dict[str, str]:
    return {"choice": variant.choice, "alternative": variant.alternative}


def _remarks(rows: Sequence[Row], variants: Sequence[Variant]) -> tuple[str, ...]:
    settled = []
    for variant in variants:
        ratios = {
            workload: summary(_by_ratio(sweeps.where(rows, workload=workload), variant)) for workload in WORKLOADS
        }
        if all(ratio.runs for ratio in ratios.values()):
            settled.append((variant.name, _verdict(ratios)))
    by_verdict = [
        f"The ratio {verdict}: {', '.join(name for name, each in settled if each == verdict)}."
        for verdict in dict.fromkeys(verdict for _, verdict in settled)
    ]
    slow = [variant.name for variant in VARIANTS if variant.slow and not sweeps.where(rows, **_is(variant))]
    left_out = f" Left out at this scale: {'; '.join(slow)}." if slow else ""
    return (
        *by_verdict,
        _bidders(rows),
        "The ratio is a variant's max rho over the smallest max rho of the other variants of the seed, by "
        f"{' or '.join(f'`{name}`' for name in RANKED_BY)}, whichever is larger; a max rho below 1 counts as 1. "
        "Completion time, GPU time and restarts are over those of the default with the same workload and seed; medians "
        "over seeds. Wins voided are those of which payments left nothing. In the sentences above, variants with f = 0 "
        "or staggered lease ends are compared with those alone. Differences of a few percent are what another course "
        "of events makes anyway.",
        "These choices have no alternative to measure: leases are always renewed in place; rounds are not delayed to "
        "join events." + left_out,
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
    "who bids": ("bidders",),
    "what bids are worth": ("values",),
    "who gets the leftovers": ("leftovers",),
    "payments and their rounding": ("payments", "rounding"),
    "f": ("f",),
    "the restart cost": ("restart cost",),
    "the definition of rho that apps are filtered by": ("filter by",),
    "the value of the empty bundle": ("bundle rule",),
    "lease ends": ("lease ends",),
}
"""Choices that might be why numbers are not the paper's."""


def _causes(rows: Sequence[Row], variants: Sequence[Variant]) -> tuple[str, ...]:
    """What the ablations say about differences from the paper's numbers."""
    texts = {}
    for measure, name in ((_by_ratio, "fluid"), (_by_paper, "themis")):
        parts = []
        for question, choices in _QUESTIONS.items():
            medians = [
                median(measure(sweeps.where(rows, workload=workload), variant))
                for variant in variants
                if variant.choice in choices
                for workload in WORKLOADS
            ]
            if medians:
                parts.append(f"{question} {min(medians):.2f} to {max(medians):.2f}")
        texts[name] = "; ".join(parts)
    leftovers = ", ".join(
        f"{workload} {sweeps.over_seeds(rows, 'leftover_share', workload=workload, choice=DEFAULT).median:.0%}"
        for workload in WORKLOADS
    )
    return (
        f"**Auctions have few bidders.** {_bidders(rows)} Leftovers, which no auction protects, are of all GPUs "
        f"granted: {leftovers}.",
        "**The effect of choices that the paper leaves open.** Max rho with another choice over max rho by "
        "default, from the least to the largest median over both workloads and all alternatives. By the ratio to the "
        f"best variant on the fluid fair cluster: {texts['fluid']}. By the paper's definition: {texts['themis']}. 1 "
        "means no difference; another course of events alone changes it by some percent.",
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

EXPERIMENT = Ablations()
