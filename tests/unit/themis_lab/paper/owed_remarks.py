"""Which lines of a table need a remark by the rule of the page: those where the paper's number and ours differ."""

import re

from themis_lab.paper.differences import TOLERANCE, differs

NUMBER = re.compile(r"(?:about |near )?(-?\d[\d,]*(?:\.\d+)?)")
BETWEEN = re.compile(r"(\d+) to (\d+)")
EITHER = re.compile(r"(\d+) and (\d+)")

WORDS = {
    "alike": lambda ours: not differs(ours, 1.0),
    "equal": lambda ours: not differs(ours, 1.0),
    "less": lambda ours: ours < 1.0,
    "no less": lambda ours: ours >= 1.0 or not differs(ours, 1.0),
    "far more": lambda ours: ours > 1.0 + TOLERANCE,
    "above 1": lambda ours: ours > 1.0,
    "above 1; srsf": lambda ours: ours > 1.0,
    "below 1": lambda ours: ours < 1.0,
    "almost all": lambda ours: ours >= 1.0 - TOLERANCE,
    "no gain": lambda ours: ours <= 0.0,
}
"""Whether our value matches what the paper says in words."""

BESIDE_OTHERS = {"least", "nearest to 1", "35, 95th percentile 50"}
"""Quantities that our number alone does not show: the paper compares it with other policies, or gives two."""


def owes(paper, ours):
    """Whether a line owes a sentence; `paper` as the table prints it. Unlisted words are an error."""
    if not paper or paper in BESIDE_OTHERS:
        return False
    if number := NUMBER.fullmatch(paper):
        return differs(ours, float(number[1].replace(",", "")))
    if ends := BETWEEN.fullmatch(paper):
        return not float(ends[1]) <= ours <= float(ends[2])
    if points := EITHER.fullmatch(paper):
        return ours not in {float(points[1]), float(points[2])}
    return not WORDS[paper](ours)


def silent(findings):
    """The lines of findings that owe a sentence and have none."""
    return [(line.what, line.paper, line.ours) for line in findings.comparisons if _is_silent(line)]


def _is_silent(line):
    value = line.paper_value
    return not line.remark and (owes(line.paper, line.ours) or (value is not None and differs(line.ours, value)))
