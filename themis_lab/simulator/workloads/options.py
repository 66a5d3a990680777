"""Read the options of workloads, given as values or as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from types import NoneType
from typing import Any, TypeVar, get_args

from msgspec.structs import fields

from themis.errors import InputError, UnknownNameError
from themis.number_parsing import parse_number
from themis.values import Value

T = TypeVar("T", bound=Value)


def build_options(kind: type[T], given: Mapping[str, Any], name: str) -> T:
    """Return the options of a workload.

    Args:
        kind: The class of the options; its attributes are whole numbers, numbers, truth values or texts.
        given: Values by attribute. Text is read as the attribute's type; `none` gives None if that is allowed.
        name: The name of the workload, for errors.

    Raises:
        UnknownNameError: An option is unknown.
        InputError: An option has an invalid value.
    """
    kinds = {field.name: field.type for field in fields(kind)}
    for key in given:
        if key not in kinds:
            raise UnknownNameError(f"option of workload {name}", key, kinds)
    return kind(**{key: _read(value, kinds[key], f"option {key} of workload {name}") for key, value in given.items()})


def _read(value: Any, kind: Any, place: str) -> Any:
    choices = get_args(kind)
    if NoneType in choices and (value is None or value == "none"):
        return None
    (wanted,) = (choice for choice in choices or (kind,) if choice is not NoneType)
    try:
        return _READERS[wanted](value)
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{place} must be {_WANTED[wanted]}", value=value) from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    return parse_number(int, value) if isinstance(value, str) else value


def _number(value: Any) -> float:
    number = parse_number(float, value) if isinstance(value, str) else float(value)
    if isinstance(value, bool) or not isfinite(number):
        raise ValueError
    return number


def _truth(value: Any) -> bool:
    return value if isinstance(value, bool) else {"true": True, "false": False}[value]


_READERS: Mapping[type, Callable[[Any], Any]] = {int: _whole, float: _number, bool: _truth, str: str}
_WANTED = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
