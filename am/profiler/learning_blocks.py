"""Blocks that RSL-RL prints for each iteration of reinforcement learning.

Example: `Learning iteration 12/100`, and below it a name and a value a line: `Mean surrogate loss: -0.004`,
`Mean entropy loss: 16.7`, `Mean reward: 3.2`. The losses do not say how good a policy is. So a block is progress only,
unless a loss is no number. The reward can be declared as the metric.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from am.profiler.records import Record, StepLoss

_HEAD = re.compile(r"\W*learning iteration (?P<done>[0-9]{1,12})/[0-9]{1,12}\W*", re.IGNORECASE)
_ROW = re.compile(r"\s+[A-Za-z][\w /()-]{0,80}: .*|[\s-]*")
_DIVERGED = re.compile(r"loss: *[-+]?(?:nan|inf)", re.IGNORECASE)


class LearningBlocks:
    """Reads the iteration of a block, and passes over its rows."""

    def __init__(self) -> None:
        self._is_open = False

    def read(self, line: str) -> Sequence[Record] | None:
        """Return the records of a line of a block.

        Returns None for a loss that is no number, and for any other line, which ends the block.
        """
        if "earning iteration" in line and (head := _HEAD.fullmatch(line)):
            self._is_open = True
            return (StepLoss(step=int(head["done"]), loss=None),)
        self._is_open = self._is_open and _ROW.fullmatch(line) is not None
        return () if self._is_open and _DIVERGED.search(line) is None else None
