"""Read YAML against a schema; what does not fit is refused with its place in the file and the nearest known key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from themis.config.scalars import number
from themis.errors import InputError, nearest


class Section(BaseModel):
    """Base of every section of a configuration file: unknown keys are refused, values are never coerced silently."""

    # Not `strict`: names become enumerations, lists tuples and texts paths. Numbers are looked after below.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _as_written(cls, value: Any, info: ValidationInfo) -> Any:
        """Numbers and truth values are what the file says, not what could be read into it: `yes` is not 1.0."""
        wanted = cls.model_fields[str(info.field_name)].annotation
        if wanted is float and isinstance(value, str):
            value = number(value)
        if wanted in _WRITTEN and (type(value) is not wanted and (wanted, type(value)) != (float, int)):
            raise ValueError(f"should be {_WRITTEN[wanted]}")
        return value


_WRITTEN = {int: "a whole number", float: "a number", bool: "true or false"}


M = TypeVar("M", bound=Section)


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping; anything else raises InputError with the line where known."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}", value=error.strerror, remedy="check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text", remedy="is it a YAML file?") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, source: str) -> dict[str, Any]:
    """Parse YAML text whose top level is a mapping; `source` names it in errors."""
    try:
        data = yaml.load(text, Loader=_UniqueKeyLoader)
    except RecursionError:
        raise InputError(f"{source} is nested too deeply", remedy="a file of ours has a handful of levels") from None
    except yaml.YAMLError as error:
        raise InputError(f"{source} is not valid YAML{_line(error)}", value=_problem(error)) from None
    if not isinstance(data, dict):
        raise InputError(f"{source} must hold keys and values", value=type(data).__name__)
    return data


def fit(model: type[M], data: Mapping[str, Any], source: str) -> M:
    """Fit parsed data to a schema; the first thing that does not fit raises InputError naming its key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _explain(model, error, source) from None


def load(model: type[M], path: Path) -> M:
    """Read a YAML file and fit it to a schema."""
    return fit(model, load_yaml(path), str(path))


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, which YAML would silently let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key_node, _ in node.value:
            # With the tag: the number 1 and the text "1" are two keys.
            key = (key_node.tag, str(key_node.value))
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key[1]!r} is given twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f", line {mark.line + 1}" if mark else ""


def _problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or error).splitlines()[0]


def _explain(model: type[BaseModel], error: ValidationError, source: str) -> InputError:
    # An unknown key first: a misspelt key often makes another one look missing.
    errors = sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    first = errors[0]
    place = _place(first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown_key(model, first["loc"], source)
    if first["type"] == "missing":
        return InputError(f"{source}: {place} is missing", remedy="add it")
    message = first["msg"].removeprefix("Value error, ")
    return InputError(
        f"{source}: {place or 'the file'}: {message[:1].lower()}{message[1:]}", value=_shown(first["input"])
    )


def _unknown_key(model: type[BaseModel], loc: tuple[int | str, ...], source: str) -> InputError:
    *parents, key = loc
    known = sorted(_known_keys(model, parents))
    near = nearest(str(key), known)
    remedy = f"did you mean {near!r}?" if near else f"known keys: {', '.join(known)}"
    return InputError(f"{source}: unknown key {_place(loc)}", remedy=remedy)


def _known_keys(model: type[BaseModel], parents: list[int | str]) -> set[str]:
    models = {model}
    for parent in parents:
        if isinstance(parent, int):
            continue
        stepped = {
            sub for m in models if parent in m.model_fields for sub in _models_in(m.model_fields[parent].annotation)
        }
        # Locations also carry names of union members, which are not keys: stay where we are.
        models = stepped or models
    return {name for m in models for name in m.model_fields}


def _models_in(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {found for argument in get_args(annotation) for found in _models_in(argument)}


def _place(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _shown(value: object) -> object:
    text = repr(value)
    return value if len(text) <= 80 else text[:77] + "..."
