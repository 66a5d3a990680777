"""Run the live experiment: forecast, one run per policy, predictions, report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from themis.errors import InputError, ThemisError
from themis_lab.paper.live.folder import RUNS, ExperimentFolder, PlanFile, check_folder, make_folder, read_plan
from themis_lab.paper.live.plan import Experiment, plan_experiment
from themis_lab.paper.live.report import write_report
from themis_lab.paper.live.results import Results, read_results
from themis_lab.paper.live.runs import finished_report, run_policies
from themis_lab.paper.live.scale import scale_named
from themis_lab.paper.live.summary import failures
from themis_lab.paper.live.tables import HEADINGS, cells
from themis_lab.paper.live.views.registry import VIEWS
from themis_lab.simulator.runs import Run, make_run
from themis_lab.testbed.interruption import Interruption
from themis_lab.testbed.mix import check_trainable

EXIT_OK, EXIT_FAILED = 0, 1
PLAIN_COLUMNS = 150
START_AND_STOP_S = 15.0
"""Time of a run in addition to the simulated time: to start the service, release everything, audit, and write the page.
"""
_MINUTE_S = 60.0


def run_experiment(*, workload: str, policies: Sequence[str], scale: str, seed: int, out: Path) -> int:
    """Make the missing runs of the experiment, and report. Returns the exit code.

    Raises:
        InputError: Invalid input; nothing was started or written.
        StoppedError: Interrupted. Finished runs are kept.
        ThemisError: No run was finished.
    """
    experiment = plan_experiment(workload, policies, seed, scale_named(scale))
    check_trainable(experiment.arriving)
    plan = _plan(experiment)
    folder = check_folder(out, plan)
    console = _console()
    console.print("asking the simulator how long it will take", markup=False)
    console.print(_forecast(experiment, folder), markup=False, soft_wrap=True)
    make_folder(folder, plan)
    with Interruption() as interruption:
        run_policies(experiment, folder, console, interruption)
    return _report(experiment, folder, console)


def report_again(out: Path) -> int:
    """Report an existing experiment with all policies that were run. Returns the exit code."""
    folder = ExperimentFolder(out)
    plan = read_plan(folder)
    there = [path.name for path in sorted((out / RUNS).glob("*"))]
    policies = [*(name for name in plan.policies if name in there), *(n for n in there if n not in plan.policies)]
    if not policies:
        remedy = "run it: themis testbed --workload .."
        raise InputError("nothing of the experiment was run", value=str(out), remedy=remedy)
    return _report(plan_experiment(plan.workload, policies, plan.seed, plan.scale), folder, _console())


def _plan(experiment: Experiment) -> PlanFile:
    return PlanFile(
        fingerprint=experiment.fingerprint,
        workload=experiment.workload,
        seed=experiment.seed,
        policies=experiment.policies,
        scale=experiment.scale,
    )


def _forecast(experiment: Experiment, folder: ExperimentFolder) -> str:
    """Return how long the runs will take. The simulator runs the same apps first, with assumed costs."""
    todo = [policy for policy in experiment.policies if finished_report(folder, policy) is None]
    workload = experiment.simulated()
    spans_s = [make_run(Run(workload=workload, settings=experiment.settings(policy))).makespan_s for policy in todo]
    jobs = sum(len(arrival.spec.jobs) for arrival in experiment.arriving)
    what = f"{experiment.name}: {len(experiment.arriving)} apps, {jobs} jobs, {experiment.cluster.gpus} emulated GPUs"
    if not todo:
        return f"{what}; every policy was run before"
    total_min = (sum(spans_s) + START_AND_STOP_S * len(todo)) / _MINUTE_S
    each = f"{min(spans_s) / _MINUTE_S:.1f} to {max(spans_s) / _MINUTE_S:.1f} min each by the simulator"
    return f"{what}; to run: {', '.join(todo)}, {each}, about {total_min:.0f} min in all"


def _report(experiment: Experiment, folder: ExperimentFolder, console: Console) -> int:
    console.print("predicting the same runs, drawing the report", markup=False)
    results = read_results(folder, experiment.workload, experiment.policies)
    if not results.rows:
        why = "; ".join(failures(results)) or "no app has a rho"
        raise ThemisError("no run came to its end", value=why, remedy=f"see rm.log in {folder.root / RUNS}")
    write_report(experiment, folder, results)
    _print(results, console)
    failed = failures(results)
    for text in failed:
        console.print(f"FAILED: {text}", markup=False, soft_wrap=True)
    console.print(f"report: {folder.page}", markup=False, soft_wrap=True)
    return EXIT_FAILED if failed else EXIT_OK


def _print(results: Results, console: Console) -> None:
    """Print the tables for a terminal."""
    from rich.table import Table

    for view in VIEWS[results.workload]:
        lines = view.lines(results)
        if not lines:
            continue
        table = Table(box=None, pad_edge=False, title=f"{view.name}: {view.title}", title_justify="left")
        for place, heading in enumerate(HEADINGS):
            table.add_column(heading, justify="right" if place else "left", no_wrap=place > 0)
        for line in lines:
            table.add_row(*cells(line))
        console.print(table, markup=False)


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_COLUMNS)
