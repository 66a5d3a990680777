"""Update rules on one flat vector of parameters; their slots are part of every checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from themis.errors import UnknownNameError

Update = Callable[[Any, Any, Mapping[str, Any], Any, Any, float], None]

MOMENTUM = 0.9
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def _sgd(_tf: Any, params: Any, _slots: Mapping[str, Any], gradient: Any, _iteration: Any, rate: float) -> None:
    params.assign_sub(rate * gradient)


def _momentum(_tf: Any, params: Any, slots: Mapping[str, Any], gradient: Any, _iteration: Any, rate: float) -> None:
    velocity = slots["velocity"]
    params.assign_sub(rate * velocity.assign(MOMENTUM * velocity + gradient))


def _adam(tf: Any, params: Any, slots: Mapping[str, Any], gradient: Any, iteration: Any, rate: float) -> None:
    """Kingma and Ba, ICLR'15, algorithm 1; the iteration is the job's own, so a resumed run goes on exactly."""
    first, second = slots["first"], slots["second"]
    mean = first.assign(BETA1 * first + (1.0 - BETA1) * gradient)
    square = second.assign(BETA2 * second + (1.0 - BETA2) * gradient * gradient)
    t = tf.cast(iteration, tf.float32)
    params.assign_sub(rate * (mean / (1.0 - BETA1**t)) / (tf.sqrt(square / (1.0 - BETA2**t)) + EPSILON))


_RULES: dict[str, tuple[tuple[str, ...], Update]] = {
    "sgd": ((), _sgd),
    "momentum": (("velocity",), _momentum),
    "adam": (("first", "second"), _adam),
}


def rule(name: str) -> tuple[tuple[str, ...], Update]:
    """Names of an optimizer's slots, and its update; raises UnknownNameError for any but the known ones."""
    if name not in _RULES:
        raise UnknownNameError("optimizer", name, _RULES)
    return _RULES[name]
