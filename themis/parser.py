"""A parser of command lines that names what looks most like a word that it does not know."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from themis import __version__
from themis.errors import InputError, UnknownNameError, nearest, shortened


def version_line(program: str) -> str:
    """Return what `--version` prints for a program or one of its commands, such as `themis rm`."""
    return f"{program.split()[0]} {__version__}"


class HelpfulParser(argparse.ArgumentParser):
    """A parser that raises our errors, so that they become text in one place.

    It names the option or the choice nearest to an unknown one. `--version` works behind every command.
    Its help is written, or an error: argparse passes over what cannot be.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        version, about = version_line(self.prog), "show the version and exit"
        self.add_argument("--version", action="version", version=version, help=about)

    def error(self, message: str) -> NoReturn:
        """Raise InputError instead of writing the usage and ending the process."""
        # Of a list of choices nothing is cut.
        raise InputError(re.sub(r"\S{200,}", lambda word: shortened(word[0]), message), remedy=f"see: {self.prog} -h")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but the parser of a command reports the words that it does not know itself.

        argparse leaves that to the first parser, whose help does not have the command's options.

        Raises:
            UnknownNameError: An option that is none, but looks like one.
        """
        words: Sequence[str] = list(sys.argv[1:] if args is None else args)
        self._check_options(words)
        found, unknown = super().parse_known_args(words, namespace)
        if unknown and not any(action.nargs == argparse.PARSER for action in self._actions):
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _check_options(self, words: Sequence[str]) -> None:
        every = self._option_string_actions
        known = {option[2:]: option for option in every if option.startswith("--")}
        # Behind a subcommand stand its own options.
        ends = {"--"}.union(*(action.choices or () for action in self._actions if action.nargs == argparse.PARSER))
        for word in itertools.takewhile(lambda word: word not in ends, words):
            name = word.partition("=")[0]
            # What is the beginning of an option may be one, or be too short to say: argparse knows.
            begins = self.allow_abbrev and any(option.startswith(name) for option in every)
            # As argparse has it, an unknown word with a space is a value, such as a reason.
            if not name.startswith("--") or name in every or begins or " " in word:
                continue
            if near := nearest(name[2:], known):
                raise UnknownNameError(f"option of {self.prog}", name, [known[near]])

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is not None and value not in choices and (near := nearest(str(value), map(str, choices))):
            raise argparse.ArgumentError(action, f"invalid choice: {value!r} (did you mean {near!r}?)")
        super()._check_value(action, value)

    def _print_message(self, message: str, file: Any = None) -> None:
        if message and file is sys.stdout:
            file.write(message)
            file.flush()
        else:
            super()._print_message(message, file)
