"""`themis rm`: run a ResourceManager."""

from __future__ import annotations

import argparse
import logging
import sys

from themis_cli.parsers import Subcommands


def add_to(commands: Subcommands) -> None:
    """Add `rm start`."""
    group = commands.add_parser("rm", help="run a ResourceManager").add_subparsers(metavar="COMMAND", required=True)
    start = group.add_parser("start", help="run one in the foreground until SIGTERM or Ctrl-C")
    start.add_argument("-c", "--config", required=True, metavar="FILE", help="settings, YAML; or an example's name")
    start.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    start.set_defaults(run=_start)


def _start(options: argparse.Namespace) -> int:
    logging.basicConfig(
        level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    if options.log_level != "DEBUG":
        # This library logs every request.
        logging.getLogger("hdfs.client").setLevel(logging.WARNING)
    # Imported late, like everything slow to import, so that other commands start quickly.
    from themis.config.examples import ExampleKind, file_or_example
    from themis.config.rm_settings import load_rm_settings

    settings = load_rm_settings(file_or_example(options.config, ExampleKind.SETTINGS))
    # Imported even later: gRPC and the solvers are slow to import, and bad settings are reported at once.
    from rm_plugin.service.server import run

    return run(settings)
