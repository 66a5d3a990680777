"""Lines that call the loss a cost, as courses and TensorFlow's early examples do.

Examples: `Cost after iteration 100: 0.69`, `Epoch: 0004 cost= 0.502`, `step 40, cost: 0.69`. Other costs are money and
time, so a line has nothing else.
"""

from __future__ import annotations

import re

from am.profiler.line_places import LinePlace
from am.profiler.named_values import NamedValues
from am.profiler.numbers import NUMBER

_COST = re.compile(
    rf"cost (?:after|at) (?P<name>iteration|epoch|step) (?P<count>[0-9]{{1,12}}) ?[:=] ?(?P<value>{NUMBER})"
    rf"|(?P<before>iteration|epoch|step) ?[:=]? ?(?P<at>[0-9]{{1,12}}),? *(?:- |\| )?(?:avg\.? |average |training )?"
    rf"cost ?[:=] ?(?P<cost>{NUMBER})",
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
    return NamedValues(place, loss=float(found["value"] or found["cost"]))
