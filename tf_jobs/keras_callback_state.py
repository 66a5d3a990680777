"""What Keras' callbacks keep to themselves over a run, as a checkpoint holds it: numbers, texts, lists of them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from themis.errors import InputError

States = Mapping[str, Mapping[str, Any]]

_SETTINGS = frozenset({"min_delta"})
"""Of callbacks that watch a value: Keras turns its sign round with the first one, in each process anew."""

_CONTAINERS = (list, tuple, dict, set, frozenset, deque, np.ndarray)


class CallbackState:
    """The attributes of callbacks that have changed since the run began, such as `wait` and `best` of one that waits.

    What stays as `on_train_begin` leaves it is a setting and in no state: a task's number, perhaps, or a path.
    Callbacks go by their class and how many of it came before, as the chief may have some that other tasks have not.
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
        """Have them go on from what `taken` gave, from `begin` on."""
        self._restored = states

    def begin(self) -> None:
        """They have heard `on_train_begin`."""
        for name, callback in self._callbacks.items():
            self._began[name] = _attributes(callback)
            vars(callback).update(self._restored.get(name, {}))

    def taken(self) -> dict[str, dict[str, Any]]:
        """A copy of what has changed, by callback and attribute."""
        return {
            name: {key: json.loads(text) for key, (text, _) in self._changed(name).items() if text is not None}
            for name in self._began
        }

    def check(self) -> None:
        """Refuse what would be lost with the next start.

        Raises:
            InputError: A callback has begun to keep an array, say, which is not written.
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
        """Attributes that are not as they began."""
        began, now = self._began[name], _attributes(self._callbacks[name])
        return {key: each for key, each in now.items() if key not in began or not _same(each, began[key])}


def _attributes(callback: Any) -> dict[str, tuple[str | None, object]]:
    """What a callback keeps: as JSON, None where that cannot hold it, and itself."""
    settings = _SETTINGS if hasattr(callback, "monitor_op") else ()
    return {key: (_text(value), value) for key, value in vars(callback).items() if key not in settings}


def _same(one: tuple[str | None, object], two: tuple[str | None, object]) -> bool:
    return one[0] == two[0] and (one[0] is not None or one[1] is two[1])


def _text(value: object) -> str | None:
    """The value as JSON, None where JSON would not give it back as it is."""
    return json.dumps(value, default=lambda number: number.item()) if _plain(value) else None


def _plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(type(key) is str for key in value) and all(map(_plain, value.values()))
    return value is None or type(value) in (bool, int, float, str) or isinstance(value, np.number | np.bool_)
