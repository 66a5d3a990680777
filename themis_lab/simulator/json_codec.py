"""Convert values to plain JSON and back by their type hints. Recordings consist of such JSON.

A field that a record lacks takes its default. An unknown field is refused, so that no part of a record is lost
silently. Infinities, which JSON cannot express, are written as text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from themis.errors import InputError, UnknownNameError

T = TypeVar("T")
KIND = "kind"
_SCALARS = (str, int, float, bool)
_NOT_FINITE = ("inf", "-inf", "nan")
_MAX_WHOLE = 2**64
"""Of whole numbers: seeds are of 64 bits, and nothing else is larger."""


def plain(value: Any, tagged: Sequence[type] = ()) -> Any:
    """Convert a value to dictionaries, lists, text and numbers. The key `kind` names classes among `tagged`."""
    if isinstance(value, Struct):
        tag = {KIND: type(value).__name__} if type(value) in tagged else {}
        omitted = _empty_fields(value)
        return tag | {
            name: plain(getattr(value, name), tagged) for name in value.__struct_fields__ if name not in omitted
        }
    if isinstance(value, Mapping):
        return {str(key): plain(inner, tagged) for key, inner in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [plain(inner, tagged) for inner in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _empty_fields(value: Any) -> set[str]:
    """The fields that a record leaves out at their defaults: those of the class's `OMITTED_AT_DEFAULT`, if it has one.

    So records without a newer field stay the bytes that they were.
    """
    defaults: Mapping[str, Any] = getattr(type(value), "OMITTED_AT_DEFAULT", {})
    return {name for name, default in defaults.items() if getattr(value, name) == default}


class Decoder:
    """The inverse of `plain`. It remembers the fields of the classes that it has met.

    Args:
        choices: For a Protocol, the classes that a tagged value may have.
    """

    def __init__(self, choices: Mapping[type, Sequence[type]] | None = None) -> None:
        self._choices = choices or {}
        self._hints: dict[type[Struct], dict[str, Any]] = {}

    def restored(self, kind: type[T], value: Any, place: str) -> T:
        """Make a value from what `plain` made of it.

        Args:
            kind: The class of the value, or a Protocol among the choices.
            value: What `plain` returned.
            place: Names the value in errors.

        Raises:
            InputError: The value does not fit. The error names the place of the part that does not.
        """
        return cast("T", self._restore(kind, value, place))

    def _restore(self, hint: Any, value: Any, place: str) -> Any:
        """A value of that type hint."""
        if hint in self._choices:
            hint, value = self._chosen(self._choices[hint], value, place)
        if isinstance(hint, type) and issubclass(hint, Struct):
            return self._value(hint, value, place)
        origin = get_origin(hint)
        if origin in (Union, UnionType):
            return self._union(get_args(hint), value, place)
        if origin in (tuple, list):
            items = [self._restore(get_args(hint)[0], inner, f"{place}[{n}]") for n, inner in _listed(value, place)]
            return tuple(items) if origin is tuple else items
        if isinstance(origin, type) and issubclass(origin, Mapping):
            inner = get_args(hint)[1]
            return {key: self._restore(inner, each, f"{place}.{key}") for key, each in _mapping(value, place).items()}
        return _scalar(hint, value, place)

    def _value(self, kind: Any, value: Any, place: str) -> Any:
        hints = self._hints_of(kind)
        for key in _mapping(value, place):
            if key not in hints:
                raise UnknownNameError(f"key of {place}", key, hints)
        parts = {key: self._restore(hints[key], inner, f"{place}.{key}") for key, inner in value.items()}
        try:
            return kind(**parts)
        except TypeError:
            lacking = sorted(set(hints) - set(parts))
            raise InputError(f"{place} lacks a key", value=", ".join(lacking)) from None
        except InputError as error:
            # The value's own check refuses it, with the reason but without the path.
            raise InputError(f"{place}: {error.what}", value=error.value, remedy=error.remedy) from None

    def _hints_of(self, kind: type[Struct]) -> dict[str, Any]:
        """The type of every field."""
        if kind not in self._hints:
            self._hints[kind] = {each.name: each.type for each in fields(kind)}
        return self._hints[kind]

    def _union(self, hints: Sequence[Any], value: Any, place: str) -> Any:
        if value is None and NoneType in hints:
            return None
        kinds = [hint for hint in hints if hint is not NoneType]
        if all(hint in _SCALARS for hint in kinds) and len(kinds) > 1:
            return value if isinstance(value, tuple(kinds)) else _refuse(value, place)
        return self._restore(kinds[0], value, place)

    def _chosen(self, kinds: Sequence[type], value: Any, place: str) -> tuple[type, Any]:
        by_name = {kind.__name__: kind for kind in kinds}
        name = str(_mapping(value, place).get(KIND))
        if name not in by_name:
            raise UnknownNameError(f"kind of {place}", name, by_name)
        return by_name[name], {key: inner for key, inner in value.items() if key != KIND}


def _listed(value: Any, place: str) -> enumerate[Any]:
    return enumerate(value) if isinstance(value, list) else _refuse(value, place)


def _mapping(value: Any, place: str) -> dict[str, Any]:
    return value if isinstance(value, dict) else _refuse(value, place)


def _scalar(hint: Any, value: Any, place: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, Enum):
        known = {str(each.value): each for each in hint}
        if str(value) not in known:
            raise UnknownNameError(place, str(value), known)
        return known[str(value)]
    if type(value) is int and not -_MAX_WHOLE <= value <= _MAX_WHOLE:
        _refuse(value, place)
    if hint is float and (type(value) in (int, float) or value in _NOT_FINITE):
        return float(value)
    fits = type(value) is hint or hint is Any
    return value if fits else _refuse(value, place)


def _refuse(value: Any, place: str) -> Any:
    raise InputError(f"{place} does not fit", value=value)
