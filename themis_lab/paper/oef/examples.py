"""Figures 1 and 2: the paper's two small examples, one GPU of each type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rm_plugin.policies.oef.fair_share import FairShare
from rm_plugin.policies.oef.speedup import Instance, Tenant, normalise
from themis.values import Value
from themis_lab.paper.oef.experiment import COLOURS, rule
from themis_lab.paper.oef.workload import LSTM, VGG
from themis_lab.paper.own_runs import line, panel_of, point, row
from themis_lab.paper.plotting import grouped_bars, legend_below, new_figure
from themis_lab.paper.port import Findings, PaperClaim, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _shares(name: str, *fastest: float) -> FairShare:
    """Tenants with these speedups on the faster of two types."""
    tenants = tuple(Tenant(tenant_id=f"u{place}", speedup=(1.0, value)) for place, value in enumerate(fastest, start=1))
    return rule(name)(normalise(Instance(types=("slow", "fast"), capacity=(1, 1), tenants=tenants)))


class DiverseSpeedups(Value, frozen=True, kw_only=True):
    """Figure 1: VGG and LSTM gain differently from a fast GPU, so an equal split wastes it."""

    name: str = "oef_fig1"
    title: str = "diverse speedups, and what max-min fairness loses by ignoring them"

    def run(self, _scale: Scale, _seeds: int) -> Findings:
        """Exact; seeds have no effect."""
        plain, fair = _shares("max_min", VGG, LSTM), _shares("cooperative", VGG, LSTM)
        rows = [row("speedup", "rtx3090", model, 1, value) for model, value in (("VGG", VGG), ("LSTM", LSTM))]
        for name, shares in (("max_min", plain), ("cooperative", fair)):
            for model, tenant in (("VGG", "u1"), ("LSTM", "u2")):
                rows.append(row("efficiency", name, model, 1, shares.efficiency[tenant]))
        ratio = fair.efficiency["u2"] / plain.efficiency["u2"]
        rows.append(row("summary", "cooperative", "LSTM over max-min", 1, ratio))
        rows.append(row("summary", "max_min", "total over cooperative", 1, plain.total / fair.total - 1))
        lstm = point(rows, "summary", "cooperative", "LSTM over max-min")
        total = point(rows, "summary", "max_min", "total over cooperative")
        return Findings(
            rows=tuple(rows),
            comparisons=(
                line("speedup of VGG", point(rows, "speedup", "rtx3090", "VGG"), paper="1.39", number=VGG),
                line("speedup of LSTM", point(rows, "speedup", "rtx3090", "LSTM"), paper="2.15", number=LSTM),
                line("LSTM, cooperative over max-min", lstm, paper="1.18", number=1.18, band=(1.16, 1.20)),
                line(
                    "total of max-min over cooperative, minus 1",
                    total,
                    paper="-0.10",
                    number=-0.10,
                    band=(-0.12, -0.08),
                    why="The paper says about 10 %; this is exact.",
                ),
            ),
            claims=(
                PaperClaim(
                    paper="max-min slows LSTM down 1.18 times (fig. 1)", here=f"{lstm.median:.3f} times, by computation"
                ),
            ),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw speedups, and efficiencies by rule."""
        figure = new_figure(2, width=7.0)
        for axes, panel, label in zip(figure.axes, ("speedup", "efficiency"), ("speedup", "slow GPUs"), strict=True):
            groups, series = panel_of(findings.rows, panel)
            grouped_bars(axes, [str(group) for group in groups], series, colours=COLOURS, labels=".2f")
            axes.set(ylabel=label, title=f"({'ab'[panel == 'efficiency']}) {panel}")
            axes.legend(loc="upper left")
        return figure


class CooperativeLie(Value, frozen=True, kw_only=True):
    """Figure 2: under cooperative OEF a tenant that inflates its speedup gets more."""

    name: str = "oef_fig2"
    title: str = "a lie pays under cooperative OEF (theorems 3.2 and 3.3)"

    def run(self, _scale: Scale, _seeds: int) -> Findings:
        """Exact; seeds have no effect."""
        honest, lied = _shares("cooperative", 2, 4), _shares("cooperative", 3, 4)
        rows = [
            row("fast GPU", series, tenant, 1, shares.share[tenant][1])
            for series, shares in (("honest", honest), ("u1 claims 3", lied))
            for tenant in ("u1", "u2")
        ]
        return Findings(
            rows=tuple(rows),
            comparisons=tuple(
                line(
                    f"fast GPUs of {tenant}, {series}",
                    point(rows, "fast GPU", series, tenant),
                    paper=f"{number:.2f}",
                    number=number,
                    band=(number - 0.005, number + 0.005),
                )
                for series, tenant, number in (
                    ("honest", "u1", 0.25),
                    ("honest", "u2", 0.75),
                    ("u1 claims 3", "u1", 0.33),
                    ("u1 claims 3", "u2", 0.67),
                )
            ),
            claims=(
                PaperClaim(paper="cooperative OEF is not strategy-proof (fig. 2)", here="the same numbers, exactly"),
            ),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw the fast GPU's shares, honest and not."""
        figure = new_figure()
        groups, series = panel_of(findings.rows, "fast GPU")
        grouped_bars(figure.axes[0], [str(group) for group in groups], series, labels=".2f")
        figure.axes[0].set(ylabel="fast GPUs", title="GPUs of the fast type")
        legend_below(figure)
        return figure


EXPERIMENTS = (DiverseSpeedups(), CooperativeLie())
