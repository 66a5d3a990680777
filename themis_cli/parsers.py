"""The commands' parser, and a name for what argparse calls its subcommands."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from themis.number_parsing import parse_number
from themis.parser import HelpfulParser

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subcommands = object


class Parser(HelpfulParser):
    """A parser that accepts plain numbers only."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.register("type", int, partial(parse_number, int))
        self.register("type", float, partial(parse_number, float))
