"""The `submarine` command. It turns every error into text and an exit code."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from submarine_client.address import rm_address
from submarine_client.parser import build_parser
from submarine_client.session import OK, Session
from submarine_client.terminal import PREFIX, Terminal
from submarine_client.wait import Pace
from themis.errors import ThemisError
from themis.interruption import dealt_with, undisturbed_imports
from themis.shell_completion import complete
from themis.streams import EXIT_READER_CLOSED, drop_unwritten, reader_closed, usable_streams, write_stderr

USAGE = 2
INTERRUPTED = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    if not usable_streams("submarine"):
        return USAGE
    terminal = Terminal.of_process()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with undisturbed_imports():
            code = _dispatch(terminal, words)
        sys.stdout.flush()
        return code
    except ThemisError as error:
        write_stderr(f"{PREFIX}{error}")
        return error.exit_code
    except OSError as error:
        if isinstance(error, BrokenPipeError) and reader_closed():
            return EXIT_READER_CLOSED
        write_stderr(f"{PREFIX}{error}")
        return USAGE
    except KeyboardInterrupt:
        dealt_with()
        write_stderr(f"{PREFIX}interrupted")
        return INTERRUPTED
    finally:
        drop_unwritten()


def _dispatch(terminal: Terminal, words: Sequence[str]) -> int:
    arguments = _parse(words)
    if isinstance(arguments, int):
        return arguments
    if getattr(arguments, "handler", None) is None:
        arguments.usage_of.print_help()
        return OK
    code: int = arguments.handler(_session(terminal, arguments), arguments)
    return code


def _parse(words: Sequence[str]) -> Namespace | int:
    parser = build_parser()
    complete(parser)
    try:
        return parser.parse_args(words)
    except SystemExit as leaving:  # argparse has printed the help
        return leaving.code if isinstance(leaving.code, int) else OK


def _session(terminal: Terminal, arguments: Namespace) -> Session:
    pace = Pace(poll_s=arguments.poll, patience_s=arguments.patience) if hasattr(arguments, "poll") else Pace()
    address = rm_address(getattr(arguments, "rm", None), os.environ)
    return Session(terminal=terminal, address=address, ca=getattr(arguments, "ca", None), pace=pace)


if __name__ == "__main__":
    raise SystemExit(main())
