"""Which figures and tables belong to which workload, in the order of the report."""

from __future__ import annotations

from collections.abc import Mapping

from experiment.findings import View
from experiment.views.agreement import AGREEMENT
from experiment.views.efficiency import FIG11, FIG12
from experiment.views.fairness import FIG9, FIG10
from experiment.views.overheads import OVERHEADS
from experiment.views.pair import TAB5
from experiment.views.placement import FIG13

VIEWS: Mapping[str, tuple[View, ...]] = {
    "w1": (FIG9, FIG11, FIG13, TAB5, OVERHEADS, AGREEMENT),
    "w2": (FIG10, FIG12, FIG13, TAB5, OVERHEADS, AGREEMENT),
}
