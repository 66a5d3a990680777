"""When a number differs from the paper's so far that its line owes a sentence, and the words that such sentences share.

Why two numbers differ is told where it is known. Where it is not, the sentence says so.
"""

from __future__ import annotations

from themis_lab.paper.statistics import Summary

TOLERANCE = 0.05
"""The share of the paper's number by which ours may differ without a word."""

_ROUNDING = 1e-9
NOT_KNOWN = "why is not known"


def differs(ours: float, paper: float) -> bool:
    """Whether ours is farther from the paper's than `TOLERANCE` of it; nan is, and so is all but 0 from 0."""
    return not abs(ours - paper) <= TOLERANCE * (1.0 + _ROUNDING) * abs(paper)


def side(ours: float, paper: float) -> str:
    """`below the paper's` or `above the paper's`."""
    return f"{'below' if ours < paper else 'above'} the paper's"


def scatter_text(value: Summary, paper: float) -> str:
    """A part of a sentence: whether the paper's number lies among our runs; empty for a single run."""
    if value.runs < 2:
        return ""
    within = value.least <= paper <= value.most
    return f"the paper's is {'within' if within else 'beyond'} what runs scatter, {value.least:.3g} to {value.most:.3g}"


def lead_text(lead: float, paper: float) -> str:
    """What to say of a baseline's max rho over that of themis beside the paper's; empty where they are alike."""
    if lead < 1.0:
        return "its worst app fares better than that of themis"
    if not differs(lead, paper):
        return ""
    return f"the lead of themis is {'smaller' if lead < paper else 'larger'} than in the paper"


def sentence(*parts: str) -> str:
    """The parts that are not empty as one sentence; empty without any."""
    told = "; ".join(part.rstrip(".") for part in parts if part)
    return f"{told}." if told else ""
