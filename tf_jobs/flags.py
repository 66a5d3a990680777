"""Parse a program's command line into checked values, by its entry in the catalogue.

argparse does not fit: it takes longer to start, and its errors do not name the nearest known flag.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_jobs.catalog import FlagValue, Program, convert
from themis.errors import InputError
from themis.values import Value


class HelpRequested(Exception):  # noqa: N818 - not an error
    """The user asked for help. The argument is the text."""


class Values(Value, frozen=True):
    """The values of all flags of one run."""

    by_name: dict[str, FlagValue]

    def whole(self, name: str) -> int:
        """Return the value of a whole-number flag."""
        return int(self.by_name[name])

    def number(self, name: str) -> float:
        """Return the value of a number flag."""
        return float(self.by_name[name])

    def text(self, name: str) -> str:
        """Return the value of a text flag."""
        return str(self.by_name[name])


def parse(program: Program, arguments: Sequence[str]) -> Values:
    """Read `--name value` and `--name=value`. Dashes and underscores in names are equivalent.

    Raises:
        HelpRequested: `-h` or `--help` is among the arguments.
        InputError: A flag is unknown or repeated, or its value is missing or invalid.
    """
    if "-h" in arguments or "--help" in arguments:
        raise HelpRequested(help_text(program))
    given: dict[str, FlagValue] = {}
    words = iter(arguments)
    for word in words:
        if not word.startswith("--"):
            raise InputError("unexpected argument", value=word, remedy="give flags as --name value")
        name, equals, text = word[2:].partition("=")
        flag = program.flag(name.replace("-", "_"))
        if flag.name in given:
            raise InputError("a flag is given twice", value=f"--{flag.name}", remedy="give it once")
        if not equals:
            follower = next(words, None)
            if follower is None:
                raise InputError("a flag has no value", value=f"--{flag.name}", remedy=f"meaning: {flag.help}")
            text = follower
        given[flag.name] = convert(flag, text)
    return Values(_with_defaults(program, given))


def _with_defaults(program: Program, given: dict[str, FlagValue]) -> dict[str, FlagValue]:
    """Return all flags of the program. Raises InputError if a flag without default is missing."""
    values: dict[str, FlagValue] = {}
    for flag in program.flags:
        value = given.get(flag.name, flag.default)
        if value is None:
            raise InputError("a flag is missing", value=f"--{flag.name}", remedy=f"meaning: {flag.help}")
        values[flag.name] = value
    return values


def help_text(program: Program) -> str:
    """Return the text of `--help`."""
    lines = [f"usage: python -m {program.module} --iterations N [--flag value ...]", "", program.summary, ""]
    for flag in program.flags:
        default = "required" if flag.default is None else f"default {flag.default!r}"
        choices = f" ({', '.join(flag.choices)})" if flag.choices else ""
        lines.append(f"  --{flag.name:<20} {flag.help}{choices}; {default}")
    return "\n".join(lines) + "\n"
