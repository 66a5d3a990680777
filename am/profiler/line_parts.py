"""The parts of a log line: what a logger puts before the text, and which part of the text is of held-out data."""

from __future__ import annotations

import re
from bisect import bisect_right

from themis.values import Value

HELD_OUT = frozenset(
    (
        "va",
        "vl",
        "vld",
        "te",
        "val",
        "vali",
        "valid",
        "validation",
        "validating",
        "eval",
        "evaluation",
        "test",
        "testing",
        "tst",
        "dev",
        "cv",
    )
) | frozenset(("heldout", "held"))
TRAINED = frozenset(("train", "training", "trn"))

_HELD_OUT_WORD = r"(?:val|vali|valid|validation|validate|validating|eval|evaluation|evaluate|test|testing|dev|cv)"
_OF_THE_TEXT = (
    rf"\W{{0,5}}(?:{_HELD_OUT_WORD}|train|training|ep|epoch|(?:global_|train_)?step|it|iter|iteration|batch)(?![a-z_.])"
)
_PREFIX = re.compile(
    # Times, levels, places in the source, names of modules, anything in brackets: no plain words.
    rf"\s*+(?:(?!{_OF_THE_TEXT})(?:\[[^\]]{{0,80}}\]|\([^)]{{0,80}}\)|(?:info|debug|notice|warning):[\w.]{{0,40}}:"
    r"|(?:[\w.]{1,40} - )?(?:info|debug|notice|warning)\b"
    r"|[^\s\w\[({]+(?=\s)|[^\s\[({]*(?:[0-9]|\w\.\w)[^\s\[({]*)[:,|>\]]*+\s*+)*+"
)
_LEAD = re.compile(rf"[^a-z]*{_HELD_OUT_WORD}\b(?![./]\w)")
_SET = r"(?:train|training|val|vali|valid|validation|eval|evaluation|test|testing|dev|cv)"
_SECTION = re.compile(
    rf"(?<![\w./-]){_SET}(?:[_ ](?:set|metrics|results|stats|error|loop|net output #[0-9]+))?"
    r"(?: *[\])|]| *: *(?!true|false|none|null|yes|no\b)[\[({a-z]| *= *\w{0,40}[\[({]| +- )"
    # `phase=val`
    rf"|\b_?(?:phase|split|mode|stage|set|dataset|subset|type|prefix|collection) ?[:=] ?(?:training_)?{_SET}"
    # `_type: val_epoch`
    r"(?:_(?:epoch|iter|step)(?:_\w{1,20})?)?(?![\w.-])"
)
_TRAIN_SECTION = re.compile(r"\btrain(?:ing)?(?:_(?:epoch|iter|step)|\b)")


class HeldOutParts(Value, frozen=True):
    """Which parts of a line are of held-out data.

    Attributes:
        starts: Where a part begins, in order.
        held_out: Whether the part is of held-out data. It has an entry more, for the part before the first start, which
            is None if the line does not say it.
    """

    starts: tuple[int, ...]
    held_out: tuple[bool | None, ...]

    def at(self, place: int) -> bool | None:
        """Return whether the text at a place is of held-out data. None if the line does not say it."""
        return self.held_out[bisect_right(self.starts, place)]


def text_start(text: str) -> int:
    """Return where the text of a line in lower case begins, behind what the logger put there.

    Example: 24 for `2026-01-01 10:00 | info | epoch 3`.
    """
    found = _PREFIX.match(text)
    assert found is not None
    return found.end()


def led_by_held_out(line: str) -> bool:
    """Return whether a line begins with a word of held-out data, such as `Test: Total time 3 s`."""
    text = line.lower()
    return _LEAD.match(text, text_start(text)) is not None


def held_out_parts(text: str, *, held_out: bool) -> HeldOutParts:
    """Return the parts of a line in lower case and without quotes.

    A line such as `Test: [1/97] loss 0.5` is of held-out data as a whole. A word in brackets or before a colon begins
    a part: `train: loss=0.9 | val: loss=0.8`, `[valid] loss=0.8`, `val: {loss: 0.8}`, `phase=val loss=0.8`.

    Args:
        text: The line.
        held_out: Whether the line is of held-out data unless it says otherwise.
    """
    lead = held_out or _LEAD.match(text, text_start(text)) is not None
    sections = list(_SECTION.finditer(text))
    held = [_TRAIN_SECTION.search(each[0]) is None for each in sections]
    return HeldOutParts(tuple([each.start() for each in sections]), (lead or None, *held))
