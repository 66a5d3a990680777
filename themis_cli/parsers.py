"""The commands' parser, and a name for what argparse calls its subcommands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from themis.errors import UnknownNameError, nearest
from themis.numerals import plain
from themis.streams import HelpfulParser

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subcommands = object


class Parser(HelpfulParser):
    """A parser that names the option which looks most like an unknown one, and takes plain numbers only."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.register("type", int, partial(plain, int))
        self.register("type", float, partial(plain, float))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does.

        Raises:
            UnknownNameError: An option that is none, but looks like one.
        """
        words: Sequence[str] = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None:
            self._check_options(words)
        return super().parse_known_args(words, namespace)

    def _check_options(self, words: Sequence[str]) -> None:
        known = [option for option in self._option_string_actions if option.startswith("--") and option != "--help"]
        for word in words:
            name = word.partition("=")[0]
            if word == "--":
                return
            # What is the beginning of an option may be one, or be too short to say: argparse knows.
            is_like_one = name.startswith("--") and not any(
                option.startswith(name) for option in self._option_string_actions
            )
            if is_like_one and nearest(name, known):
                raise UnknownNameError(f"option of {self.prog}", name, known)
