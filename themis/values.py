"""`Value`, the base class of immutable values: a frozen `msgspec.Struct`, made and compared in C.

A value is a `Value`; a mutable record is a dataclass (docs/decisions/0056-a-value-is-a-msgspec-struct.md). Use
`msgspec.structs.replace` for a changed copy, `msgspec.structs.fields` to list fields, and `msgspec.to_builtins` for
plain dictionaries and lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")


class Value(msgspec.Struct, frozen=True):
    """An immutable value. Two values are equal if they have the same class and equal fields.

    Subclasses repeat `frozen=True`, which type checkers do not inherit, and usually pass `kw_only=True`:

        class Point(Value, frozen=True, kw_only=True):
            x: float
            names: Mapping[str, str] = msgspec.field(default_factory=dict)

    `dataclasses.field` does not work here: the result would itself be the default. Pass `dict=True` for a class with
    `cached_property` properties.
    """


def repr_without(*hidden: str) -> Callable[[Any], str]:
    """Return a `__repr__` that omits some fields: secrets, which must not reach a log, and long contents.

    Example: `__repr__ = repr_without("token")` in the body of a `Value`.
    """

    def represent(value: msgspec.Struct) -> str:
        shown = [f"{name}={getattr(value, name)!r}" for name in value.__struct_fields__ if name not in hidden]
        return f"{type(value).__name__}({', '.join(shown)})"

    return represent


class cached_property(Generic[T]):  # noqa: N801 - a decorator, named like `property`
    """A property that is computed once per value. The class of the value must pass `dict=True`.

    It replaces `functools.cached_property`, which takes a lock before Python 3.12. The lock costs more than most of
    the results.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, value: None, kind: type) -> cached_property[T]: ...

    @overload
    def __get__(self, value: object, kind: type) -> T: ...

    def __get__(self, value: object | None, kind: type) -> cached_property[T] | T:
        if value is None:
            return self
        # From now on Python finds the result in `__dict__` before it looks here.
        result = value.__dict__[self._name] = self._compute(value)
        return result
