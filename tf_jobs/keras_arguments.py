"""Check the arguments of a Keras script's `fit` before anything is built from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Number
from typing import Any

import keras  # type: ignore[import-untyped]

from am.checkpoints.store import Meta
from tf_jobs.flags import Values
from themis.errors import InputError, UnknownNameError
from themis.values import Value

TAKEN = (
    "model", "x", "y", "batch_size", "epochs", "verbose", "iterations", "validation_data", "callbacks", "seed",
    "checkpoint_every", "keep_checkpoints", "log_every", "ordered_parts",
)  # fmt: skip

INSTEAD = {
    "validation_split": "split the arrays, and give validation_data=(x, y)",
    "validation_batch_size": "it is batch_size",
    "validation_freq": "it is after every epoch",
    "validation_steps": "give fewer samples in validation_data",
    "steps_per_epoch": "give iterations",
    "initial_epoch": "leave it: a restarted script goes on where it was",
    "shuffle": "leave it: samples are shuffled in every pass, by seed",
    "class_weight": "weigh within the loss that compile is given",
    "sample_weight": "weigh within the loss that compile is given",
}
"""What to use instead of arguments of Keras' `fit` that ours does not have."""

_DEFAULTS = {"validation_split": 0.0, "validation_freq": 1, "initial_epoch": 0, "shuffle": True}
"""Keras' defaults of those arguments, which a script may pass; for the others it is None."""

_ARRAYS = "give arrays with one row a sample, or lists or dictionaries of them"


_LOWEST = {"seed": 0, "ordered_parts": 0}
"""The whole numbers that may be 0."""


class FitArguments(Value, frozen=True, kw_only=True):
    """The checked arguments of one fit.

    Attributes:
        data: Inputs and labels.
        samples: The number of rows.
        validation: Held-out inputs and labels, or None.
        callbacks: Keras' callbacks or the user's own.
        values: iterations, batch_size, seed, checkpoint_every, keep_checkpoints, log_every and ordered_parts.
    """

    data: tuple[Any, Any]
    samples: int
    validation: tuple[Any, Any] | None
    callbacks: Sequence[Any]
    values: Values

    def meta(self, parameters: int) -> Meta:
        """Return the values that a checkpoint and the run that resumes it must share.

        Args:
            parameters: The number of the model's weights.
        """
        order = {name: self.values.whole(name) for name in ("seed", "batch_size")}
        return {**order, "samples": self.samples, "parameters": parameters}


def checked(
    model: object,
    data: tuple[Any, Any],
    validation: object,
    callbacks: object,
    numbers: Mapping[str, object],
    others: Mapping[str, object],
) -> FitArguments:
    """Check the arguments of a fit and return them.

    Args:
        model: The model to train.
        data: Inputs and labels.
        validation: Held-out inputs and labels, or None.
        callbacks: A list, a single one, or None.
        numbers: The whole numbers. `iterations` may be None; otherwise it replaces `epochs`.
        others: Arguments that `job.fit` does not know. They may have Keras' defaults.

    Raises:
        InputError: An argument is invalid.
    """
    _check_names(others)
    _check_model(model)
    wholes = {
        name: _whole(name, value, low=_LOWEST.get(name, 1))
        for name, value in numbers.items()
        if name != "iterations" or value is not None
    }
    samples = _samples(*data, of="job.fit")
    epochs = wholes.pop("epochs")
    length = {"iterations": math.ceil(epochs * samples / wholes["batch_size"])}
    return FitArguments(
        data=data,
        samples=samples,
        validation=_validation(validation),
        callbacks=_callbacks(callbacks),
        values=Values({**length, **wholes}),
    )


def _check_names(others: Mapping[str, object]) -> None:
    """Raise InputError if `fit` gets an argument that it does not know or support."""
    for name, value in others.items():
        if name not in INSTEAD:
            raise UnknownNameError("argument of job.fit", name, TAKEN)
        if not _is_default(name, value):
            raise InputError("an argument of Keras' fit that job.fit does not take", value=name, remedy=INSTEAD[name])


def _is_default(name: str, value: object) -> bool:
    """Whether an unsupported argument may be ignored: it has Keras' default. Arrays are never ignored or compared."""
    default: object = _DEFAULTS.get(name)
    return value is default or (isinstance(value, Number) and value == default)


def _check_model(model: object) -> None:
    """Raise InputError unless `model` is a compiled Keras model."""
    if not isinstance(model, keras.Model):
        raise InputError(
            "the first argument of job.fit is no Keras model",
            value=type(model).__name__,
            remedy="write job.fit(model, x, y, ..)",
        )
    if getattr(model, "optimizer", None) is None:
        raise InputError("the model is not compiled", value=model.name, remedy="call model.compile first")


def _whole(name: str, value: object, *, low: int) -> int:
    """Return the value as an int. Raises InputError unless it is a whole number of `low` or more."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        shown = repr(value) if value is None else value
        raise InputError(f"{name} is not a whole number of {low} or more", value=shown, remedy=f"e.g. {name}={low}")
    return int(value)


def _samples(x: Any, y: Any, *, of: str) -> int:
    """Return the number of samples. Raises InputError unless all arrays have the same number of rows, above 0.

    Args:
        x: Inputs.
        y: Labels.
        of: The argument or function that has x and y, for messages.
    """
    counts = {f"{name}[{place}]": _rows(f"{name} of {of}", leaf) for name, place, leaf in _leaves(x, y, of)}
    samples = next(iter(counts.values()))
    if len(set(counts.values())) > 1:
        raise InputError(f"x and y of {of} differ in their number of rows", value=counts, remedy="give as many of each")
    if samples == 0:
        raise InputError(f"x of {of} has no samples", value=0, remedy=_ARRAYS)
    return samples


def _validation(given: object) -> tuple[Any, Any] | None:
    """Return held-out inputs and labels, or None if not given. Raises InputError unless they are a pair of arrays."""
    if given is None:
        return None
    if not isinstance(given, tuple | list) or len(given) != 2:
        shown = f"{len(given)} values" if isinstance(given, tuple | list) else type(given).__name__
        raise InputError(
            "validation_data is not a pair", value=shown, remedy="give (x, y): weights and datasets are not taken"
        )
    x, y = given
    _samples(x, y, of="validation_data")
    return x, y


def _callbacks(given: object) -> Sequence[Any]:
    """Return a list of callbacks: Keras' `fit` accepts several, one, or None."""
    if given is None:
        return ()
    return given if isinstance(given, list | tuple) else (given,)


def _leaves(x: Any, y: Any, of: str) -> list[tuple[str, int, Any]]:
    """Yield the name, path and array of all arrays in x and y."""
    found = []
    for name, given in (("x", x), ("y", y)):
        leaves = keras.tree.flatten(given)
        if not leaves:
            raise InputError(f"{name} of {of} holds no array", value=given, remedy=_ARRAYS)
        found += [(name, place, leaf) for place, leaf in enumerate(leaves)]
    return found


def _rows(what: str, leaf: Any) -> int:
    """Return the rows of an array. Raises InputError for other types, such as a dataset, a generator or a number."""
    shape = getattr(leaf, "shape", None)
    if not hasattr(leaf, "__array__") or not shape or not isinstance(shape[0], Integral):
        raise InputError(f"{what} is not an array", value=type(leaf).__name__, remedy=_ARRAYS)
    return int(shape[0])
