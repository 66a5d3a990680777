"""Find the values of training in a line of text: losses and accuracies by their names, and the place of the line.

Programs write the same facts in many notations. This module knows names and separators, not programs:

    step=40 loss=0.69        {"step": 40, "loss": 0.69}        Epoch 2/6 train_loss=0.69 val_loss=0.70 acc=0.77
    [2,   300] loss: 0.691   Train Epoch: 1 [640/60000 (1%)] Loss: 2.3   Epoch 1:  40%|##  | 40/100 [.., loss=0.69]
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from am.profiler.adversaries import adversaries, may_hold_adversaries
from am.profiler.line_parts import HELD_OUT, TRAINED, HeldOutParts, held_out_parts
from am.profiler.line_places import LinePlace, line_place
from am.profiler.numbers import NUMBER
from themis.values import Value

_PLAIN = frozenset(("", "loss", "l", "train", "training", "trn", "tr", "total", "overall", "all"))
_TOTAL = (
    _PLAIN
    | frozenset(
        (
            "avg",
            "average",
            "mean",
            "running",
            "batch",
            "minibatch",
            "smooth",
            "smoothed",
            "current",
            "cur",
            "curr",
            "step",
        )
    )
    | frozenset(("epoch", "iter", "iteration", "lm"))
)
"""Words in the name of a training loss. Other words name a part of it, for example `box_loss`."""

_NOT_MEASURED = frozenset(
    ("best", "min", "minimum", "max", "maximum", "lowest", "target", "prev", "previous", "initial", "start", "weight")
) | frozenset(("scale", "threshold", "delta", "stop", "old", "expected", "z", "zloss", "aux", "auxiliary"))

# `loss=0.5.ckpt` is the name of a file. `0.6 -> 0.5` has the old value first.
_AFTER = r"(?![\w%]|\.\w|-\d| *%| *-{0,2}> *[\d.])"
_WRAPPED = r"(?:tensor\(|(?:np|numpy)\.float[0-9]{2}\(|\[)?"
_SET_NAME = "train|training|trn|val|valid|validation|eval|test|tst|dev"
_SHORT_NAME = r"l_(?:total|all|pix|percep|style|rec|recon|kl|ssim|tv|edge|fft|freq|char|l1|l2|mse|ce|bce|nll)"
"""`l_pix: 0.03`, as BasicSR prints it."""
_UNIT = r"(?:step|epoch|iteration|iter|batch|minibatch|training|train|validation|val|eval|test)(?:s|es)?(?: set| data)?"
_LOSS = re.compile(
    # Anchored to the beginning of a word: otherwise a long word would be tried from each of its letters.
    rf"(?<![\w./-])(?P<words>(?:[a-z][\w/-]{{0,40}}\.? {{1,2}}){{0,2}})(?P<name>[\w./-]{{0,60}}loss|{_SHORT_NAME})"
    rf"(?P<suffix>(?:[_/-](?:step|epoch|iter|train|training|val|valid|validation|eval|test|avg|mean|total|value)){{0,2}}"
    # `Gen Loss Total: 0.69`
    r"(?: total(?= *[:=]))?)"
    # `loss (for one batch) at step 200: 0.69`
    rf"(?:(?P<of> value| \([a-z ]{{1,30}}\))?(?: (?:at|@|after|for|over|per|on) (?:[0-9]{{1,9}} )?(?P<unit>{_UNIT})"
    rf"(?: [0-9,]{{1,15}}(?:/[0-9,]{{1,15}})?)?)?(?= *[:=]))?"
    # `train loss 10 0.69`, `validation loss 10: 0.69`
    r"(?: (?P<step>[0-9]{1,9})(?=(?:: +| )[-+]?[0-9]{1,20}\.[0-9])"
    # `loss@400=0.69`
    r"|@(?P<at>[0-9]{1,12})(?= ?[:=]))?"
    # `dice_loss - 0.69`, `train CrossEntropyLoss |  0.69`, `<loss>=0.69`
    r"(?P<sep> *(?:[:=]|[-=]>|>=) *| +is +(?![a-z])| - (?=[0-9]{1,9}\.[0-9])| +\| +(?=[0-9]{1,9}\.[0-9])| +)"
    rf"{_WRAPPED}(?P<value>{NUMBER}){_AFTER}"
)
_ERROR = re.compile(
    r"(?<![\w./-])(?P<words>(?:[a-z]{2,12}[ _/-]){0,2})"
    r"(?P<name>xent|cross[ _-]?entropy|nll|ppl|perplexity|rmsle|rmse|mse|mae|mape|bpc|bpb|bpd|bits?[/_ ]dim"
    r"|inertia|cost"
    r"|err(?:or)?(?:-top1)?)"
    rf"(?P<suffix>(?:[_/](?:{_SET_NAME}))?)(?P<sep> *[:=]+ *| +){_WRAPPED}(?P<value>{NUMBER})"
    r"(?![\w]|\.\w|/| *-{0,2}> *[\d.]| {0,2}(?:[mu]?s|sec|secs|seconds|min|minutes|h|hours|usd|eur|[$€])\b)"
)
"""Measures of which less is better. They count where no losses are named, in lines with a step or an epoch."""
_ERROR_WORDS = (
    "xent",
    "ntropy",
    "nll",
    "ppl",
    "perplex",
    "mse",
    "msle",
    "mae",
    "mape",
    "bpc",
    "bpd",
    "bpb",
    "bit",
    "inertia",
    "err",
    "cost",
)
_OF_SETS = re.compile(
    rf"\bloss(?:es)?[ :=(-]{{1,4}}(train|training)[ :=]{{1,3}}({NUMBER})[ ,;|/]{{1,4}}(?:and )?"
    r"(val|valid|validation|eval|test)[ :=]{1,3}(?=[-+.0-9ni])",
    re.IGNORECASE,
)
"""`LOSS train 0.69 valid 0.70`"""
_OF_LETTERS = re.compile(
    rf"(?<![\w./-])t[ _]?loss([ :=]{{1,3}}{NUMBER}[ ,;|/-]{{1,5}})v[ _]?loss(?=[ :=])", re.IGNORECASE
)
"""`T loss: 0.69 | V loss: 0.70`. A `v_loss` alone is of a value function."""
_KEYED = re.compile(rf"\b(?:key|name|metric|tag): ?([A-Za-z][\w/.-]{{0,60}}), ?value: ?(?={NUMBER})", re.IGNORECASE)
"""`{"key": "train_loss", "value": 0.69}`, as MLPerf's loggers print it."""
_ACCURACY = re.compile(
    rf"(?<![\w./-])(?P<words>(?:[a-z]{{1,20}}\.? )?)(?P<name>[\w./-]{{0,60}}(?:accuracy|acc|acc@1|acc1|top1|top-1))[*]?"
    rf"(?P<suffix>(?:[_/](?:{_SET_NAME}))?)(?: *[:=] *| +){_WRAPPED}(?P<value>{NUMBER})"
    r"(?: */ *(?P<of>[0-9]{1,15}))?(?P<percent> *%)?(?![\w]|\.\d)"
)
_MEAN = re.compile(rf" ?\( *(?P<mean>{NUMBER}) *\)")
"""Behind the value of a batch: the mean over all batches so far, as PyTorch's and timm's meters print it.

A number of the other sign, or with a plus, is the difference from the value before: `0.5 (-0.1)`."""
_SPLIT = re.compile(r"[ _/.\\()-]+")
_CLASS_NAME = re.compile(r"[A-Za-z0-9]Loss$")
_CAMEL = re.compile(
    r"(?i:val|valid|validation|eval|test|dev|train|training|total|avg|mean)Loss$|(?<![a-z])(?i:va|te|tr)Loss$"
    r"|^(?:val|valid|eval|test|dev|train)loss$"
)
_CAMEL_HELD_OUT = re.compile("va|eval|te|dev", re.IGNORECASE)


TOTAL, PART = "total", "part"
_RANK_NAMED, _RANK_PART = 2, 3
"""Ranks of `box loss` and of `box_loss`. Two or more such losses of a line are added."""


@dataclass(slots=True)
class NamedValues:
    """The values of one line. A value that the line does not have is None.

    Attributes:
        place: The step and the epoch.
        loss: Training loss.
        held_out_loss: Loss on held-out data.
        accuracy: Accuracy as a share, on held-out data where the line names any such.
        kind, held_out_kind: What the two losses are: `total`, `part` for the sum of parts, or the name of an error.
        of_adversaries: Whether the line has the losses of two networks that work against each other. These do not
            count as losses, the step of the line does.
    """

    place: LinePlace
    loss: float | None = None
    held_out_loss: float | None = None
    accuracy: float | None = None
    kind: str = TOTAL
    held_out_kind: str = TOTAL
    of_adversaries: bool = False


class _Loss(Value, frozen=True, kw_only=True):
    """A loss of a line. Those with the lowest rank count: totals before parts before errors.

    It is sure if its notation or its name leaves no doubt, as in `loss: 3`, `train_loss 3` or `train: loss 3`. `step`
    is the count between its name and its value, as in `loss 10: 0.69`.
    """

    at: int
    rank: int
    held_out: bool
    sure: bool
    value: float
    kind: str = TOTAL
    step: int | None = None


def named_values(line: str, *, held_out: bool = False, placed: bool = False) -> NamedValues:
    """Return the values of a line without colour codes.

    Args:
        line: The line.
        held_out: Whether the losses are of held-out data unless the line says otherwise.
        placed: Whether a line above gives this one its step or its epoch.
    """
    plain = line.replace('"', "").replace("'", "").replace("\t", " ")
    plain = _OF_SETS.sub(r"\1 loss=\2 \3 loss=", plain)
    plain = _KEYED.sub(r"\1: ", plain)
    plain = _OF_LETTERS.sub(r"train_loss\1val_loss", plain)
    text = plain.lower()
    parts = held_out_parts(text, held_out=held_out)
    of_adversaries = adversaries(text)
    losses = _losses(plain, text, parts)
    # They are not compared, but say when they diverge.
    losses = [each for each in losses if each.at not in of_adversaries or not math.isfinite(each.value)]
    errors = _errors(text, parts) if _may_hold_error(text) else []
    starts = [*of_adversaries, *(each.at for each in (*losses, *errors))]
    if not starts:
        return NamedValues(LinePlace())
    values = NamedValues(_with_step(line_place(text, min(starts)), losses), of_adversaries=bool(of_adversaries))
    has_step, has_epoch = values.place.step is not None, values.place.epoch is not None
    # Other costs are money and time.
    errors = [each for each in errors if each.kind != "cost" or (has_step and has_epoch)]
    placed = has_step or has_epoch or placed
    if (trained := _best([each for each in (*losses, *errors) if not each.held_out])) and (trained.sure or placed):
        values.loss, values.kind = trained.value, trained.kind
    if measured := _best([each for each in (*losses, *errors) if each.held_out]):
        values.held_out_loss, values.held_out_kind = measured.value, measured.kind
        values.accuracy = _accuracy(text, parts)
    return values


def may_hold_loss(line: str) -> bool:
    """Return whether a line has the name of a loss or an error, so that it is worth parsing."""
    text = line.lower()
    return "loss" in text or "l_" in text or may_hold_adversaries(text) or _may_hold_error(text)


def _may_hold_error(text: str) -> bool:
    # Faster than a pattern or `any`: most lines of a log are not of training.
    for word in _ERROR_WORDS:  # noqa: SIM110
        if word in text:
            return True
    return False


def _with_step(place: LinePlace, losses: Sequence[_Loss]) -> LinePlace:
    step = next((each.step for each in losses if each.step is not None), None)
    return place if place.step is not None or place.epoch is not None else replace(place, step=step)


def _best(losses: Sequence[_Loss]) -> _Loss | None:
    """Return the first loss of the lowest rank. Parts without their total count as their sum."""
    best = min(losses, key=lambda each: each.rank, default=None)
    if best is None or best.rank not in (_RANK_NAMED, _RANK_PART):
        return best
    return replace(best, value=sum(each.value for each in losses if each.rank == best.rank))


def _losses(plain: str, text: str, parts: HeldOutParts) -> list[_Loss]:
    """Return the losses of a line, in order."""
    found: list[_Loss] = []
    for match in _LOSS.finditer(text):
        name = plain[slice(*match.span("name"))]
        camel = _CAMEL.search(name) is not None
        before, named = set(_SPLIT.split(match["words"])), set(_SPLIT.split(match["name"] + match["suffix"]))
        # `train/CrossEntropyLoss` and `BoxLoss=0.5` are values, `CrossEntropyLoss` alone is the name of a class.
        is_class = _CLASS_NAME.search(name) is not None and not (camel or named & (HELD_OUT | TRAINED))
        sep = match["sep"].strip()
        if is_class and (sep not in (":", "=", "|") or "." not in match["value"]):
            continue
        words = before | named | set(_SPLIT.split(f"{match['of'] or ''} {match['unit'] or ''}"))
        words |= {"val"} if camel and _CAMEL_HELD_OUT.match(name) else set()
        if words & _NOT_MEASURED or _is_cut(text, match) or (sep == "|" and not words & (HELD_OUT | TRAINED)):
            continue
        part = parts.at(match.start("name"))
        held_out = bool(words & HELD_OUT) or (part is True and not words & TRAINED)
        total = camel or named - HELD_OUT <= _TOTAL
        # These need a step or an epoch.
        is_vague = is_class or match["name"].startswith("l_")
        sure = not is_vague and (bool(sep) or "_" in name or part is not None)
        if not (sure or held_out or total or is_vague):
            continue
        value = match["value"]
        if held_out:
            value = _mean(text, match) or value
        if total and before - HELD_OUT <= _TOTAL:
            rank = 0 if (before | named) - HELD_OUT <= _PLAIN else 1
        else:
            rank = _RANK_NAMED if total else _RANK_PART
        found.append(
            _Loss(
                at=match.start(),
                rank=rank,
                held_out=held_out,
                sure=sure,
                value=float(value),
                kind=TOTAL if total else PART,
                step=None if (step := match["step"] or match["at"]) is None else int(step),
            )
        )
    return found


def _errors(text: str, parts: HeldOutParts) -> list[_Loss]:
    """Return the measures of a line of which less is better, in order."""
    found: list[_Loss] = []
    for match in _ERROR.finditer(text):
        words = set(_SPLIT.split(match["words"] + match["suffix"]))
        part = parts.at(match.start("name"))
        name = re.sub(r"[ _-]", "", match["name"])
        of_set = part is not None or bool(words & (HELD_OUT | TRAINED))
        has_point = "." in match["value"] or not match["value"][-1:].isdigit()
        vague = name.startswith("err") and not of_set
        if words & _NOT_MEASURED or "time" in words or vague or not (has_point or match["sep"].strip()):
            continue
        held_out = bool(words & HELD_OUT) or (part is True and not words & TRAINED)
        value = (_mean(text, match) if held_out else None) or match["value"]
        rank = _RANK_PART + (1 if name in ("xent", "crossentropy", "nll") else 2)
        found.append(_Loss(at=match.start(), rank=rank, held_out=held_out, sure=False, value=float(value), kind=name))
    return found


def _mean(text: str, match: re.Match[str]) -> str | None:
    """Return the mean behind the value of a batch. None if there is none."""
    mean = _MEAN.match(text, match.end())
    if mean is None or mean["mean"][0] == "+" or (mean["mean"][0] == "-") != (match["value"][0] == "-"):
        return None
    return mean["mean"]


def _is_cut(text: str, match: re.Match[str]) -> bool:
    """Whether the number goes on behind a comma: `0,69` and `1,234.5` have another notation than ours."""
    end = match.end("value")
    return "." not in match["value"] and text[end : end + 1] == "," and text[end + 1 : end + 2].isdigit()


def _accuracy(text: str, parts: HeldOutParts) -> float | None:
    """Return the accuracy of a line with a held-out loss, preferably one by a name of held-out data."""
    known: float | None = None
    for match in _ACCURACY.finditer(text):
        words = set(_SPLIT.split(match["words"] + match["name"] + match["suffix"]))
        if "err" in words:
            continue
        part = parts.at(match.start("name"))
        held_out = bool(words & HELD_OUT) or part is True
        if not held_out and (words & TRAINED or part is False):
            continue
        value = float(_mean(text, match) or match["value"])
        if match["of"] is not None:
            value = value / int(match["of"]) if int(match["of"]) else value
        elif match["percent"] is not None or value > 1.0:
            value /= 100.0
        if held_out:
            return value
        known = value if known is None else known
    return known
