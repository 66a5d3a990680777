"""Whether a run succeeded, as text."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from themis.rho import HEADLINE
from themis_lab.testbed.facts import Ending
from themis_lab.testbed.report import Report


def failed_conditions(report: Report) -> list[str]:
    """Return why a run is not a success, one line each. Empty if it is one."""
    failed = []
    if report["ending"] != Ending.ALL_ENDED:
        failed.append(f"the run was cut short: {report['ending']}{_because(report['trouble'])}{_remedy(report)}")
    missing = report["expected_apps"] - len(report["apps"])
    if missing:
        failed.append(f"{missing} of {report['expected_apps']} apps were never submitted")
    for app in report["apps"]:
        if app["state"] != "FINISHED":
            failed.append(f"{app['name']} is {app['state']}{_because(app['diagnostics'])}")
        elif app["kind"] == "real" and (not app["best"] or app["best"]["accuracy"] is None):
            failed.append(f"{app['name']} names no best model with its accuracy on held-out data")
    if report["processes"]["left_over"]:
        failed.append(f"processes would not end: {report['processes']['left_over']}")
    failed += [f"audit: {violation}" for violation in report["invariants"]["violations"]]
    return failed


def print_outcome(report: Report, failed: list[str], console: Console) -> None:
    """Print the run as a table, and every failed condition."""
    console.print(_apps_table(report))
    for app in report["apps"]:
        if app["kind"] == "real" and app["best"]:
            console.print(_best_line(app["name"], app["best"]), markup=False, highlight=False, soft_wrap=True)
    console.print(_summary_line(report), markup=False, highlight=False, soft_wrap=True)
    for text in failed:
        console.print(f"FAILED: {text}", markup=False, highlight=False, soft_wrap=True)


def _apps_table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("app", "kind", "state"):
        table.add_column(heading, no_wrap=True)
    for heading in ("jobs", "rho", "GPU s", "placement", "moves", "wait s", "done s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for app in report["apps"]:
        table.add_row(
            app["name"],
            app["kind"],
            app["state"],
            str(app["jobs"]),
            shown(app["rho"][HEADLINE], 2),
            shown(app["gpu_time_s"], 0),
            shown(app["placement_score"], 2),
            str(app["resizes"]),
            shown(app["queueing_s"], 1),
            shown(app["completion_s"], 1),
        )
    return table


def _best_line(name: str, best: dict[str, Any]) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in best["hyper_parameters"].items())
    return (
        f"{name}: best model {best['job_id']} ({parameters}), held-out accuracy "
        f"{shown(best['accuracy'], 4)}, loss {shown(best['loss'], 4)}"
    )


def _summary_line(report: Report) -> str:
    cluster, checks = report["cluster"], report["invariants"]["checks"]
    where = f"{_devices(cluster)} under {report['policy']}{by_engine(report['engine'])}"
    worst = f"max rho ({HEADLINE}) {shown(report['max_rho'][HEADLINE], 2)}"
    return (
        f"{report['mix']}: {len(report['apps'])} apps on {where}, "
        f"{report['rounds']} rounds, {report['wall_s']:.0f} s; {worst}; "
        f"audit: {sum(checks.values())} checks, {len(report['invariants']['violations'])} violations; "
        f"at most {report['processes']['peak_count']} processes"
    )


def _devices(cluster: dict[str, Any]) -> str:
    devices = cluster["devices"]
    if len(devices) < 2:
        return f"{cluster['gpus']}{' emulated' if cluster['emulated'] else ''} GPUs"
    return " + ".join(f"{device['count']} {name}" for name, device in devices.items())


def by_engine(engine: str) -> str:
    """The words that name an engine other than local processes in the report."""
    return ", on YARN and HDFS" if engine == "yarn" else ""


def shown(value: float | None, digits: int) -> str:
    """A number for readers; a dash if it is unknown."""
    return "-" if value is None else f"{value:,.{digits}f}"


def _remedy(report: Report) -> str:
    if report["ending"] != Ending.TIME_LIMIT:
        return ""
    return "; raise `time_limit_s` in the mix or experiment, or run it on a machine with less other work"


def _because(text: str) -> str:
    return f" ({text.splitlines()[0]})" if text.strip() else ""
