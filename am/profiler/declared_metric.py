"""Read the metric that a user declares in the group file, by its name or by a regular expression."""

from __future__ import annotations

import re

from am.profiler.line_places import line_place
from am.profiler.numbers import NUMBER
from am.profiler.records import Metric
from themis.apps import MetricSpec


class DeclaredMetric:
    """Finds the values of one metric in lines of any format.

    A name matches before `=`, `:`, `|` or a blank, with or without quotes: `f1=0.3`, `"f1": 0.3`, `f1 0.3`, `f1 | 0.3`.
    A regular expression has the value in the group `value`, or in its first group, and may have a group `step`.

    Args:
        spec: The metric. It must have a name or a regular expression.
    """

    def __init__(self, spec: MetricSpec) -> None:
        named = rf"(?<![\w/.-]){re.escape(spec.name)}[\"']?(?:\s*[:=|]\s*|\s+)[\"'\[(]?(?P<value>{NUMBER})(?![\w]|\.\d)"
        self._pattern = re.compile(spec.regex or named)
        self._group = "value" if "value" in self._pattern.groupindex else 1
        self._has_step = "step" in self._pattern.groupindex

    def read(self, line: str) -> Metric | None:
        """Return the metric of a line. Returns None if it has none, or a value that is no number."""
        match = self._pattern.search(line)
        if match is None:
            return None
        step = match["step"] if self._has_step else None
        if step is None:
            text = line.replace('"', "").replace("'", "").lower()
            place = line_place(text, len(text))
            is_of_epoch = place.in_epoch or (place.epoch is not None and place.steps is not None)
            step = None if is_of_epoch else place.step
        try:
            return Metric(value=float(match[self._group]), step=None if step is None else int(step))
        except (TypeError, ValueError):
            return None
