"""What can be read of a file with errors: a part that has one raises it, the others are what the file gives.

So each check of such a file runs as far as it does not depend on what is wrong. Entries of lists and mappings that the
user fills, such as hyper-parameters, do not raise: those with an error are left out, and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError

from themis.config.validation_errors import UNKNOWN_KEY, Location, explained, models_in
from themis.errors import FoundErrors, InputError, nearest

M = TypeVar("M", bound=BaseModel)
Faults = Mapping[tuple[str, ...], InputError]
"""Errors by the keys that lead to a part."""
LeftOut = Mapping[Location, InputError]
"""Errors by the place of an entry that is left out. In place of an item of a list that is no mapping there is `{}`."""


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


def fit_parts(model: type[M], data: Mapping[str, Any], source: str, found: FoundErrors) -> tuple[M, LeftOut]:
    """Fit parsed data to a schema as far as possible.

    Example: of `{name: Digits, jobs: many}` the name can be read, and to read `jobs` raises the error that it should be
    a whole number. Of `{arguments: {batch_size: 8, lr: [1]}}`, `arguments` has the batch size; `lr` is left out.

    Args:
        model: The schema.
        data: What a YAML file holds.
        source: The file, for errors.
        found: Collects what does not fit.

    Returns:
        The file, and the entries that it lacks.

    Raises:
        InputError: Nothing can be read. The error has all that was found.
    """
    try:
        return model.model_validate(data), {}
    except ValidationError as error:
        errors = explained(model, error, source)
        unknown = {each["loc"] for each in error.errors() if each["type"] == UNKNOWN_KEY}
    rest = dict(data) if isinstance(data, Mapping) else {}
    faults: dict[tuple[str, ...], InputError] = {}
    left_out: dict[Location, InputError] = {}
    for loc, problem in errors:
        found.add(problem)
        path = _part(model, loc)
        if loc in unknown and len(path) == len(loc) - 1:
            rest = _without(rest, loc)
            path = _meant(model, path, str(loc[-1]))
        if entry := _entry(model, rest, path, loc):
            left_out[entry] = problem
        if entry and not _is_last_section(model, rest, entry):
            rest = _without(rest, entry)
        elif path:
            rest = _without(rest, path)
            faults[path] = problem
    for name, field in model.model_fields.items():
        if field.is_required():
            # A stand-in for a key that is missing or wrong. To read it raises its error.
            rest.setdefault(name, "")
    try:
        return cast(M, _Parts(model.model_validate(rest), faults)), left_out
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


def _entry(model: type[BaseModel], data: Mapping[Any, Any], path: Sequence[str], loc: Location) -> Location:
    """The entry of a mapping, or of a mapping in a list, in which a location lies.

    Empty if it lies in none, or in a section, whose keys depend on each other.
    """
    if not path:
        return ()
    value: Any = data
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if _section(_annotation(model, path)) is not None:
        return ()
    keys = loc[len(path) :]
    if isinstance(value, list) and keys and isinstance(keys[0], int):
        row, *below = value[keys[0]], *keys[1:]
        return (*path, *keys[:2]) if isinstance(row, Mapping) and below and below[0] in row else (*path, keys[0])
    if not isinstance(value, Mapping) or not keys or keys[0] not in value:
        return ()
    return (*path, keys[0])


def _is_last_section(model: type[BaseModel], data: Mapping[Any, Any], entry: Location) -> bool:
    """Whether an entry is the only one in a mapping of sections, such as a search space, which needs one."""
    path = [str(key) for key in entry[:-1]]
    value: Any = data
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return isinstance(value, Mapping) and len(value) == 1 and bool(models_in(_annotation(model, path)))


def _annotation(model: type[BaseModel], path: Sequence[str]) -> Any:
    """What a part may be."""
    section: type[BaseModel] | None = model
    annotation: Any = None
    for key in path:
        annotation = section.model_fields[key].annotation if section and key in section.model_fields else None
        section = _section(annotation)
    return annotation


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
    if rest and isinstance(below, list):
        index, *inner = rest
        item = _without(below[int(index)], inner) if inner else {}
        return {**data, first: [*below[: int(index)], item, *below[int(index) + 1 :]]}
    if rest and isinstance(below, Mapping):
        return {**data, first: _without(below, rest)}
    return {key: value for key, value in data.items() if key != first}
