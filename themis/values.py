"""What values that are made in great number derive from: frozen, slotted, made and compared in C.

A frozen dataclass sets each of its fields by a call of its own; a round makes some thousand values, and more time went
into making them than into what they say (docs/design/simulator-performance.md). To define one takes 0.8 ms, too, and
a run of the simulator begins with some ninety. To all who ask they are dataclasses: `dataclasses` replaces, lists and
unfolds them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")

Fields = Mapping[str, dataclasses.Field[Any]]


class _FieldsOnDemand:
    """The fields of a class as `dataclasses` looks them up; made once, where somebody asks."""

    def __init__(self) -> None:
        self._made: dict[type, Fields] = {}

    def __get__(self, value: object, kind: type[msgspec.Struct]) -> Fields:
        fields = self._made.get(kind)
        if fields is None:
            told = [(each.name, each.type, _with_default(each)) for each in msgspec.structs.fields(kind)]
            made: Any = dataclasses.make_dataclass(kind.__name__, told, kw_only=True)
            fields = self._made[kind] = made.__dataclass_fields__
        return fields


def _with_default(told: msgspec.structs.FieldInfo) -> Any:
    """A field as `dataclasses` knows it, with the default of one that msgspec knows."""
    if told.default_factory is not msgspec.NODEFAULT:
        return dataclasses.field(default_factory=told.default_factory)
    return dataclasses.field() if told.default is msgspec.NODEFAULT else dataclasses.field(default=told.default)


class Value(msgspec.Struct, frozen=True):
    """A frozen value. Each class says `frozen=True` again, for the type checker, and `kw_only=True` if so meant."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]] = _FieldsOnDemand()  # type: ignore[assignment]


class remembered(Generic[T]):  # noqa: N801 - a decorator, named like `property`
    """A property that is worked out once for each value, whose class says `dict=True`.

    As `functools.cached_property`, which before Python 3.12 takes a lock, dearer than most of what is remembered here.
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    @overload
    def __get__(self, value: None, kind: type) -> remembered[T]: ...

    @overload
    def __get__(self, value: object, kind: type) -> T: ...

    def __get__(self, value: object | None, kind: type) -> remembered[T] | T:
        if value is None:
            return self
        # Once it is there, it is found before this is asked again.
        result = value.__dict__[self._name] = self._work_out(value)
        return result
