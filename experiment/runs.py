"""Runs the policies of an experiment one after the other; a run that is there already is not made again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from experiment.folder import ExperimentFolder
from experiment.plan import Experiment
from testbed.driver import drive
from testbed.facts import Ending
from testbed.interruption import Interruption
from testbed.outcome import failed_conditions, print_outcome
from testbed.reporting import make_report
from testbed.run_folder import fresh_folder
from themis.errors import ThemisError

Report = dict[str, Any]


class StoppedError(ThemisError):
    """Somebody asked to stop; everything was stopped."""

    exit_code = 3


def run_policies(
    experiment: Experiment, folder: ExperimentFolder, console: Console, interruption: Interruption
) -> Iterator[Report]:
    """Make the run of every policy that has none yet; yields each report.

    Raises:
        StoppedError: At an interrupt. Runs that were over are kept, and are not made again.
    """
    folder.cluster.write_text(experiment.cluster_text(), encoding="utf-8")
    for number, policy in enumerate(experiment.policies, start=1):
        console.print(f"{experiment.name}: {policy}, {number} of {len(experiment.policies)}", markup=False)
        report = finished_report(folder, policy)
        if report is None:
            report = _run(experiment, folder, policy, console, interruption)
        else:
            console.print(f"{policy} was run before and is kept: {folder.run(policy).root}", markup=False)
        yield report


def finished_report(folder: ExperimentFolder, policy: str) -> Report | None:
    """The report of a policy's run, where that run came to its end."""
    path = folder.run(policy).report
    if not path.is_file():
        return None
    report: Report = json.loads(path.read_text(encoding="utf-8"))
    return report if report["ending"] == Ending.ALL_ENDED else None


def _run(
    experiment: Experiment, folder: ExperimentFolder, policy: str, console: Console, interruption: Interruption
) -> Report:
    with fresh_folder(folder.run(policy).root) as run:
        facts = drive(experiment.run_of(policy, folder.cluster), run, console, interruption)
        if facts.ending is Ending.INTERRUPTED:
            raise StoppedError("interrupted", remedy="the same command goes on with the policies that lack")
        if not (run.events.is_file() and run.apps.is_file()):
            raise ThemisError(f"the run of {policy} failed", value=facts.trouble, remedy=f"see {run.log}")
        report = make_report(run)
    print_outcome(report, failed_conditions(report), console)
    return report
