"""Lines that call the loss a cost, as courses and early examples do.

Examples: `Cost after iteration 100: 0.69`, `Epoch: 0004 cost= 0.502`. Other costs are money and time, so a line has
nothing else. A program that names losses too is compared by these.
"""

from __future__ import annotations

import re

from am.profiler.line_places import LinePlace
from am.profiler.named_values import NamedValues
from am.profiler.numbers import NUMBER

_PLACE = r"(?:iteration|iter|epoch|step)"
_COST = re.compile(
    rf"cost (?:after|at) (?P<name>{_PLACE}) (?P<count>[0-9]{{1,12}}) ?[:=] ?(?P<value>{NUMBER})"
    rf"|(?P<before>{_PLACE}) ?[:=]? ?(?P<at>[0-9]{{1,12}})[,:]? *(?:- |\| |\.{{2,3}} )?"
    rf"(?:(?:avg\.? |average |training |train[ _])?cost ?[:=]? ?(?P<cost>{NUMBER}))?"
    rf"(?:[ ,|/-]{{0,3}}(?:val|valid|validation|test|dev)[ _]cost ?[:=]? ?(?P<held_out>{NUMBER}))?",
    re.IGNORECASE,
)


def read_cost(line: str) -> NamedValues | None:
    """Return the step or the epoch of a line and its cost, or None for any other line."""
    found = _COST.fullmatch(line.strip())
    if found is None:
        return None
    count = int(found["count"] or found["at"])
    is_epoch = (found["name"] or found["before"]).lower() == "epoch"
    place = LinePlace(epoch=count) if is_epoch else LinePlace(step=count)
    cost = found["value"] or found["cost"]
    held_out = found["held_out"]
    if cost is None and held_out is None:
        return None
    return NamedValues(
        place,
        loss=None if cost is None else float(cost),
        held_out_loss=None if held_out is None else float(held_out),
    )
