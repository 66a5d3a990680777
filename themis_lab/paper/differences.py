"""The sentences that explain differences from the paper's numbers, and when a line needs one.

The sentence gives the reason if it is known, and otherwise says that it is not.
"""

from __future__ import annotations

from themis_lab.paper.statistics import Summary

TOLERANCE = 0.05
"""Relative difference from the paper's number up to which a line needs no sentence."""

_ROUNDING = 1e-9
NOT_KNOWN = "why is not known"


def differs(ours: float, paper: float) -> bool:
    """Whether ours differs from the paper's by more than `TOLERANCE` of it.

    Nan differs; from 0 every other number does.
    """
    return not abs(ours - paper) <= TOLERANCE * (1.0 + _ROUNDING) * abs(paper)


def shown(value: float) -> float:
    """A number as the tables show it: 1.0004 is 1, so it is not "above 1" for a reader."""
    return float(f"{value:.3g}")


def side(ours: float, paper: float) -> str:
    """`below the paper's` or `above the paper's`."""
    return f"{'below' if ours < paper else 'above'} the paper's"


def scatter_text(value: Summary, paper: float) -> str:
    """Return part of a sentence: whether the paper's number lies within the range of our runs.

    Empty for a single run.
    """
    if value.runs < 2:
        return ""
    within = value.least <= paper <= value.most
    return f"the paper's is {'within' if within else 'beyond'} what runs scatter, {value.least:.3g} to {value.most:.3g}"


def lead_text(lead: float, paper: float) -> str:
    """Compare a baseline's max rho over that of themis with the paper's. Empty if they are about equal."""
    if lead < 1.0:
        return "its worst app fares better than that of themis"
    if not differs(lead, paper):
        return ""
    return f"the lead of themis is {'smaller' if lead < paper else 'larger'} than in the paper"


def sentence(*parts: str) -> str:
    """Join the parts that are not empty into one sentence. Empty if all are."""
    joined = "; ".join(part.rstrip(".") for part in parts if part)
    return f"{joined}." if joined else ""
