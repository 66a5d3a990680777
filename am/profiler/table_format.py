"""Tables whose head names the columns: fastai, Ultralytics, spaCy, scikit-learn's `verbose`, and logs in CSV.

Example: `epoch     train_loss  valid_loss  accuracy  time`, then `0         0.412       0.391       0.85      00:10`.
Columns may also be the sets of data, and rows the values: `Training | Validation`, then `loss | 0.412 | 0.391`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from am.profiler.numbers import NUMBER
from themis.sums import sum_in_order

_BORDERS = "|,; \t│┃║"
_COLUMN = re.compile(r"\s*[,;|│┃║]\s*|\s{2,}|\t+")
_COUNTERS = {"e": "epoch", "#": "step", "it": "step", "counter": "step"} | {
    name: name for name in ("epoch", "step", "iter", "iteration", "global_step", "round")
}
"""Names of a column, usually the first one, and what they count."""
_HEAD_LETTERS = frozenset("esigrlESIGRL#")
"""The first letters of `_COUNTERS` and of a loss, in both cases: a quick test for the head of a table."""
_NAME = re.compile(r"[A-Za-z_]*(?:epoch|step|iter|iteration|time|loss|acc|accuracy|lr|auc|f1)s?", re.IGNORECASE)
"""A name in a head whose columns are separated by single spaces, as the words of a sentence are."""
_WORD = re.compile(r"[a-z]+(?:_[a-z0-9]+)*", re.IGNORECASE)
_LIST = re.compile(rf"\[ *{NUMBER}(?:, *{NUMBER})* *\]")
"""The parts of a loss, as DeepXDE prints them: `[1.2e-02, 4.5e-03]`. Their sum counts."""
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
        if self._columns and "[" in text:
            text = _LIST.sub(_sum, text)
        cells = _COLUMN.split(text)
        head = _head_cells(text, cells) if text[0] in _HEAD_LETTERS else cells
        if (head[0].lower() in _COUNTERS or _is_loss_first(head)) and (columns := _columns(head)):
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


def _head_cells(text: str, cells: list[str]) -> list[str]:
    """Return the columns of what may be a head. Single spaces separate them in some: `Epoch batch     loss  loss_f`."""
    words = text.split()
    if len(cells) == 1:
        return words if all(_NAME.fullmatch(word) for word in words) else cells
    if _is_loss_first(cells):
        # Vowpal Wabbit's rows have as many words.
        return cells if "," in text else words
    is_counted = cells[0].lower() not in _COUNTERS and words[0].lower() in _COUNTERS
    return words if is_counted and all(_WORD.fullmatch(word) for word in words) else cells


def _is_loss_first(cells: Sequence[str]) -> bool:
    """Whether the first column is a loss, and another one counts: `loss  last  counter` of Vowpal Wabbit."""
    counts = any(cell.strip().lower() in _COUNTERS for cell in cells[1:])
    return counts and _LOSS.search(cells[0]) is not None and all(map(_WORD.fullmatch, cells[:3]))


def _sum(parts: re.Match[str]) -> str:
    return repr(sum_in_order([float(part) for part in parts[0].strip("[] ").split(",")]))


def _columns(cells: Sequence[str]) -> list[str]:
    """Return the names of the columns. Empty if none is a loss."""
    names = [cell.strip() for cell in cells]
    if len(_OF_BOXES & {name.lower() for name in names}) > 1:
        names = [f"{name}_loss" if name.lower() in (*_OF_BOXES, "total") else name for name in names]
    if not any(_LOSS.search(name) for name in names):
        return []
    # `LOSS NER` is a part, as `NER_LOSS` is.
    names = [f"{name[5:].replace(' ', '_')}_loss" if name[:5].lower() == "loss " else name for name in names]
    return [_COUNTERS.get(names[0].lower(), names[0]), *(_COUNTERS.get(name.lower(), name) for name in names[1:])]
