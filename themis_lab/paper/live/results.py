"""The results of an experiment's runs, and the simulator's predictions of the same runs, as rows with equal columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import field
from msgspec.structs import replace

from themis.rho import RhoDefinition
from themis.values import Value
from themis_lab.paper.live.folder import ExperimentFolder
from themis_lab.paper.live.live_run import read_live
from themis_lab.paper.live.runs import finished_report, why_cut_short
from themis_lab.paper.statistics import Row
from themis_lab.simulator.record import AppOutcome
from themis_lab.simulator.runs import make_run

TESTBED, SIMULATOR = "testbed", "simulator"
PREDICTIONS = 3
"""Simulated runs per live run. Leftovers are assigned at random, so one run is not enough."""


class Results(Value, frozen=True, kw_only=True):
    """All runs of one workload.

    Attributes:
        rows: One row per app and run. Column `source` says whether it ran on the testbed or in the simulator.
        reports: The testbed's report of each policy whose run finished.
        unfinished: Apps without a rho, by policy; they have no row.
        cut_short: Why a policy's run did not finish; it has no rows either.
    """

    workload: str
    rows: tuple[Row, ...]
    reports: Mapping[str, Mapping[str, Any]]
    unfinished: Mapping[str, Sequence[str]]
    cut_short: Mapping[str, str] = field(default_factory=dict)

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies with rows, in the order of the experiment."""
        shown = {row["policy"] for row in self.rows}
        return tuple(policy for policy in self.reports if policy in shown)

    def of(self, source: str, policy: str = "") -> list[Row]:
        """The rows of one source, and of one policy if it is named."""
        return [row for row in self.rows if row["source"] == source and policy in ("", row["policy"])]


def read_results(folder: ExperimentFolder, workload: str, policies: Sequence[str]) -> Results:
    """Read the finished runs of these policies, and predict them. Policies that were not run are left out."""
    rows: list[Row] = []
    reports, unfinished, cut_short = {}, {}, {}
    for policy in policies:
        report = finished_report(folder, policy)
        if report is None:
            if why := why_cut_short(folder, policy):
                cut_short[policy] = why
            continue
        reports[policy] = report
        unfinished[policy] = [app["name"] for app in report["apps"] if app["rho"]["themis"] is None]
        known = [app for app in report["apps"] if app["rho"]["themis"] is not None]
        labels = {"workload": workload, "policy": policy}
        rows += [{**labels, "source": TESTBED, "seed": report["seed"], **_live(app)} for app in known]
        rows += [{**labels, "source": SIMULATOR, **row} for row in _predicted(folder, policy)]
    return Results(workload=workload, rows=tuple(rows), reports=reports, unfinished=unfinished, cut_short=cut_short)


def _predicted(folder: ExperimentFolder, policy: str) -> Iterable[Row]:
    """Simulate the run: the same arrivals and settings, and the measured costs."""
    run = read_live(folder.run(policy).root).run
    for number in range(PREDICTIONS):
        settings = replace(run.settings, seed=run.settings.seed + number, record_rounds=False)
        record = make_run(replace(run, settings=settings))
        yield from ({"seed": settings.seed, **_simulated(app)} for app in record.apps)


def _live(app: Mapping[str, Any]) -> Row:
    return {
        "app": app["name"],
        "kind": app["kind"],
        "jobs": app["jobs"],
        # Runs recorded before the fluid fair cluster lack its definitions.
        **{f"rho_{name}": _number(app["rho"].get(name)) for name in RhoDefinition},
        "completion_s": _number(app["completion_s"]),
        "queueing_s": _number(app["queueing_s"]),
        "gpu_time_s": _number(app["gpu_time_s"]),
        "placement_score": _number(app["placement_score"]),
        "restarts": app["resizes"] + app["restarts"],
    }


def _simulated(app: AppOutcome) -> Row:
    return {
        "app": app.name,
        "kind": "simulated",
        "jobs": app.jobs,
        **{f"rho_{name}": app.rho[name] for name in RhoDefinition},
        "completion_s": app.completion_s,
        "queueing_s": app.queueing_s,
        "gpu_time_s": app.gpu_time_s,
        "placement_score": app.placement_score,
        "restarts": app.restarts,
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
