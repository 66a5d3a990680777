"""What can be read of a file with errors: a part that has one raises it, the others are what the file gives.

So each check of such a file runs as far as it does not depend on what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError

from themis.config.validation_errors import UNKNOWN_KEY, explained
from themis.errors import FoundErrors, InputError, nearest

M = TypeVar("M", bound=BaseModel)
Faults = Mapping[tuple[str, ...], InputError]
"""Errors by the keys that lead to a part."""


class _Parts:
    """A section with errors in it. It has the same attributes, but those with an error raise it."""

    def __init__(self, section: object, faults: Faults) -> None:
        self._section = section
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        if (name,) in self._faults:
            raise self._faults[name,]
        below = {path[1:]: error for path, error in self._faults.items() if path[0] == name}
        value = getattr(self._section, name)
        return _Parts(value, below) if below else value


def fit_parts(model: type[M], data: Mapping[str, Any], source: str, found: FoundErrors) -> M:
    """Fit parsed data to a schema as far as possible.

    Example: of `{name: Digits, jobs: many}` the name can be read, and to read `jobs` raises the error that it should be
    a whole number.

    Args:
        model: The schema.
        data: What a YAML file holds.
        source: The file, for errors.
        found: Collects what does not fit.

    Raises:
        InputError: Nothing can be read. The error has all that was found.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        errors = explained(model, error, source)
        unknown = {each["loc"] for each in error.errors() if each["type"] == UNKNOWN_KEY}
    rest = dict(data) if isinstance(data, Mapping) else {}
    faults: dict[tuple[str, ...], InputError] = {}
    for loc, problem in errors:
        found.add(problem)
        path = _part(model, loc)
        if loc in unknown and len(path) == len(loc) - 1:
            rest = _without(rest, loc)
            path = _meant(model, path, str(loc[-1]))
        if path:
            rest = _without(rest, path)
            faults[path] = problem
    for name, field in model.model_fields.items():
        if field.is_required():
            # A stand-in for a key that is missing or wrong. To read it raises its error.
            rest.setdefault(name, "")
    try:
        return cast(M, _Parts(model.model_validate(rest), faults))
    except ValidationError:
        # An error of the file as a whole, or one that cannot be cut out.
        found.raise_all()
        raise


def _part(model: type[BaseModel], loc: Sequence[int | str]) -> tuple[str, ...]:
    """The keys of sections that a location begins with: those of the smallest part that can be cut out."""
    path: list[str] = []
    section: type[BaseModel] | None = model
    for key in loc:
        if section is None or not isinstance(key, str) or key not in section.model_fields:
            break
        path.append(key)
        section = _section(section.model_fields[key].annotation)
    return tuple(path)


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section that a key holds, if it holds one or none."""
    for each in (annotation, *(get_args(annotation) if isinstance(annotation, UnionType) else ())):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def _meant(model: type[BaseModel], path: tuple[str, ...], key: str) -> tuple[str, ...]:
    """The part that an unknown key of a section is probably a misspelling of, or nothing."""
    section: type[BaseModel] | None = model
    for parent in path:
        section = _section(section.model_fields[parent].annotation) if section else None
    near = nearest(key, section.model_fields) if section else None
    return (*path, near) if near else ()


def _without(data: Mapping[Any, Any], path: Sequence[int | str]) -> dict[Any, Any]:
    """Leave out the value at the end of a path, or what has no keys on the way there, such as `metric: loss`."""
    first, *rest = path
    below = data.get(first)
    if rest and isinstance(below, Mapping):
        return {**data, first: _without(below, rest)}
    return {key: value for key, value in data.items() if key != first}
