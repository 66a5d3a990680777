"""The `themis` command of operators and experimenters. It turns every error into text."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module

from themis.errors import ThemisError
from themis.interruption import OneInterruption, dealt_with, undisturbed_imports
from themis.shell_completion import complete, is_completing
from themis.streams import EXIT_READER_CLOSED, drop_unwritten, reader_closed, usable_streams, write_stderr
from themis_cli.parsers import Parser

EXIT_USAGE = 2
EXIT_INTERRUPTED = 3

_OPERATORS = ("rm", "user", "usage", "checkpoints", "devcluster", "examples", "completion")
_RESEARCHERS = (
    "simulate", "reproduce", "testbed", "audit", "bench", "auction", "allox", "oef", "rho", "replay",
)  # fmt: skip
_COMMANDS = (*_OPERATORS, *_RESEARCHERS)
"""Modules of the commands, each imported only when its command is called."""

_COMPUTING = ("auction", "allox", "oef", "audit", "simulate", "reproduce", "replay")
"""Commands that start no jobs. Jobs may want more threads of numpy's linear algebra than these commands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 0 done, 1 failed, 2 usage or bad input, 3 interrupted, 141 the reader of the output closed the
            pipe.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if not usable_streams("themis"):
        return EXIT_USAGE
    if not words or words[0] not in _COMPUTING:
        return _run_with_errors_as_text(words)
    # Our arrays are small: starting one thread per core takes longer (50 ms of CPU) than the threads save.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with OneInterruption() as interruption:
        code = _run_with_errors_as_text(words)
        if arguments is None:
            # The process is about to end; a second Ctrl-C would only change how.
            interruption.ignore_for_good()
            # The process's memory is freed at exit. A last garbage collection would take 0.1 s after a large run.
            gc.freeze()
    return code


def _run_with_errors_as_text(words: Sequence[str]) -> int:
    """Run the command and turn errors into text."""
    try:
        with undisturbed_imports():
            parser = build_parser(words[0] if words and not is_completing() else None)
            complete(parser)
            options = parser.parse_args(words)
            if options.run is None:
                parser.print_help()
                return 0
            code = int(options.run(options))
        sys.stdout.flush()
        return code
    except ThemisError as error:
        write_stderr(f"themis: {error}")
        return error.exit_code
    except OSError as error:
        if isinstance(error, BrokenPipeError) and reader_closed():
            return EXIT_READER_CLOSED
        write_stderr(f"themis: {error}")
        return EXIT_USAGE
    except SystemExit as end:
        # How rich reports that the reader has closed the pipe.
        if isinstance(end.__context__, BrokenPipeError):
            return EXIT_READER_CLOSED
        raise
    except KeyboardInterrupt:
        dealt_with()
        write_stderr("themis: interrupted")
        return EXIT_INTERRUPTED
    finally:
        drop_unwritten()


class _GroupedParser(Parser):
    """The parser of all commands, whose help lists them in two groups. Subparsers themselves have no groups."""

    def format_help(self) -> str:
        text = super().format_help()
        for heading, (first, *_) in (("for operators", _OPERATORS), ("for researchers", _RESEARCHERS)):
            text = re.sub(rf"^    {first} ", f"\n  {heading}:\n\\g<0>", text, count=1, flags=re.MULTILINE)
        return text


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Build the parser: of one command if it is known, so that it starts quickly, else of all commands."""
    parser = _GroupedParser(
        prog="themis", description="Themis: a GPU cluster scheduler, fair in finish time.", allow_abbrev=False
    )
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for name in (command,) if command in _COMMANDS else _COMMANDS:
        import_module(f"themis_cli.{name}_command").add_to(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
