"""The testbed's subcommands of `themis`: `testbed run MIX` and `testbed report OUT`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from themis.config.defaults import DEFAULT_POLICY

if TYPE_CHECKING:
    from rich.console import Console

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 3
PLAIN_COLUMNS = 120
DEFAULT_OUT = Path("out/testbed")


def add_arguments(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `testbed` to the command. `run` handles the parsed arguments if they name an action."""
    parser = subparsers.add_parser("testbed", help="run the testbed experiment, or draw its report again")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action")
    play = actions.add_parser("run", help="run a mix of apps on an emulated cluster and report")
    play.add_argument(
        "mix", metavar="MIX", help="mix file, or the name of an example: main, small, hybrid, yarn, hybrid-yarn"
    )
    play.add_argument("--policy", default=DEFAULT_POLICY, help="policy of the ResourceManager; default: %(default)s")
    play.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for the run; default: %(default)s")
    play.add_argument("--engine", default="local", help="local, or yarn: Hadoop on this machine; default: %(default)s")
    play.add_argument("--seed", type=int, default=None, help="in place of the mix's own")
    again = actions.add_parser("report", help="audit a run again and draw its report again")
    again.add_argument("out", type=Path, metavar="OUT", help="folder of a run")


def run(args: argparse.Namespace) -> int:
    """Run the action. Returns the exit code.

    Raises:
        ThemisError: Bad input, or a failed service. `themis` turns it into text.
    """
    from rich.console import Console

    # Without a terminal rich assumes 80 columns, too few for the table of apps.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_COLUMNS)
    if args.action == "report":
        return _report(args.out, console)
    return _run(args, console)


def _run(args: argparse.Namespace, console: Console) -> int:
    from themis.config.examples import ExampleKind, file_or_example
    from themis_lab.testbed.driver import drive, plan_run
    from themis_lab.testbed.facts import Ending
    from themis_lab.testbed.interruption import Interruption
    from themis_lab.testbed.mix import check_trainable, load_mix
    from themis_lab.testbed.run_folder import fresh_folder

    plan = plan_run(load_mix(file_or_example(args.mix, ExampleKind.MIX)), args.policy, args.seed, args.engine)
    check_trainable(plan.arriving)
    with Interruption() as interruption, fresh_folder(args.out) as folder:
        facts = drive(plan, folder, console, interruption)
        if facts.ending is Ending.INTERRUPTED:
            sys.stderr.write("interrupted: everything was stopped\n")
            return EXIT_INTERRUPTED
        if facts.ending is Ending.RM_FAILED:
            sys.stderr.write(f"FAILED: {facts.trouble}\n")
        if not (folder.events.is_file() and folder.apps.is_file()):
            return EXIT_FAILED
        code = _report(args.out, console)
        return EXIT_INTERRUPTED if interruption.requested() else code


def _report(out: Path, console: Console) -> int:
    from themis_lab.testbed.outcome import failed_conditions, print_outcome
    from themis_lab.testbed.reporting import make_report
    from themis_lab.testbed.run_folder import run_folder

    folder = run_folder(out)
    report = make_report(folder)
    failed = failed_conditions(report)
    print_outcome(report, failed, console)
    console.print(f"report: {folder.page}", markup=False, soft_wrap=True)
    return EXIT_FAILED if failed else EXIT_OK
