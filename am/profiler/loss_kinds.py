"""Which of the losses that a program prints on lines of their own are compared: totals before parts before errors."""

from __future__ import annotations

from am.profiler.line_places import LinePlace
from am.profiler.named_values import PART, TOTAL

_MAX_PLACES = 3


class LossKinds:
    """Keeps to one kind of loss, so that a part, or an error in another unit, does not follow a total.

    A better kind replaces the one before. A worse one does so after three steps or epochs without it.

    Example: of `policy_loss: 0.1`, `total_loss: 0.9` and `vf_loss: 0.8` below each other, the last one does not count.
    """

    def __init__(self) -> None:
        self._kind: str | None = None
        self._places: set[LinePlace] = set()

    def counts(self, kind: str, place: LinePlace) -> bool:
        """Return whether a loss of this kind, of the line at this place, counts."""
        if kind != self._kind:
            if self._kind is not None and _rank(kind) >= _rank(self._kind):
                if place.step is not None or place.epoch is not None:
                    self._places.add(place)
                if len(self._places) <= _MAX_PLACES:
                    return False
            self._kind = kind
        self._places.clear()
        return True


def _rank(kind: str) -> int:
    return {TOTAL: 0, PART: 1}.get(kind, 2)
