"""The state that Keras' callbacks keep over a run, in a checkpoint: numbers, texts, and lists of them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from themis.errors import InputError

States = Mapping[str, Mapping[str, Any]]

_SETTINGS = frozenset({"min_delta"})
"""Attributes that are not saved: Keras may flip the sign of `min_delta` once, in each process again."""

_CONTAINERS = (list, tuple, dict, set, frozenset, deque, np.ndarray)


class CallbackState:
    """The attributes of callbacks that have changed since the run began, such as `wait` and `best` of one that waits.

    An attribute that `on_train_begin` set and that does not change is a setting, such as a path. It is not saved.
    Callbacks are identified by their class and their position among those of the class: the chief may have callbacks
    that other tasks lack.
    """

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._callbacks: dict[str, Any] = {}
        for callback in callbacks:
            kind = type(callback).__name__
            number = sum(type(other).__name__ == kind for other in self._callbacks.values())
            self._callbacks[f"{kind}-{number}"] = callback
        self._began: dict[str, dict[str, tuple[str | None, object]]] = {}
        self._restored: States = {}

    def restore(self, states: States) -> None:
        """Set the state that `taken` returned. It is applied in `begin`."""
        self._restored = states

    def begin(self) -> None:
        """Apply the state, after `on_train_begin` was called."""
        for name, callback in self._callbacks.items():
            self._began[name] = _attributes(callback)
            vars(callback).update(self._restored.get(name, {}))

    def taken(self) -> dict[str, dict[str, Any]]:
        """Return a copy of the changed attributes, by callback and attribute."""
        return {
            name: {key: json.loads(text) for key, (text, _) in self._changed(name).items() if text is not None}
            for name in self._began
        }

    def check(self) -> None:
        """Refuse attributes that the next start would lose.

        Raises:
            InputError: A callback keeps a value that cannot be saved, such as an array.
        """
        for name in self._began:
            for key, (text, value) in self._changed(name).items():
                if text is None and isinstance(value, _CONTAINERS):
                    raise InputError(
                        "a callback keeps what no checkpoint holds",
                        value=f"{type(self._callbacks[name]).__name__}.{key}",
                        remedy="keep numbers, texts, and lists of them or dictionaries by texts",
                    )

    def _changed(self, name: str) -> dict[str, tuple[str | None, object]]:
        """Return the attributes that have changed since the start."""
        began, now = self._began[name], _attributes(self._callbacks[name])
        return {key: each for key, each in now.items() if key not in began or not _same(each, began[key])}


def _attributes(callback: Any) -> dict[str, tuple[str | None, object]]:
    """A callback's attribute: the value, and the value as JSON, or None if JSON cannot hold it."""
    settings = _SETTINGS if hasattr(callback, "monitor_op") else ()
    return {key: (_text(value), value) for key, value in vars(callback).items() if key not in settings}


def _same(one: tuple[str | None, object], two: tuple[str | None, object]) -> bool:
    return one[0] == two[0] and (one[0] is not None or one[1] is two[1])


def _text(value: object) -> str | None:
    """Return the value as JSON, or None if JSON would not read back as the same value."""
    return json.dumps(value, default=lambda number: number.item()) if _plain(value) else None


def _plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(type(key) is str for key in value) and all(map(_plain, value.values()))
    return value is None or type(value) in (bool, int, float, str) or isinstance(value, np.number | np.bool_)
