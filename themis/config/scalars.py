"""Scalars of YAML files: hyper-parameters, arguments, settings and environment variables."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, FiniteFloat, StrictBool, StrictInt, StrictStr

SHORTENED = re.compile(r"[-+]?[0-9]*\.[0-9]+0")
"""A number whose last digits are zeros. As text it loses them: 1.10 becomes 1.1."""

_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


class ShortenedFloat(float):
    """A number that a file writes with zeros at its end; `written` is its text there."""

    def __new__(cls, value: float, written: str) -> ShortenedFloat:
        """Make the number, with its text."""
        made = super().__new__(cls, value)
        made.written = written
        return made

    written: str


def number(value: Any) -> Any:
    """The value, as a number where it is one that YAML took for text, or one with its text."""
    if isinstance(value, ShortenedFloat):
        return float(value)
    # YAML 1.1 reads 1e-3 as text, since it has no dot; its author meant a number.
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _scalar(value: Any) -> Any:
    if isinstance(value, ShortenedFloat):
        # It becomes text on a command line, where 1.10 may be a version.
        raise ValueError(
            f"{value.written} would lose its last zeros; write {float(value)}, or '{value.written}' as text"
        )
    # Else a value that is none is answered by the first kind of value that it is not: a truth value.
    value = number(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number is wanted")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a whole number of 64 bits at most is wanted")
    if not isinstance(value, int | float | str):
        raise ValueError("a number, text, true or false is wanted")
    return value


def _variable_name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("the name of an environment variable is not empty and holds no '=' and no NUL")
    return name


def _variable(value: Any) -> Any:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("the value of an environment variable holds no NUL")
    # YAML turns `on` and `1.0` into other things than were written; a whole number is what it was, see the loader.
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise ValueError("the value of an environment variable is text; put it in quotes")


Scalar = Annotated[StrictBool | StrictInt | FiniteFloat | StrictStr, BeforeValidator(_scalar)]
"""A number, text or truth value, kept as the file gives it; `1e-3` counts as a number."""

VariableName = Annotated[StrictStr, AfterValidator(_variable_name)]
"""The name of an environment variable: what no system takes is refused before a task fails by it."""

Variable = Annotated[StrictStr, BeforeValidator(_variable)]
"""The value of an environment variable."""
