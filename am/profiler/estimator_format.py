"""Lines of TensorFlow's Estimator and its hooks, with the prefix of `logging` or absl."""

from __future__ import annotations

import re

from am.profiler.numbers import INTEGER, NUMBER, ORDINARY
from am.profiler.records import (
    Diverged,
    ExamplesPerSecond,
    LossOnly,
    Record,
    SavingCheckpoint,
    StepLoss,
    StepsPerSecond,
    Validation,
)

ESTIMATOR_STARTS = rb"(?:INFO|WARNING|ERROR):tensorflow:|[IWE][0-9]{4} "

ESTIMATOR_ORDINARY = (
    rb"INFO:tensorflow:(?:global_step/sec: " + ORDINARY + rb"|loss = " + ORDINARY + rb", step = [0-9]{1,15}"
    rb"(?: \(" + ORDINARY + rb" sec\))?)"
)
ESTIMATOR_KEEP_LAST = (b"INFO:tensorflow:loss = ",)
"""The last line with a step is always read, because many lines of rates may follow it."""

ESTIMATOR_COUNTED = rb"INFO:tensorflow:loss = [^,\n]{1,40}, step = ([0-9]{1,15})"

# `INFO:tensorflow:..`, or `I0728 12:00:01.123456 140 basic_session_run_hooks.py:262] ..`
_PREFIX = re.compile(r"INFO:tensorflow:|I[0-9]{4} [0-9:.]{8,20} +[0-9]{1,20} [^ \]]{1,200}\] ")
# The last words of an Estimator's NanTensorHook, before it stops or fails.
_DIVERGED = re.compile(
    r"(?:(?:WARNING|ERROR):tensorflow:|[WE][0-9]{4} [0-9:.]{8,20} +[0-9]{1,20} [^ \]]{1,200}\] )"
    r"Model diverged with loss = NaN\."
)
# Nearly all lines have one of these forms, so a single pattern reads them.
_USUAL = re.compile(
    rf"INFO:tensorflow:(?:loss = ({NUMBER}), step = ({INTEGER})(?: \(({NUMBER}) sec\))?|global_step/sec: ({NUMBER}))"
)
_STEPS_PER_SECOND = re.compile(rf"global_step/sec: ({NUMBER})")
_EXAMPLES_PER_SECOND = re.compile(rf"Average examples/sec: ({NUMBER}) \({NUMBER}\), step = ({INTEGER})")
_VALIDATION = re.compile(rf"Validation \(step ({INTEGER})\): (.{{1,2000}})")
_EVALUATION = re.compile(rf"Saving dict for global step ({INTEGER}): (.{{1,2000}})")
_SAVING = re.compile(rf"Saving checkpoints for ({INTEGER}) into .{{1,2000}}")
_PAIR = re.compile(rf"([\w./-]{{1,100}}) = ({NUMBER})")
_SECONDS = re.compile(rf"(.{{1,2000}}) \(({NUMBER}) sec\)")
_STEP_NAMES = ("step", "global_step")


def parse_estimator(line: str) -> Record | None:
    """Return the record of an Estimator's line. Returns None for any other line."""
    if usual := _USUAL.fullmatch(line):
        loss, step, seconds, rate = usual.groups()
        if rate is not None:
            return StepsPerSecond(rate=float(rate))
        return StepLoss(step=int(step), loss=float(loss), seconds=None if seconds is None else float(seconds))
    prefix = _PREFIX.match(line)
    if prefix is None:
        return Diverged() if _DIVERGED.fullmatch(line) else None
    message = line[prefix.end() :].rstrip()
    if match := _STEPS_PER_SECOND.fullmatch(message):
        return StepsPerSecond(rate=float(match[1]))
    if match := _EXAMPLES_PER_SECOND.fullmatch(message):
        return ExamplesPerSecond(step=int(match[2]), mean_rate=float(match[1]))
    if match := _VALIDATION.fullmatch(message) or _EVALUATION.fullmatch(message):
        return _validation(int(match[1]), match[2])
    if match := _SAVING.fullmatch(message):
        return SavingCheckpoint(iteration=int(match[1]))
    return _loss(message)


def _validation(step: int, text: str) -> Record | None:
    values = _values(text)
    if values is None:
        return None
    return Validation(step=step, loss=_float(values.get("loss")), accuracy=_float(values.get("accuracy")))


def _loss(message: str) -> Record | None:
    """Read a line of values that include a loss, in any order, optionally followed by seconds."""
    timed = _SECONDS.fullmatch(message)
    values = _values(timed[1] if timed else message)
    if values is None or "loss" not in values:
        return None
    loss = float(values["loss"])
    step = next((values[name] for name in _STEP_NAMES if name in values), "")
    if re.fullmatch(INTEGER, step) is None:
        return LossOnly(loss=loss)
    return StepLoss(step=int(step), loss=loss, seconds=float(timed[2]) if timed else None)


def _values(text: str) -> dict[str, str] | None:
    """Read `name = number, name = number` as texts by name. Returns None if any part has another form."""
    if len(text) > 2000:
        return None
    matches = [_PAIR.fullmatch(part) for part in text.split(", ")]
    if any(match is None for match in matches):
        return None
    return {match[1]: match[2] for match in matches if match is not None}


def _float(text: str | None) -> float | None:
    return None if text is None else float(text)
