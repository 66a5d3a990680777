"""Lines that call the loss a cost, or give an error or a perplexity instead, as courses and early examples do.

Examples: `Cost after iteration 100: 0.69`, `Epoch: 0004 cost= 0.502`, `Epoch 3: train RMSE 0.5, test RMSE 0.6`,
`Iter 300 .. NLL: 1.23`. Other costs are money and time, so a line has nothing else. A program that names losses too is
compared by these.
"""

from __future__ import annotations

import re

from am.profiler.line_places import LinePlace
from am.profiler.named_values import NamedValues
from am.profiler.numbers import NUMBER

_NAME = r"(?:cost|r?mse|mae|nll|ppl|perplexity)"
_PLACE = r"(?:iteration|iter|epoch|step)"
_SETS = r"(?:avg\.? |average |training |train[ _])?"
_HELD_OUT = r"(?:val|valid|validation|test|dev)[ _]"
_COST = re.compile(
    rf"{_NAME} (?:after|at) (?P<name>{_PLACE}) (?P<count>[0-9]{{1,12}}) ?[:=] ?(?P<value>{NUMBER})"
    rf"|(?P<before>{_PLACE}) ?[:=]? ?(?P<at>[0-9]{{1,12}})[,:]? *(?:- |\| |\.{{2,3}} )?"
    rf"(?:{_SETS}{_NAME} ?[:=]? ?(?P<cost>{NUMBER}))?"
    rf"(?:[ ,|/-]{{0,3}}{_HELD_OUT}{_NAME} ?[:=]? ?(?P<held_out>{NUMBER}))?",
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
