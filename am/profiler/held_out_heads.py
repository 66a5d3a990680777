"""Heads of evaluations: lines such as `Test metrics:` or `Eval begin...`, and which lines below them they are for."""

from __future__ import annotations

import re

from am.profiler.line_parts import led_by_held_out, text_start

_NAMED_HEAD = re.compile(
    r"(?:.{0,80}[^\w./])?(?:test|val|validation|eval|evaluation)(?: (?:set|metrics|results|error|stats))?:", re.I
)
_EVALUATION_HEAD = re.compile(
    r"\W*(?:(?:start|begin|run)(?:n?ing)? (?:eval|evaluation|validation)|evaluation"
    r"|(?:eval|evaluation|validation|test) (?:(?:begin|start)s?|metrics|results|performance|stats)"
    r"|(?:evaluating|validating)(?: [a-z]{1,20}){0,3})"
    r"(?:(?P<epoch>,? epoch [0-9]{1,9}(?:/[0-9]{1,9})?)|(?: at| after| for)? (?:step|iteration) [0-9]{1,12})?\W*",
    re.IGNORECASE,
)
"""`Eval begin...`, `***** Evaluating perplexity, Epoch 1/2 *****`, `Eval metrics at step 200`"""
_SUMMARY = re.compile(
    r"\W*(?:averaged?|mean|overall|final|summary)(?: of)? (?:stats|statistics|metrics|results|losses)\b", re.IGNORECASE
)
"""`Averaged stats: ..`: of the data that the lines before it are of."""
_OF_TOTAL = re.compile(r"\W*(?:(?:step|batch|iter)\W{0,3})?[0-9]{1,12}/(?P<total>[0-9]{1,12})\b", re.IGNORECASE)
_LOGGER = re.compile(
    r"(?:(?:INFO|DEBUG|WARNING):[\w.]{0,40}:|[IWE][0-9]{4} [0-9:.]{8,20} +[0-9]{1,20} [^ \]]{1,200}\] )?"
)
_MAY_BE_DEEP = " \tIDWE"
"""The first characters of indented lines and of loggers."""


class HeldOutHeads:
    """Remembers the last head of an evaluation.

    It is for the line below it, for the block that is indented below it, and for lines that count to the same total. A
    summary is of the data that the lines before it are of.

    Attributes:
        ends_epoch: Whether the last line is a head that names its epoch, so that the epoch is over.
    """

    def __init__(self) -> None:
        self.ends_epoch = False
        self._is_next = self._before_held_out = False
        self._depth: int | None = None
        self._total: str | None = None

    def read(self, line: str, depth: int) -> bool:
        """Return whether a line is of held-out data by a line above it, and remember it if it is a head itself."""
        if self._depth is not None and depth <= self._depth:
            self._depth = None
        counted = _OF_TOTAL.match(line)
        total = None if counted is None else counted["total"]
        held_out = self._is_next or self._depth is not None
        held_out = held_out or (self._before_held_out and _SUMMARY.match(line) is not None)
        held_out = held_out or (total is not None and total == self._total)
        self._total = total if held_out else None
        self._is_next = self._is_head(line)
        if self._is_next and self._depth is None:
            self._depth = depth
        return held_out

    def passed(self, line: str, *, held_out: bool | None) -> None:
        """Note that a line was of training or of held-out data. `held_out` is None for a line without losses."""
        if held_out is not None:
            self._before_held_out = held_out
        elif not self._before_held_out and _names_held_out(line):
            self._before_held_out = led_by_held_out(line)

    def _is_head(self, line: str) -> bool:
        self.ends_epoch = False
        if line.endswith(":") and _NAMED_HEAD.fullmatch(line) is not None:
            return True
        if not _names_held_out(line):
            return False
        evaluation = _EVALUATION_HEAD.fullmatch(line, text_start(line.lower()))
        self.ends_epoch = evaluation is not None and evaluation["epoch"] is not None
        return evaluation is not None


def _names_held_out(line: str) -> bool:
    text = line.lower()
    return "val" in text or "test" in text


def depth_of(line: str) -> int:
    """Return how far a line is indented, behind the level and the name of its logger."""
    if line[:1] not in _MAY_BE_DEEP:
        return 0
    logger = _LOGGER.match(line)
    assert logger is not None
    text = line[logger.end() :].expandtabs()
    return len(text) - len(text.lstrip())
