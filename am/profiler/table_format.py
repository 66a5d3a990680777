"""Tables whose head names the columns: fastai, Ultralytics, scikit-learn's `verbose`, and logs in CSV.

Example: `epoch     train_loss  valid_loss  accuracy  time`, then `0         0.412       0.391       0.85      00:10`.
"""

from __future__ import annotations

import re

_BORDERS = "|,; \t│┃║"
_COLUMN = re.compile(r"\s*[,;|│┃║]\s*|\s{2,}|\t+")
_COUNTERS = ("epoch", "step", "iter", "iteration", "global_step")
_HEAD_LETTERS = "esigESIG"
"""The first letters of `_COUNTERS`, in both cases: a quick test for the head of a table."""


class LogTable:
    """Turns the rows of a table into `name=value` text, once its head was seen."""

    def __init__(self) -> None:
        self._columns: list[str] = []

    def row(self, line: str) -> str:
        """Return a row as `name=value` pairs. Empty for any other line, which ends the table unless it is blank."""
        text = line.strip(_BORDERS)
        if not text or not (self._columns or (text[0] in _HEAD_LETTERS and ("oss" in text or "OSS" in text))):
            return ""
        cells = _COLUMN.split(text)
        if cells[0].lower() in _COUNTERS and any("loss" in cell.lower() for cell in cells[1:]):
            self._columns = [cell.strip() for cell in cells]
            return ""
        if not self._columns or not cells[0][:1].isdigit():
            # Rulers begin with other characters.
            if text[0].isalnum():
                self._columns = []
            return ""
        values = cells if len(cells) >= len(self._columns) else text.split()
        if len(values) < len(self._columns):
            return ""
        return " ".join(f"{name}={value.split(':')[0]}" for name, value in zip(self._columns, values, strict=False))
