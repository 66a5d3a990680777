"""The place of a line in the training: its step and its epoch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from am.profiler.line_parts import text_start
from themis.values import Value

_WHOLE = r"[0-9]{1,3}(?:,[0-9]{3}){1,4}(?!,?[0-9])|[0-9]{1,15}"
"""A count, also one in groups of three digits: `12,000`."""

_STEP = re.compile(
    r"(?<!\w)(?P<name>(?:global|optimizer|env|train)[ _]step(?:/max_steps)?|_step|(?:total_)?timesteps|step(?:_num)?"
    r"|current_steps|(?:n|num|cur|curr|current)_(?:step|iter|iteration)"
    r"|iteration|iter|itr|it|num_updates|update|up\.|batch_idx|batch|mini-?batch|round)"
    rf" *[:=#]{{0,2}} *[\[(]? *(?P<step>{_WHOLE})(?: *(?:/|of) *(?P<steps>{_WHOLE}))?"
    r"(?![\w%]|\.\d)"
)
_STEPS = re.compile(
    rf"(?<!max )(?<!total )(?<!num )(?<!\w)(?:steps|iterations|iters|updates) *[:=] *(?P<step>{_WHOLE})(?![\w%]|\.\d)"
)
"""`steps: 40`. In a line with an epoch this may be the number of its steps."""

_ITERS = re.compile(r"(?<!\w)iters: *[0-9]")
_SCALED = re.compile(
    r"(?<![\w.])(?P<done>[0-9]{1,6}(?:\.[0-9]{1,3})?)(?P<by>[kM]?)(?P<unit>it)?/"
    r"(?P<total>[0-9]{1,6}(?:\.[0-9]{1,3})?)(?P<of>[kM]?)(?P=unit)? (?=\[|rate:)",
    re.IGNORECASE,
)
"""A bar whose counts have units: `1.20k/10.0k [` of tqdm, `1.2kit/10.0kit rate:` of Levanter."""
_FIRST = re.compile(rf"(?:after )?(?P<step>{_WHOLE}) (?:steps|iterations|iters|updates)\b(?![ /]*(?:per|/|s\b))")
"""`100 iterations: loss 0.5`, `after 100 steps, ..`"""

_GLOBAL = frozenset(
    ("global_step/max_steps", "global step", "global_step", "total_timesteps", "timesteps", "num_updates")
)
"""Names of a count over all epochs. They count before others."""
_IN_EPOCH = frozenset(("batch", "batch_idx", "minibatch", "mini-batch"))
_EPOCH = re.compile(
    r"(?<!\w)ep(?:och(?:_num)?|\.)?(?:\((?:train|training)\))?(?: *[:=#]| *\[| +|(?=[0-9]))[ \[(]*"
    r"(?P<epoch>[0-9]{1,9})(?P<part>\.[0-9]{1,18})?(?: *(?:/|of) *(?P<epochs>[0-9]{1,9}))?(?![\w%]|\.\d)"
)
_EPOCH_BEHIND = re.compile(r"(?<![\w./,:-])(?P<epoch>[0-9]{1,9}) ?epoch(?!s|\w*=)")
"""`1epoch: ..`"""

_SHORT = re.compile(
    r"(?:\[|(?<![\w./-])(?=e[0-9]{1,6}[ |,/:-]{1,3}[bsi][0-9]))e(?P<epoch>[0-9]{1,6})(?:/(?P<epochs>[0-9]{1,6}))?"
    r"(?=[\] |,/:-])(?:[\] |,/:-]{1,4}\[?(?P<name>[bsi])(?P<step>[0-9]{1,12})(?:/(?P<steps>[0-9]{1,12}))?(?!\w))?"
)
"""`[E2]`, `[E2/10][B40/100]`, `E2 B40`: a letter for the epoch, and one for its batch or for the step."""

_TRAIN = re.compile(r"train: *\[? *(?P<epoch>[0-9]{1,9})(?: */ *(?P<epochs>[0-9]{1,9}))?(?=\]? *\[)")
_OF_SET = re.compile(r"(?:train|test|val|valid|validation|eval) (?P<epoch>[0-9]{1,9}), ")
"""`Train 3, loss: ..`"""
_FROM_ZERO = re.compile(r"epoch [0-9]{1,9}/[0-9]{1,9} +[━╸╺ ]+ [0-9]+/[0-9]+ [^•]{1,40}•")
"""The bar that Lightning draws by Rich. It counts epochs from 0 to the last one: `Epoch 2/2` is the third of three."""
_COUNT = re.compile(r"(?:^|[\[(| ])(?P<done>[0-9]{1,12}) *(?:/|of) *(?P<total>[0-9]{1,12})(?=[\] ,\[():]|$)")
_COUNT_BEHIND = re.compile(
    r"\[ *(?P<done>[0-9]{1,12}) */ *(?P<total>[0-9]{1,12}) *\]"
    r"|%\|[^|]{0,200}\| *(?P<drawn>[0-9]{1,12})/(?P<of>[0-9]{1,12}) \["
)
_PAIR = re.compile(
    r"\[(?P<epoch>[0-9]{1,9})/(?P<epochs>[0-9]{1,9})\] ?\[ *(?P<done>[0-9]{1,12}) */ *(?P<total>[0-9]{1,12}) *\]"
)
_BRACKETS = re.compile(r"\W*\[ *(?P<epoch>[0-9]{1,9}) *, +(?P<done>[0-9]{1,12})(?: */ *(?P<total>[0-9]{1,12}))? *\]")
_ROUND = re.compile(r"(?:^|\] )(?:\[ {0,9}(?P<round>[0-9]{1,12}) {0,3}\]|(?P<before>[0-9]{1,12}):)\s")
_HEAD = re.compile(
    r"\W*(?:(?:start(?:ing)?|begin(?:ning)?|train(?:ing)?|going into|entering|running|learning)(?: of)? )?"
    r"(?:epoch[ :=#\[]*(?P<epoch>[0-9]{1,9})(?: *(?:/|of) *(?P<epochs>[0-9]{1,9}))?)?\W*"
    rf"(?:(?:global )?(?:step|iteration|iter|batch)[ :=#\[]*(?P<step>{_WHOLE})(?: *(?:/|of) *(?P<steps>{_WHOLE}))?)?"
    # Behind that no sentence goes on: `Epoch 3 | 12 s`, but not `Epoch 3 was best`.
    r"\s*(?:[^\s\w].*)?"
)
_BLOCK = re.compile(
    r"\W{0,9}(?:(?:[a-z]{1,20}[ _])?|.{0,100}? --? )(?:global[ _])?(?:step|iteration|iter|epoch)\W{1,3}[0-9]"
)


class LinePlace(Value, frozen=True, kw_only=True):
    """The place of a line. A value that the line does not have is None.

    Attributes:
        step: Steps done, and `steps`, of how many.
        in_epoch: Whether `step` counts the steps of the line's epoch by its name or notation.
        epoch: Number of the epoch. `fraction`: the line counts epochs in parts, for example 0.4.
        epochs: Number of epochs in all.
    """

    step: int | None = None
    steps: int | None = None
    in_epoch: bool = False
    epoch: int | None = None
    fraction: bool = False
    epochs: int | None = None


def line_place(text: str, loss_at: int) -> LinePlace:
    """Return the place of a line in lower case and without quotes.

    Counts such as `40/100` are read before the first loss, or in brackets and bars behind it.

    Args:
        text: The line.
        loss_at: Where its first loss begins.
    """
    if brackets := _BRACKETS.match(text):
        return LinePlace(
            step=_whole(brackets["done"]),
            steps=_whole(brackets["total"]),
            in_epoch=True,
            epoch=_whole(brackets["epoch"]),
        )
    named = _EPOCH.search(text)
    if named is None and (short := _SHORT.search(text)):
        if short["step"] is not None:
            return LinePlace(
                step=_whole(short["step"]),
                steps=_whole(short["steps"]),
                in_epoch=short["name"] == "b",
                epoch=_whole(short["epoch"]),
                epochs=_whole(short["epochs"]),
            )
        named = short
    if named is None:
        begin = text_start(text)
        named = _TRAIN.match(text, begin) or _OF_SET.match(text, begin) or _EPOCH_BEHIND.search(text)
    if named is None and (pair := _PAIR.search(text, 0, loss_at)):
        return LinePlace(
            step=_whole(pair["done"]),
            steps=_whole(pair["total"]),
            in_epoch=True,
            epoch=_whole(pair["epoch"]),
            epochs=_whole(pair["epochs"]),
        )
    parts = {} if named is None else named.groupdict()
    epoch, epochs = _whole(parts.get("epoch")), _whole(parts.get("epochs"))
    if epoch is not None and epochs is not None and _FROM_ZERO.match(text):
        epoch, epochs = epoch + 1, epochs + 1
    if epoch is not None and _ITERS.search(text) and not _best_step(text):
        # It names steps of an epoch whose length nothing says, so it is within the epoch.
        return LinePlace(epoch=max(0, epoch - 1), fraction=True)
    step, steps, in_epoch = _step(text, loss_at, named)
    if steps is not None and (step, steps) == (epoch, epochs):
        # A bar of epochs.
        step, steps, in_epoch = None, None, False
    return LinePlace(
        step=step,
        steps=steps,
        in_epoch=in_epoch,
        epoch=epoch,
        fraction=parts.get("part") is not None,
        epochs=epochs,
    )


def head_place(line: str) -> LinePlace | None:
    """Return the place that a head gives to the lines below it: `Epoch 3/10`, `Step 40`. None for any other line."""
    text = line.lower()
    if not ("epoch" in text or "step" in text or "iter" in text or "batch" in text):
        return None
    head = _HEAD.fullmatch(text, text_start(text))
    if head is None or (head["epoch"] is None and head["step"] is None):
        return None
    return LinePlace(
        step=_whole(head["step"]),
        steps=_whole(head["steps"]),
        in_epoch=head["steps"] is not None,
        epoch=_whole(head["epoch"]),
        epochs=_whole(head["epochs"]),
    )


def block_place(line: str) -> LinePlace | None:
    """Return the place that a line without a loss gives to the block right below it. None for any other line.

    The line begins with a step or an epoch, or has one behind a dash: `Step 100 per-step time 0.3s`, `-- STEP: 24/99`.
    """
    text = line.lower()
    if not ("epoch" in text or "step" in text or "iter" in text) or not _BLOCK.match(text, text_start(text)):
        return None
    place = line_place(text, len(text))
    return None if place.step is None and place.epoch is None else place


def _step(text: str, loss_at: int, epoch: re.Match[str] | None) -> tuple[int | None, int | None, bool]:
    """Return the step of a line, of how many, and whether it counts within its epoch."""
    if step := _best_step(text):
        in_epoch = step["name"] in _IN_EPOCH if step["steps"] is None else epoch is not None
        return _whole(step["step"]), _whole(step["steps"]), in_epoch
    if epoch is None and (step := _STEPS.search(text)):
        return _whole(step["step"]), None, False
    behind_epoch = 0 if epoch is None else epoch.end() - 1
    counts = [count for count in _COUNT.finditer(text, 0, loss_at) if count.start() >= behind_epoch]
    counts = counts or list(_COUNT_BEHIND.finditer(text, loss_at))
    if not counts and (scaled := _SCALED.search(text)) and (scaled["of"] or scaled["unit"]):
        return _scaled(scaled["done"], scaled["by"]), _scaled(scaled["total"], scaled["of"]), True
    if not counts and epoch is None and (first := _FIRST.match(text, text_start(text))):
        return _whole(first["step"]), None, False
    if counts:
        done, total = [part for part in counts[-1].groups() if part is not None]
        return int(done), int(total), True
    if epoch is None and (boosted := _ROUND.search(text, 0, loss_at)):
        return int(boosted["round"] or boosted["before"]), None, False
    return None, None, False


def _best_step(text: str) -> re.Match[str] | None:
    """Return the match of the step's name; a step over all epochs before one of an epoch."""
    found: Iterator[re.Match[str]] = _STEP.finditer(text)
    return min(found, key=lambda match: (match["name"] in _IN_EPOCH, match["name"] not in _GLOBAL), default=None)


def _scaled(number: str, unit: str) -> int:
    return round(float(number) * {"": 1, "k": 1000, "m": 1_000_000}[unit])


def _whole(digits: str | None) -> int | None:
    return None if digits is None else int(digits.replace(",", ""))
