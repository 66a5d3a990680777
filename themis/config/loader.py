"""Read YAML against a schema; what does not fit is refused with its place in the file and the nearest known key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator

from themis.config.readable_parts import fit_parts
from themis.config.scalars import SHORTENED, ShortenedFloat, number
from themis.config.validation_errors import NUMBER, TRUTH, WHOLE, Unreadable
from themis.errors import FoundErrors, InputError


class Section(BaseModel):
    """Base of every section of a configuration file: unknown keys are refused, values are never coerced silently."""

    # Not `strict`: names become enumerations, lists tuples and texts paths. Numbers are looked after below.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _as_written(cls, value: Any, info: ValidationInfo) -> Any:
        """Numbers and truth values are what the file says, not what could be read into it: `yes` is not 1.0."""
        field = cls.model_fields[str(info.field_name)]
        wanted = field.annotation
        if any(isinstance(each, BeforeValidator) for each in field.metadata):
            # It reads the text itself.
            return value
        if isinstance(value, ShortenedFloat):
            # The key takes a number, to which zeros at the end mean nothing.
            value = float(value)
        if wanted is float and isinstance(value, str):
            value = number(value)
        if wanted in _WRITTEN and (type(value) is not wanted and (wanted, type(value)) != (float, int)):
            raise ValueError(_WRITTEN[wanted])
        return value


_WRITTEN = {int: WHOLE, float: NUMBER, bool: TRUTH}


M = TypeVar("M", bound=Section)


def load_yaml(path: Path, found: FoundErrors | None = None) -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping; anything else raises InputError with the line where known.

    Args:
        path: The file.
        found: Collects the errors after which the rest can be read, see `parse_yaml`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", remedy="check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text", remedy="is it a YAML file?") from None
    return parse_yaml(text, str(path), found)


def parse_yaml(text: str, source: str, found: FoundErrors | None = None) -> dict[str, Any]:
    """Parse YAML text whose top level is a mapping.

    Args:
        text: The text.
        source: Names it in errors.
        found: Collects the errors after which the rest can be read: keys given twice, and values that cannot be read,
            in whose places are `Unreadable` ones.

    Raises:
        InputError: Nothing can be read, or, without `found`, there is any error.
    """
    loader = None
    errors = found or FoundErrors()
    try:
        loader = _StrictLoader(text, source, errors)
        data = loader.get_single_data()
    except RecursionError:
        raise InputError(f"{source} is nested too deeply", remedy="a file of ours has a handful of levels") from None
    except (ValueError, TypeError, AttributeError) as error:
        # What the safe loader lets escape for a tag that its value does not fit, such as `!!map text`.
        raise InputError(f"{source} is not valid YAML", value=str(error)) from None
    except yaml.YAMLError as error:
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise _invalid(source, getattr(error, "problem_mark", None), problem) from None
    finally:
        if loader is not None:
            loader.dispose()
    if found is None or not isinstance(data, dict):
        errors.raise_all()
    if not isinstance(data, dict):
        raise InputError(f"{source} must hold keys and values", value=type(data).__name__)
    return data


def fit(model: type[M], data: Mapping[str, Any], source: str) -> M:
    """Fit parsed data to a schema; what does not fit raises InputError naming its keys."""
    found = FoundErrors()
    fitted, _ = fit_parts(model, data, source, found)
    found.raise_all()
    return fitted


def load(model: type[M], path: Path) -> M:
    """Read a YAML file and fit it to a schema."""
    return fit(model, load_yaml(path), str(path))


def _invalid(source: str, mark: yaml.Mark | None, problem: str) -> InputError:
    line = f", line {mark.line + 1}" if mark else ""
    return InputError(f"{source} is not valid YAML{line}", value=problem)


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses what YAML would change in silence.

    A key given twice, of which it would take the last; a whole number that is not written as it is read: 010 is 8 to
    YAML 1.1, 1:30 is 90; and words that it takes for truth values: `no` is the country Norway to its author and false
    to YAML. `found` gets an error for each.
    """

    def __init__(self, text: str, source: str, found: FoundErrors) -> None:
        super().__init__(text)
        self._source = source
        self._found = found

    def _refused(self, error: InputError) -> Unreadable:
        self._found.add(error)
        return Unreadable(error)

    def _not_as_written(self, node: yaml.ScalarNode, read: float) -> Unreadable:
        kind, remedy = "a number", "write it in plain digits, or in quotes where it is text"
        if isinstance(read, bool):
            kind, remedy = "a word", "write true or false, or put it in quotes where it is text"
        message = f"{self._source}, line {node.start_mark.line + 1}: {kind} that YAML reads as {str(read).lower()}"
        return self._refused(InputError(message, value=node.value, remedy=remedy))

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError, TypeError):
            # The safe loader lets escape what Python says of a 13th month, of `!!bool maybe`, of 5000 digits.
            problem = f"cannot read {str(node.value)[:40]!r}"
            return self._refused(_invalid(self._source, node.start_mark, problem))

    def construct_written_int(self, node: yaml.ScalarNode) -> int | Unreadable:
        """A whole number. Any form but plain digits is refused."""
        read = self.construct_yaml_int(node)
        return read if str(read) == node.value else self._not_as_written(node, read)

    def construct_written_float(self, node: yaml.ScalarNode) -> float | Unreadable:
        """A number. The colons and underscores that YAML lets numbers have are refused."""
        read = self.construct_yaml_float(node)
        if "_" in node.value or ":" in node.value:
            return self._not_as_written(node, read)
        return ShortenedFloat(read, node.value) if SHORTENED.fullmatch(node.value) else read

    def construct_written_bool(self, node: yaml.ScalarNode) -> bool | Unreadable:
        """`true` or `false`, in any case. Another word for them is refused."""
        read = bool(self.construct_yaml_bool(node))
        return read if node.value.lower() == str(read).lower() else self._not_as_written(node, read)

    def construct_refused(self, node: yaml.Node) -> Any:
        """Refuse a kind of value that none of our files holds."""
        self.construct_undefined(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key_node, _ in node.value:
            # With the tag: the number 1 and the text "1" are two keys.
            key = (key_node.tag, str(key_node.value))
            if key in seen:
                self._found.add(_invalid(self._source, key_node.start_mark, f"key {key[1]!r} is given twice"))
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_written_int)
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _StrictLoader.construct_written_float)
_StrictLoader.add_constructor("tag:yaml.org,2002:bool", _StrictLoader.construct_written_bool)
for _kind in ("set", "omap", "pairs"):
    # Our files hold nothing of these kinds. A set would pass for a list, in an order of its own.
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _StrictLoader.construct_refused)
