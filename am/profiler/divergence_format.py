"""The words in which programs say that they stop because their loss is no number."""

from __future__ import annotations

import re

from am.profiler.records import Diverged

_WORDS = re.compile(
    r"\bloss (?:is|was|became|has become|turned|went)(?: to)? (?:nan|inf(?:inite|inity)?|not finite|non-?finite)\b"
    r"|\bloss returned in \W?training_step\W? is (?:nan|inf)"
    r"|\bnan loss (?:during|in|encountered|detected)\b|\bmodel diverged with loss\b|\binvalid loss, terminating\b"
)
"""TensorFlow's NanTensorHook and Keras' TerminateOnNaN, torchvision's and DETR's loops, detectron2, Lightning."""

_GOES_ON = re.compile(r"\bskip|\bignor|\bcontinu|\bif\b|\bwhen\b|\bunless\b|\bwhether\b|\bretry")


def says_diverged(line: str) -> Diverged | None:
    """Return a record if the line says that training has diverged and stops. Returns None if training goes on.

    Example: `Loss is nan, stopping training`, but not `loss is nan, skipping this batch`.
    """
    text = line.lower()
    return Diverged() if _WORDS.search(text) and not _GOES_ON.search(text) else None
