"""Lists that fastai prints without bars (`learn.no_bar()`): `[0, 0.67, 0.63, 0.65, '00:02']`.

They have no names: the epoch from 0, the losses of training and of held-out data, other metrics, and the time.
"""

from __future__ import annotations

import re

from am.profiler.line_places import LinePlace
from am.profiler.named_values import NamedValues
from am.profiler.numbers import NUMBER

_LIST = re.compile(
    rf"\[(?P<epoch>[0-9]{{1,9}}), (?P<loss>{NUMBER}), (?P<held_out>{NUMBER}|None)(?:, (?:{NUMBER}|None)){{0,50}}"
    r", '[0-9]{1,3}(?::[0-9]{2}){1,2}'\]"
)


def read_fastai(line: str) -> NamedValues | None:
    """Return the epoch and the losses of a line, or None for any other line."""
    found = _LIST.fullmatch(line)
    if found is None:
        return None
    held_out = None if found["held_out"] == "None" else float(found["held_out"])
    return NamedValues(LinePlace(epoch=int(found["epoch"])), loss=float(found["loss"]), held_out_loss=held_out)
