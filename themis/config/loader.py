"""Read YAML against a schema; what does not fit is refused with its place in the file and the nearest known key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, ValidationInfo, field_validator

from themis.config.scalars import SHORTENED, ShortenedFloat, number
from themis.config.validation_errors import NUMBER, TRUTH, WHOLE, combined, explain
from themis.errors import InputError
from themis.values import Value


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


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping; anything else raises InputError with the line where known."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", remedy="check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text", remedy="is it a YAML file?") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, source: str) -> dict[str, Any]:
    """Parse YAML text whose top level is a mapping; `source` names it in errors."""
    loader = None
    try:
        loader = _StrictLoader(text)
        data = loader.get_single_data()
    except RecursionError:
        raise InputError(f"{source} is nested too deeply", remedy="a file of ours has a handful of levels") from None
    except (ValueError, TypeError, AttributeError) as error:
        # What the safe loader lets escape for a tag that its value does not fit, such as `!!map text`.
        raise InputError(f"{source} is not valid YAML", value=str(error)) from None
    except yaml.YAMLError as error:
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise InputError(f"{source} is not valid YAML{_line(error)}", value=problem) from None
    finally:
        if loader is not None:
            loader.dispose()
    if loader.not_as_written:
        raise combined([each.explained(source) for each in loader.not_as_written])
    if not isinstance(data, dict):
        raise InputError(f"{source} must hold keys and values", value=type(data).__name__)
    return data


def fit(model: type[M], data: Mapping[str, Any], source: str) -> M:
    """Fit parsed data to a schema; what does not fit raises InputError naming its keys."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise explain(model, error, source) from None


def load(model: type[M], path: Path) -> M:
    """Read a YAML file and fit it to a schema."""
    return fit(model, load_yaml(path), str(path))


class _NotAsWritten(Value, frozen=True):
    """A number or word at a line that is `read` as another value than most would take its text for.

    A word such as `no` is the country Norway to its author and false to YAML 1.1.
    """

    text: str
    read: float
    line: int

    def explained(self, source: str) -> InputError:
        """The error that says so."""
        kind, remedy = "a number", "write it in plain digits, or in quotes where it is text"
        if isinstance(self.read, bool):
            kind, remedy = "a word", "write true or false, or put it in quotes where it is text"
        message = f"{source}, line {self.line}: {kind} that YAML reads as {str(self.read).lower()}"
        return InputError(message, value=self.text, remedy=remedy)


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses what YAML would change in silence.

    A key given twice, of which it would take the last; a whole number that is not written as it is read: 010 is 8 to
    YAML 1.1, 1:30 is 90; and words that it takes for truth values, such as no and on. The value of an environment
    variable would be another text. `not_as_written` has all numbers and words of these kinds.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.not_as_written: list[_NotAsWritten] = []

    def _note(self, node: yaml.ScalarNode, read: float) -> None:
        self.not_as_written.append(_NotAsWritten(node.value, read, node.start_mark.line + 1))

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError, TypeError):
            # The safe loader lets escape what Python says of a 13th month, of `!!bool maybe`, of 5000 digits.
            problem = f"cannot read {str(node.value)[:40]!r}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None

    def construct_written_int(self, node: yaml.ScalarNode) -> int:
        """A whole number. Any form but plain digits is noted."""
        read = self.construct_yaml_int(node)
        if str(read) != node.value:
            self._note(node, read)
        return read

    def construct_written_float(self, node: yaml.ScalarNode) -> float:
        """A number. The colons and underscores that YAML lets numbers have are noted."""
        read = self.construct_yaml_float(node)
        if "_" in node.value or ":" in node.value:
            self._note(node, read)
        return ShortenedFloat(read, node.value) if SHORTENED.fullmatch(node.value) else read

    def construct_written_bool(self, node: yaml.ScalarNode) -> bool:
        """`true` or `false`, in any case. Another word for them is noted."""
        read = bool(self.construct_yaml_bool(node))
        if node.value.lower() != str(read).lower():
            self._note(node, read)
        return read

    def construct_refused(self, node: yaml.Node) -> Any:
        """Refuse a kind of value that none of our files holds."""
        self.construct_undefined(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key_node, _ in node.value:
            # With the tag: the number 1 and the text "1" are two keys.
            key = (key_node.tag, str(key_node.value))
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key[1]!r} is given twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_written_int)
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _StrictLoader.construct_written_float)
_StrictLoader.add_constructor("tag:yaml.org,2002:bool", _StrictLoader.construct_written_bool)
for _kind in ("set", "omap", "pairs"):
    # Our files hold nothing of these kinds. A set would pass for a list, in an order of its own.
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _StrictLoader.construct_refused)


def _line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f", line {mark.line + 1}" if mark else ""
