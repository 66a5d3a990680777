"""System overheads (NSDI'20, section 6.2.3): bids and auctions are timed; the restart cost is a setting here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper import macro
from themis_lab.paper.differences import differs, sentence, side
from themis_lab.paper.plotting import INK, PAPER, cdf_lines, legend_below, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, grouped, median, numbers, summary
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.metrics import percentile

_MAX_POINTS = 200
_PAPER = {
    ("bid", 0.5): 29.0,
    ("bid", 0.95): 334.0,
    ("auction", 0.5): 354.0,
    ("auction", 0.95): 1398.0,
    ("restart share", 0.5): 0.2,
    ("restart share", 0.95): 2.0,
}
_SLOW_RESTART_S = 60.0
"""The paper's 95th percentile of a resize, 50 s, and the longest of its checkpoints, 10 s."""

_DIFFERENT = {
    "bid": "the paper's bids list GPUs, ours rows over gangs, and the machines are others",
    "auction": "the paper's are solved by Gurobi on other machines, and how many bids they have is not known",
    "restart share": (
        f"a restart takes {Costs().restart_s:g} s by a setting, and how often the paper's jobs have one is not known"
    ),
}
"""Reasons why a number may differ, for each quantity."""

_QUANTILES = {0.5: "median", 0.95: "95th percentile"}


class Overheads(Value, frozen=True, kw_only=True):
    """Bids and auctions of the production code, timed in the runs of figures 9 and 10 under themis."""

    name: str = "overheads"
    title: str = "system overheads"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """The runs of themis."""
        names = (macro.OURS,)
        return [*macro.macro_cells("w1", scale, seeds, names), *macro.macro_cells("w2", scale, seeds, names)]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return rows of quantiles: of times in milliseconds, and of the share of each app's life spent on restarts."""
        rows = tuple(row for run in done for row in _rows(run))
        lines = [_line(rows, what, quantile) for what in _DIFFERENT for quantile in _QUANTILES]
        costs = Costs()
        lines += [
            Comparison(
                what="resize: containers and restore, a setting of the simulator (s)",
                paper="35, 95th percentile 50",
                ours=costs.container_s + costs.restore_s,
                remark="taken from the paper, not measured.",
            ),
            Comparison(
                what="checkpoint before GPUs are given back, a setting (s)",
                paper="5 to 10",
                ours=costs.checkpoint_s,
                remark="taken from the paper, not measured.",
            ),
        ]
        return Findings(rows=rows, comparisons=tuple(lines), remarks=_remarks(done), claims=(_claim(lines),))

    def draw(self, findings: Findings) -> Figure:
        """Draw CDFs of the time of a bid and of an auction, one line per workload and kind of lease ends."""
        figure = new_figure(2, height=3.4, sharey=True)
        for axes, what in zip(figure.axes, ("bid", "auction"), strict=True):
            rows = [row for row in findings.rows if row["what"] == what]
            groups = grouped(rows, "workload", "ends")
            series = {
                f"workload {str(workload)[1:]}, {ends}": numbers(group, "value")
                for (workload, ends), group in groups.items()
            }
            points = [(_PAPER[what, quantile], quantile) for quantile in _QUANTILES]
            axes.plot(*zip(*points, strict=True), "D", color="white", markeredgecolor=INK, label=PAPER)
            cdf_lines(axes, series, "milliseconds", log=True)
            axes.set(title=f"one {what}", ylabel=f"share of {what}s")
        legend_below(figure)
        return figure


def _rows(run: Done) -> list[Row]:
    """The distribution at up to 200 quantiles, so that the figure needs no other data."""
    counts, restart_s = run.record.counts, Costs().restart_s
    series: Mapping[str, list[float]] = {
        "bid": [seconds * 1e3 for seconds in counts.bid_s],
        "auction": [seconds * 1e3 for seconds in counts.auction_s],
        "restart share": [100.0 * app.restarts / app.jobs * restart_s / app.completion_s for app in run.record.apps],
    }
    rows: list[Row] = []
    for what, values in series.items():
        points = min(_MAX_POINTS, len(values))
        for place in range(points):
            share = (place + 0.5) / points
            rows.append({**run.cell.labels, "what": what, "quantile": share, "value": percentile(values, share)})
    return rows


def _line(rows: Sequence[Row], what: str, quantile: float) -> Comparison:
    """A quantile of each run, and the median over runs."""
    runs = grouped((row for row in rows if row["what"] == what), "workload", "ends", "seed")
    values = summary(percentile(numbers(run, "value"), quantile) for run in runs.values())
    paper = _PAPER[what, quantile]
    name = "restarts of a job, share of its app's life (%)" if what == "restart share" else f"one {what} (ms)"
    remark = ""
    if differs(values.median, paper):
        more = _restarts(rows, quantile, values.median) if what == "restart share" else ()
        remark = sentence(f"{side(values.median, paper)}: {_DIFFERENT[what]}", *more)
    return macro.line(f"{name}, {_QUANTILES[quantile]}", values, paper=f"{paper:g}", number=paper, remark=remark)


def _restarts(rows: Sequence[Row], quantile: float, share: float) -> tuple[str, ...]:
    """Parts of a sentence: the share by workload, and the share if every restart were slow."""
    workloads = grouped((row for row in rows if row["what"] == "restart share"), "workload")
    by_workload = {
        name: median(percentile(numbers(run, "value"), quantile) for run in grouped(group, "ends", "seed").values())
        for (name,), group in workloads.items()
    }
    shares = " and ".join(f"{value:.3g} on workload {str(name)[1:]}" for name, value in by_workload.items())
    slow = share * _SLOW_RESTART_S / Costs().restart_s
    return (
        f"it is {shares}",
        f"at {_SLOW_RESTART_S:g} s, the paper's slow resize and checkpoint, it would be {slow:.3g}",
    )


def _claim(lines: Sequence[Comparison]) -> PaperClaim:
    ours = {line.what: line.ours for line in lines}
    texts = [
        f"{what}s " + " and ".join(f"{ours[f'one {what} (ms), {name}']:.3g}" for name in _QUANTILES.values()) + " ms"
        for what in ("bid", "auction")
    ]
    return PaperClaim(
        paper="bids 29 and 334 ms, auctions 354 and 1,398 ms, median and 95th percentile (overheads)",
        here=", ".join(texts),
    )


def _remarks(done: Sequence[Done]) -> tuple[str, ...]:
    rounds = sum(run.record.counts.rounds for run in done)
    auctions = sum(run.record.counts.auctions for run in done)
    unproven = sum(run.record.counts.auctions_unproven for run in done)
    cut = sum(run.record.counts.bids_cut for run in done)
    bidders = median(run.record.counts.bids / max(1, run.record.counts.auctions) for run in done)
    return (
        f"Times are of this machine with several runs at a time, over {rounds:,} rounds and {auctions:,} auctions of "
        f"{bidders:.2g} bids each; {unproven:,} auctions ended without a proof, {cut:,} bids left rows out.",
        "A ratio of times gives the order of magnitude only. `themis bench auction` times larger markets.",
    )


EXPERIMENT = Overheads()
