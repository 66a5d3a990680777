"""The `themis` command: what an operator and an experimenter type. Every error becomes text here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from themis.errors import ThemisError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 0 done, 1 failed, 2 usage or bad input, 3 interrupted."""
    try:
        parser = build_parser()
        options = parser.parse_args(arguments)
        if options.run is None:
            parser.print_help()
            return 0
        return int(options.run(options))
    except ThemisError as error:
        print(f"themis: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"themis: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("themis: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def build_parser() -> argparse.ArgumentParser:
    """The command line, a group of subcommands a module."""
    # Imported here, so that Ctrl-C while they load ends like Ctrl-C at any other time.
    from themis_cli import (
        auction_command,
        audit_command,
        bench_command,
        checkpoints_command,
        devcluster_command,
        replay_command,
        reproduce_command,
        rho_command,
        rm_command,
        simulate_command,
        testbed_command,
    )

    parser = argparse.ArgumentParser(
        prog="themis", description="Themis: a GPU cluster scheduler, fair in finish time.", allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    modules = (
        rm_command, rho_command, testbed_command, auction_command, bench_command, audit_command, simulate_command,
        reproduce_command,
        replay_command, devcluster_command, checkpoints_command,
    )  # fmt: skip
    for module in modules:
        module.add_to(commands)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: that is slow."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"themis {version('themis-scheduler')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
