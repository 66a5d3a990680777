"""The figures and tables of each workload, in the order of the report."""

from __future__ import annotations

from collections.abc import Mapping

from themis_lab.paper.live.findings import View
from themis_lab.paper.live.views.agreement import AGREEMENT
from themis_lab.paper.live.views.efficiency import FIG11, FIG12
from themis_lab.paper.live.views.fairness import FIG9, FIG10
from themis_lab.paper.live.views.overheads import OVERHEADS
from themis_lab.paper.live.views.pair import TAB5
from themis_lab.paper.live.views.placement import FIG13

VIEWS: Mapping[str, tuple[View, ...]] = {
    "w1": (FIG9, FIG11, FIG13, TAB5, OVERHEADS, AGREEMENT),
    "w2": (FIG10, FIG12, FIG13, TAB5, OVERHEADS, AGREEMENT),
}
