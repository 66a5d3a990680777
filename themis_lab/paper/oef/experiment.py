"""What every experiment on OEF has in common: the rules, and their colours."""

from __future__ import annotations

from collections.abc import Mapping

from rm_plugin.policies.oef.evaluator import Rule
from rm_plugin.policies.oef.registry import rule_named
from rm_plugin.solvers.highs_linear import HighsModel

OURS = ("cooperative", "noncooperative")
COLOURS: Mapping[str, str] = {
    "cooperative": "#c0392b",
    "noncooperative": "#e08e1b",
    "gandiva_fair": "#2e86ab",
    "gavel": "#4c9f70",
    "gavel_capped": "#9c6644",
    "max_min": "#7f8c8d",
    "pure_efficiency": "#8e6bbf",
}
"""One colour per rule in every figure."""


def rule(name: str) -> Rule:
    """An allocation rule over HiGHS."""
    return rule_named(name, HighsModel)
