"""Documents that users write in JSON, read field by field. Every error names the field.

A reader states the keys of each object as `Keys`, and takes values from it by the methods of `Fields`. For example,
`Fields.of(document, "market", MARKET).entries("machines")` gives each entry with its path: `market.machines[0]`, ...
"""

from __future__ import annotations

import json
import reprlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from themis.errors import InputError, nearest
from themis.values import Value

MAX_WHOLE = 100_000
"""The largest number of GPUs or gangs that one field may state, far above any cluster we know of."""

_MAX_DIGITS = 400
"""A whole number of more digits is past every bound, and Python refuses to read a very long one."""

_MAX_KEY = 80
"""Characters of a key in a path."""


class Keys(Value, frozen=True, kw_only=True):
    """The keys of one kind of object in a document."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


class Brief:
    """An offending value as errors show it: a whole object instead of a number would bury the message."""

    def __init__(self, value: object) -> None:
        self._shown = _REPR.repr(value)

    def __repr__(self) -> str:
        return self._shown


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


def read_json(content: bytes, source: str, root: str) -> object:
    """Parse a file's bytes.

    Args:
        content: The bytes.
        source: Names the file in errors.
        root: Begins the path of a field in errors, such as `market`.

    Raises:
        InputError: It is not JSON in UTF-8, is nested too deeply, or an object holds a key twice.
    """
    twice: list[_Twice] = []
    try:
        document = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=lambda pairs: _object(pairs, twice),
            parse_int=lambda digits: int(digits) if len(digits) <= _MAX_DIGITS else float(digits),
        )
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not UTF-8 text", value=f"byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{source} is not JSON, line {error.lineno}, column {error.colno}", value=error.msg) from None
    except RecursionError:
        raise InputError(
            f"{source} is nested too deeply", remedy=f"no {root} needs more than a handful of levels"
        ) from None
    if twice:
        # A lost value may hold other objects with double keys. The outermost is in the document for certain.
        path, key = next((path, node.key) for path, node in _nodes(document, root) if isinstance(node, _Twice))
        raise InputError(f"{path} has a key twice", value=Brief(key), remedy="keep one")
    return document


class _Twice(dict[str, object]):
    """An object with a double key. JSON would silently let the last value win."""

    key = ""


def _object(pairs: list[tuple[str, object]], twice: list[_Twice]) -> dict[str, object]:
    """Build an object. One with a double key is noted, and reported when its path is known."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    noted = _Twice(found)
    noted.key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    twice.append(noted)
    return noted


def _nodes(document: object, root: str) -> Iterator[tuple[str, object]]:
    """All values of a document with their paths, outer ones first. Long keys are shortened in paths."""
    nodes: list[tuple[str, object]] = [(root, document)]
    for path, node in nodes:
        yield path, node
        if isinstance(node, dict):
            nodes += [(f"{path}.{_brief_key(key)}", inner) for key, inner in node.items()]
        elif isinstance(node, list):
            nodes += [(f"{path}[{index}]", inner) for index, inner in enumerate(node)]


def _brief_key(key: str) -> str:
    """A key as paths show it, on one line."""
    key = key if key.isprintable() else repr(key)
    return key if len(key) <= _MAX_KEY else f"{key[: _MAX_KEY // 2]}...{key[-_MAX_KEY // 2 :]}"


class Fields(Value, frozen=True, kw_only=True):
    """A JSON object whose keys were checked, and the path that names it in errors."""

    values: Mapping[str, object]
    path: str

    @classmethod
    def of(cls, value: object, path: str, keys: Keys) -> Fields:
        """Check the keys of an object. Raises InputError if it is no object, or a key is unknown or missing."""
        if not isinstance(value, Mapping):
            raise InputError(f"{path} must be an object", value=Brief(value))
        known = (*keys.required, *keys.optional)
        for key in value:
            if key not in known:
                near = nearest(str(key), known)
                remedy = f"did you mean {near!r}?" if near else f"known keys: {', '.join(known)}"
                raise InputError(f"{path} has an unknown key", value=Brief(key), remedy=remedy)
        for key in keys.required:
            if key not in value:
                raise InputError(f"{path} lacks a field", value=key, remedy=f"add {path}.{key}")
        return cls(values=value, path=path)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def at(self, key: str) -> str:
        """The path of a field."""
        return f"{self.path}.{_brief_key(key)}"

    def text(self, key: str, default: str = "") -> str:
        """A text that is not empty."""
        return text(self.values.get(key, default), self.at(key))

    def whole(self, key: str, default: int = 1) -> int:
        """A whole number from 1 to `MAX_WHOLE`."""
        return whole(self.values.get(key, default), self.at(key), least=1)

    def number(
        self, key: str, *, zero: bool = False, default: float | None = None, most: float = sys.float_info.max
    ) -> float:
        """A finite number above 0, or from 0 if `zero` allows it, and at most `most`."""
        return number(self.values.get(key, default), self.at(key), zero=zero, most=most)

    def entries(self, key: str) -> list[tuple[object, str]]:
        """The entries of a list with the path of each."""
        value = self.values.get(key, [])
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise InputError(f"{self.at(key)} must be a list", value=Brief(value))
        return [(entry, f"{self.at(key)}[{index}]") for index, entry in enumerate(value)]


def text(value: object, path: str) -> str:
    """Check that a value is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{path} must be a text that is not empty", value=Brief(value))
    if any("\ud800" <= character <= "\udfff" for character in value):
        remedy = "remove the unpaired surrogate (\\ud800 to \\udfff), or write the whole pair"
        raise InputError(f"{path} holds half a character", value=Brief(value), remedy=remedy)
    return value


def whole(value: object, path: str, *, least: int = 0) -> int:
    """Check that a value is a whole number from `least` to `MAX_WHOLE`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_WHOLE:
        raise InputError(f"{path} must be a whole number from {least} to {MAX_WHOLE}", value=Brief(value))
    return value


def number(value: object, path: str, *, zero: bool = False, most: float = sys.float_info.max) -> float:
    """Check that a value is a finite number above 0, or from 0 if `zero` allows it, and at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{path} must be a number", value=Brief(value))
    # Not `float(value)`: it fails on a whole number past the largest float.
    if not 0 <= value <= sys.float_info.max or (value == 0 and not zero):
        wanted = "of 0 or more" if zero else "above 0"
        raise InputError(f"{path} must be a finite number {wanted}", value=Brief(value))
    if value > most:
        raise InputError(f"{path} must be at most {most:g}", value=Brief(value))
    return float(value)
