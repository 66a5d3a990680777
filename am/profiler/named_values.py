"""Find the values of training in a line of text: steps, epochs, losses and accuracies, by their names.

Programs write the same facts in many notations. This module knows names and separators, not programs:

    step=40 loss=0.69        {"step": 40, "loss": 0.69}        Epoch 2/6 train_loss=0.69 val_loss=0.70 acc=0.77
    [2,   300] loss: 0.691   Train Epoch: 1 [640/60000 (1%)] Loss: 2.3   Epoch 1:  40%|##  | 40/100 [.., loss=0.69]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from am.profiler.numbers import NUMBER

_HELD_OUT = frozenset(
    ("val", "valid", "validation", "validating", "eval", "evaluation", "test", "testing", "dev", "heldout", "held")
)
_TOTAL = frozenset(
    ("", "loss", "train", "training", "trn", "tr", "total", "avg", "average", "mean", "running", "batch", "minibatch")
) | frozenset(("smooth", "smoothed", "current", "cur", "curr", "step", "epoch", "iter", "iteration", "lm", "overall"))
"""Words in the name of a training loss. Other words name a part of it, for example `box_loss`."""

_NOT_MEASURED = frozenset(
    ("best", "min", "minimum", "max", "maximum", "lowest", "target", "prev", "previous", "initial", "start", "weight")
) | frozenset(("scale", "threshold", "delta", "stop", "old", "expected"))

_AFTER = r"(?![\w%]|\.\d|-\d| *%)"
_WRAPPED = r"(?:tensor\(|(?:np|numpy)\.float[0-9]{2}\(|\[)?"
_LOSS = re.compile(
    # Anchored to the beginning of a word: otherwise a long word would be tried from each of its letters.
    rf"(?<![\w./-])(?P<words>(?:[a-z]{{1,20}} ){{0,2}})(?P<name>[\w./-]{{0,60}}loss)"
    rf"(?P<suffix>(?:[_/-](?:step|epoch|iter|train|training|val|valid|validation|eval|test|avg|mean|total)){{0,2}})"
    rf"(?P<sep> *[:=] *| +){_WRAPPED}(?P<value>{NUMBER}){_AFTER}"
)
_STEP = re.compile(
    r"(?<!\w)(?P<name>global[ _]step|_step|optimizer[ _]step|step|iteration|iter|itr|it|num_updates|update"
    r"|batch_idx|batch|mini-?batch) *[:=#]? *[\[(]? *(?P<step>[0-9]{1,15})(?: *(?:/|of) *(?P<steps>[0-9]{1,15}))?"
    r"(?![\w%]|\.\d)"
)
_IN_EPOCH = frozenset(("batch", "batch_idx", "minibatch", "mini-batch"))
_EPOCH = re.compile(
    r"(?:(?<!\w)ep(?:och)?(?:\((?:train|training)\))?|^train:)(?: *[:=#]| *\[| +|(?=[0-9]))[ \[(]*"
    r"(?P<epoch>[0-9]{1,9})(?P<part>\.[0-9]{1,18})?(?: *(?:/|of) *(?P<epochs>[0-9]{1,9}))?(?![\w%]|\.\d)"
)
_FROM_ZERO = re.compile(r"epoch [0-9]{1,9}/[0-9]{1,9} +[━╸╺]")
"""The bar that Lightning draws by Rich. It counts epochs from 0 to the last one: `Epoch 2/2` is the third of three."""
_COUNT = re.compile(r"(?:^|[\[(| ])(?P<done>[0-9]{1,12}) *(?:/|of) *(?P<total>[0-9]{1,12})(?=[\] ,\[(:]|$)")
_COUNT_BEHIND = re.compile(r"\[ *(?P<done>[0-9]{1,12}) */ *(?P<total>[0-9]{1,12}) *\]")
_BRACKETS = re.compile(r"\W*\[ *(?P<epoch>[0-9]{1,9}) *, +(?P<done>[0-9]{1,12})(?: */ *(?P<total>[0-9]{1,12}))? *\]")
_ROUND = re.compile(r"\[(?P<round>[0-9]{1,12})\]\s")
_ACCURACY = re.compile(
    rf"(?<![\w./-])(?P<words>(?:[a-z]{{1,20}} )?)(?P<name>[\w./-]{{0,60}}(?:accuracy|acc|acc@1|acc1|top1|top-1))[*]?"
    rf"(?: *[:=] *| +){_WRAPPED}(?P<value>{NUMBER})(?: */ *(?P<of>[0-9]{{1,15}}))?(?P<percent> *%)?(?![\w]|\.\d)"
)
_SPLIT = re.compile(r"[ _/.\\-]+")
_CLASS_NAME = re.compile(r"[A-Za-z0-9]Loss$")
_CAMEL = re.compile(r"(?:val|valid|validation|eval|test|train|training|total|avg|mean)Loss$")
_LEAD = re.compile(
    r"[^a-z]*(?:(?:info|debug|notice)\b[^a-z]*)?(?:test|testing|val|valid|validation|validate|validating|eval"
    r"|evaluation|evaluate|dev)\b"
)


@dataclass(slots=True)
class NamedValues:
    """The values of one line. A value that the line does not have is None.

    Attributes:
        step: Steps done, and `steps`, of how many.
        in_epoch: Whether `step` counts the steps of the line's epoch by its name or notation.
        epoch: Number of the epoch. `fraction`: the line counts epochs in parts, for example 0.4.
        epochs: Number of epochs in all.
        loss: Training loss. `sure`: the line has it behind `:` or `=`, not only behind a blank.
        held_out_loss: Loss on held-out data.
        accuracy: Accuracy as a share, on held-out data where the line names any such.
    """

    step: int | None = None
    steps: int | None = None
    in_epoch: bool = False
    epoch: int | None = None
    fraction: bool = False
    epochs: int | None = None
    loss: float | None = None
    sure: bool = False
    held_out_loss: float | None = None
    accuracy: float | None = None


def named_values(line: str, *, held_out: bool = False) -> NamedValues:
    """Return the values of a line without colour codes.

    Args:
        line: The line.
        held_out: Whether all losses are of held-out data unless they are called training losses. Lines that begin with
            a word such as `Test` or `Validation` are of such data anyhow.
    """
    plain = line.replace('"', "").replace("'", "")
    text = plain.lower()
    values = NamedValues()
    held_out = held_out or _LEAD.match(text) is not None
    first = _losses(plain, text, values, held_out=held_out)
    if first is None:
        return values
    _place(text, text[:first], values)
    if values.loss is not None and not values.sure and values.step is None and values.epoch is None:
        values.loss = None
    if values.loss is None and values.held_out_loss is None:
        return values
    if values.held_out_loss is not None:
        values.accuracy = _accuracy(text)
    return values


def _losses(plain: str, text: str, values: NamedValues, *, held_out: bool) -> int | None:
    """Note the losses of a line; return where the first one begins. Returns None without any."""
    first: int | None = None
    part: float | None = None
    for match in _LOSS.finditer(text):
        name = plain[slice(*match.span("name"))]
        if _CLASS_NAME.search(name) and not _CAMEL.search(name):
            continue
        words = set(_SPLIT.split(match["words"] + match["name"] + match["suffix"]))
        words |= {"val"} if _CAMEL.search(name) and name[:1] in "vte" and not name.startswith(("tr", "to")) else set()
        if words & _NOT_MEASURED:
            continue
        blank = not match["sep"].strip()
        is_held = bool(words & _HELD_OUT) or (held_out and not words & {"train", "training"})
        known = is_held or set(_SPLIT.split(match["name"] + match["suffix"])) <= _TOTAL
        if blank and not known:
            continue
        first = match.start() if first is None else first
        value = float(match["value"])
        if is_held:
            values.held_out_loss = value if values.held_out_loss is None else values.held_out_loss
        elif not known and not _CAMEL.search(name):
            part = value if part is None else part
            values.sure = True
        elif values.loss is None:
            values.loss, values.sure = value, values.sure or not blank
    if values.loss is None:
        values.loss = part
    return first


def _place(text: str, before: str, values: NamedValues) -> None:
    """Note the step and the epoch. Counts such as `40/100` are read before the first loss, or in brackets behind it."""
    if brackets := _BRACKETS.match(text):
        values.epoch, values.step, values.in_epoch = int(brackets["epoch"]), int(brackets["done"]), True
        values.steps = None if brackets["total"] is None else int(brackets["total"])
        return
    epoch = _EPOCH.search(text)
    if epoch is not None:
        values.epoch, values.fraction = int(epoch["epoch"]), epoch["part"] is not None
        values.epochs = None if epoch["epochs"] is None else int(epoch["epochs"])
        if values.epochs is not None and _FROM_ZERO.match(text):
            values.epoch, values.epochs = values.epoch + 1, values.epochs + 1
    if step := _best_step(text):
        values.step, values.in_epoch = int(step["step"]), step["name"] in _IN_EPOCH
        if step["steps"] is not None:
            values.steps, values.in_epoch = int(step["steps"]), values.epoch is not None
        return
    counts = [count for count in _COUNT.finditer(before) if epoch is None or count.start() >= epoch.end() - 1]
    counts = counts or list(_COUNT_BEHIND.finditer(text, len(before)))
    if counts:
        values.step, values.steps, values.in_epoch = int(counts[-1]["done"]), int(counts[-1]["total"]), True
    elif (boosted := _ROUND.match(text)) and epoch is None:
        values.step = int(boosted["round"])


def _best_step(text: str) -> re.Match[str] | None:
    """Return the match of the step's name; a step over all epochs before one of an epoch."""
    found: Iterator[re.Match[str]] = _STEP.finditer(text)
    return min(found, key=lambda match: match["name"] in _IN_EPOCH, default=None)


def _accuracy(text: str) -> float | None:
    """Return the accuracy of a line with a held-out loss, preferably one by a name of held-out data."""
    known: float | None = None
    for match in _ACCURACY.finditer(text):
        words = set(_SPLIT.split(match["words"] + match["name"]))
        is_held = bool(words & _HELD_OUT)
        if not is_held and words & {"train", "training"}:
            continue
        value = float(match["value"])
        if match["of"] is not None:
            value = value / int(match["of"]) if int(match["of"]) else value
        elif match["percent"] is not None or value > 1.0:
            value /= 100.0
        if is_held:
            return value
        known = value if known is None else known
    return known
