"""Turn pydantic's validation errors into ours: the key, what its value should be, and the value found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from themis.errors import InputError, nearest

WHOLE = "should be a whole number"
NUMBER = "should be a number"
TRUTH = "should be true or false"
_TEXT = "should be text"
_LIST = "should be a list"
_MAPPING = "should be keys and values"
_EXPECTED: Mapping[str, str] = {
    "string_type": _TEXT,
    "string_unicode": _TEXT,
    "string_too_short": "should not be empty",
    "int_type": WHOLE,
    "int_parsing": WHOLE,
    "int_from_float": WHOLE,
    "float_type": NUMBER,
    "float_parsing": NUMBER,
    "finite_number": "should be a finite number",
    "bool_type": TRUTH,
    "bool_parsing": TRUTH,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "too_short": "should hold at least {min_length}",
    "too_long": "should hold at most {max_length}",
}
"""What a value should be, by the `type` of pydantic's error."""


UNKNOWN_KEY = "extra_forbidden"
"""The `type` of pydantic's error for a key that a section does not have."""

Location = tuple[int | str, ...]


class Unreadable:
    """In place of a value that YAML could not read, or reads as another than was written: its error."""

    def __init__(self, error: InputError) -> None:
        self.error = error

    def __repr__(self) -> str:
        """Return how errors show a list or mapping with this value in it: with the value that YAML found."""
        return repr(self.error.value)


def explained(model: type[BaseModel], error: ValidationError, source: str) -> list[tuple[Location, InputError]]:
    """Return an InputError for each value in `source` that does not fit `model`, with its location."""
    # Unknown keys first: a misspelt key often makes another one look missing.
    details = sorted(error.errors(), key=lambda item: item["type"] != UNKNOWN_KEY)
    # A list without an item that does not fit may be too short: that error is a consequence.
    unknown = {each["loc"] for each in details if each["type"] == UNKNOWN_KEY}
    if {("machines",), ("devices",)} <= unknown:
        remedy = "give a file of the kind that is needed here"
        return [((), InputError(f"{source} looks like a cluster file", remedy=remedy))]
    inner = {each["loc"][:depth] for each in details for depth in range(len(each["loc"]))}
    listed: set[tuple[str, ...]] = set()
    return [(each["loc"], _explained(model, each, source, listed)) for each in details if each["loc"] not in inner]


def _explained(model: type[BaseModel], error: ErrorDetails, source: str, listed: set[tuple[str, ...]]) -> InputError:
    place = _place(error["loc"])
    if error["type"] == UNKNOWN_KEY:
        return _unknown_key(model, error["loc"], source, listed)
    if isinstance(error["input"], Unreadable):
        return error["input"].error
    if error["type"] == "missing":
        return InputError(f"{source}: {place} is missing", remedy="add it")
    return InputError(f"{source}: {place or 'the file'}: {_expected(error)}", value=error["input"])


def _expected(error: ErrorDetails) -> str:
    """Return what the value should be: in our words if `_EXPECTED` has them, else in pydantic's."""
    if error["type"] in _EXPECTED:
        key = "a key " if _is_key(error["loc"]) else ""
        nothing = " and is empty" if error["input"] is None else ""
        return key + _EXPECTED[error["type"]].format_map(error.get("ctx", {})) + nothing
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return message[:1].lower() + message[1:]


def _unknown_key(
    model: type[BaseModel], loc: tuple[int | str, ...], source: str, listed: set[tuple[str, ...]]
) -> InputError:
    """Return the error of an unknown key. The known keys of a section are listed once: `listed` are those before."""
    *parents, key = loc
    known = tuple(sorted(_known_keys(model, parents)))
    near = nearest(str(key), known)
    remedy = f"did you mean {near!r}?" if near else "" if known in listed else f"known keys: {', '.join(known)}"
    if not near:
        listed.add(known)
    return InputError(f"{source}: unknown key {_place(loc)}", remedy=remedy)


def _known_keys(model: type[BaseModel], parents: list[int | str]) -> set[str]:
    models = {model}
    for parent in parents:
        if isinstance(parent, int):
            continue
        stepped = {
            sub for m in models if parent in m.model_fields for sub in models_in(m.model_fields[parent].annotation)
        }
        # Locations also carry the names of union members, which are not keys: skip those.
        models = stepped or models
    return {name for m in models for name in m.model_fields}


def models_in(annotation: Any) -> set[type[BaseModel]]:
    """Return the models (sections) that the annotation of a key names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {found for argument in get_args(annotation) for found in models_in(argument)}


def _place(loc: tuple[int | str, ...]) -> str:
    if _is_key(loc):
        loc = loc[:-2]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _is_key(loc: tuple[int | str, ...]) -> bool:
    """Whether the error is about a key that the user chose, not about its value."""
    return bool(loc) and loc[-1] == "[key]"
