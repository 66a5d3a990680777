"""Run the policies of an experiment one after another. Finished runs are not repeated."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from themis.errors import ThemisError
from themis_lab.paper.live.folder import ExperimentFolder
from themis_lab.paper.live.plan import Experiment
from themis_lab.testbed.driver import drive
from themis_lab.testbed.facts import Ending, read_facts
from themis_lab.testbed.interruption import Interruption
from themis_lab.testbed.outcome import failed_conditions, print_outcome
from themis_lab.testbed.reporting import make_report
from themis_lab.testbed.run_folder import RunFolder, fresh_folder

Report = dict[str, Any]


class StoppedError(ThemisError):
    """The user interrupted the experiment; everything was stopped."""

    exit_code = 3


def run_policies(
    experiment: Experiment, folder: ExperimentFolder, console: Console, interruption: Interruption
) -> None:
    """Run every policy without a finished run. A run that is cut short does not prevent the next.

    Raises:
        StoppedError: Interrupted. Finished runs are kept and not repeated.
    """
    folder.cluster.write_text(experiment.cluster_text(), encoding="utf-8")
    for number, policy in enumerate(experiment.policies, start=1):
        console.print(f"{experiment.name}: {policy}, {number} of {len(experiment.policies)}", markup=False)
        if finished_report(folder, policy) is None:
            _run(experiment, folder, policy, console, interruption)
        else:
            kept = folder.run(policy).root
            console.print(f"{policy} was run before and is kept; remove {kept} to run it again", markup=False)


def finished_report(folder: ExperimentFolder, policy: str) -> Report | None:
    """The report of a policy's run if the run finished; its apps may have failed."""
    report = _report_of(folder.run(policy))
    return report if report is not None and report["ending"] == Ending.ALL_ENDED else None


def why_cut_short(folder: ExperimentFolder, policy: str) -> str:
    """Why a policy's run did not finish; empty if it has no run."""
    run = folder.run(policy)
    if not run.facts.is_file():
        return ""
    facts = read_facts(run.facts)
    return f"{facts.ending}{f': {facts.trouble}' if facts.trouble else ''}"


def _report_of(run: RunFolder) -> Report | None:
    """The run's report. Returns None if it cannot be read, so that the run is repeated."""
    try:
        report = json.loads(run.report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) and "ending" in report else None


def _run(
    experiment: Experiment, folder: ExperimentFolder, policy: str, console: Console, interruption: Interruption
) -> None:
    with fresh_folder(folder.run(policy).root) as run:
        facts = drive(experiment.run_of(policy, folder.cluster), run, console, interruption)
        if facts.ending is Ending.INTERRUPTED:
            raise StoppedError("interrupted", remedy="the same command goes on with the policies that lack")
        if not (run.events.is_file() and run.apps.is_file()):
            console.print(f"FAILED: {facts.ending}: {facts.trouble}; see {run.log}", markup=False, soft_wrap=True)
            return
        report = make_report(run)
    print_outcome(report, failed_conditions(report), console)
