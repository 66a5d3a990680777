"""Tables whose head names the columns: fastai, Ultralytics, spaCy, scikit-learn's `verbose`, and logs in CSV.

Example: `epoch     train_loss  valid_loss  accuracy  time`, then `0         0.412       0.391       0.85      00:10`.
Columns may also be the sets of data, and rows the values: `Training | Validation`, then `loss | 0.412 | 0.391`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from am.profiler.numbers import NUMBER

_BORDERS = "|,; \t│┃║"
_COLUMN = re.compile(r"\s*[,;|│┃║]\s*|\s{2,}|\t+")
_COUNTERS = {"e": "epoch", "#": "step", "it": "step"} | {
    name: name for name in ("epoch", "step", "iter", "iteration", "global_step", "round")
}
"""Names of the first column, and what they count."""
_HEAD_LETTERS = frozenset("esigrESIGR#")
"""The first letters of `_COUNTERS`, in both cases: a quick test for the head of a table."""
_NAME = re.compile(r"[A-Za-z_]*(?:epoch|step|iter|iteration|time|loss|acc|accuracy|lr|auc|f1)s?", re.IGNORECASE)
"""A name in a head whose columns are separated by single spaces, as the words of a sentence are."""
_LOSS = re.compile(r"loss|(?:^|_)(?:r?mse|mae|nll|ppl)(?:_|$)", re.IGNORECASE)
_OF_BOXES = frozenset(("box", "obj", "cls", "dfl"))
"""The losses of detectors, which tables of YOLO name without the word."""
_SET = r"(?:train|training|valid|validation|val|dev|test)"
_SETS_HEAD = re.compile(
    rf"(?:.{{0,200}}[\s|│])?(?P<sets>train(?:ing)?(?:\s*[|│]\s*{_SET}){{1,2}})\s*[|│]?", re.IGNORECASE
)
_SETS_ROW = re.compile(
    rf"(?:.{{0,200}}[\s│])?(?P<name>[\w./-]{{0,60}}loss)\s*(?P<values>(?:[|│]\s*(?:{NUMBER}|n/a)\s*){{2,3}})[|│]?",
    re.IGNORECASE,
)


class LogTable:
    """Turns the rows of a table into `name=value` text, once its head was seen."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._sets: list[str] = []

    def row(self, line: str) -> str:
        """Return a row as `name=value` pairs. Empty for any other line, which ends the table unless it is blank."""
        if ("|" in line or "│" in line) and (row := self._row_of_sets(line)):
            return row
        text = line.strip(_BORDERS)
        if not text or not (self._columns or text[0] in _HEAD_LETTERS):
            return ""
        if text[0] == "#":
            # A head that is marked as a comment: its rows have no such column.
            text = text.lstrip("# ") or text
        cells = _COLUMN.split(text)
        if len(cells) == 1 and text[0] in _HEAD_LETTERS:
            words = text.split()
            cells = words if all(_NAME.fullmatch(word) for word in words) else [text]
        if cells[0].lower() in _COUNTERS and (columns := _columns(cells)):
            self._columns = columns
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

    def _row_of_sets(self, line: str) -> str:
        """Return a row whose columns are sets of data. Of two held-out sets, the first one counts."""
        if head := _SETS_HEAD.fullmatch(line):
            self._sets = [each.strip() for each in re.split(r"[|│]", head["sets"])]
        found = _SETS_ROW.fullmatch(line) if self._sets else None
        if found is None:
            return ""
        values = re.split(r"[|│]", found["values"])[1:]
        return " ".join(
            f"{each} {found['name']}={value.strip()}" for each, value in zip(self._sets, values, strict=False)
        )


def _columns(cells: Sequence[str]) -> list[str]:
    """Return the names of the columns. Empty if none is a loss."""
    names = [cell.strip() for cell in cells]
    if len(_OF_BOXES & {name.lower() for name in names}) > 1:
        names = [f"{name}_loss" if name.lower() in (*_OF_BOXES, "total") else name for name in names]
    if not any(_LOSS.search(name) for name in names[1:]):
        return []
    # `LOSS NER` is a part, as `NER_LOSS` is.
    names = [f"{name[5:].replace(' ', '_')}_loss" if name[:5].lower() == "loss " else name for name in names]
    return [_COUNTERS.get(names[0].lower(), names[0]), *(_COUNTERS.get(name.lower(), name) for name in names[1:])]
