"""Losses without a name: fastai's lists without bars (`learn.no_bar()`), and Darknet's lines.

fastai: `[0, 0.67, 0.63, 0.65, '00:02']`, the epoch from 0, the losses of training and of held-out data, other metrics,
and the time. Darknet: `100: 2.31, 2.45 avg loss, 0.001 rate, 3.1 seconds, 6400 images`. There the average counts.
"""

from __future__ import annotations

import re

from am.profiler.line_places import LinePlace
from am.profiler.named_values import NamedValues
from am.profiler.numbers import NUMBER

_FASTAI = re.compile(
    rf"\[(?P<epoch>[0-9]{{1,9}}), (?P<loss>{NUMBER}), (?P<held_out>{NUMBER}|None)(?:, (?:{NUMBER}|None)){{0,50}}"
    r", '[0-9]{1,3}(?::[0-9]{2}){1,2}'\]"
)
_DARKNET = re.compile(rf"\s*(?P<step>[0-9]{{1,12}}): {NUMBER}, (?P<loss>{NUMBER}) avg(?: loss)?, {NUMBER} rate, .*")


def read_unnamed(line: str) -> NamedValues | None:
    """Return the step or the epoch of a line and its losses, or None for any other line."""
    if (darknet := _DARKNET.fullmatch(line)) is not None:
        return NamedValues(LinePlace(step=int(darknet["step"])), loss=float(darknet["loss"]))
    found = _FASTAI.fullmatch(line)
    if found is None:
        return None
    held_out = None if found["held_out"] == "None" else float(found["held_out"])
    return NamedValues(LinePlace(epoch=int(found["epoch"])), loss=float(found["loss"]), held_out_loss=held_out)
