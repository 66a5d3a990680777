"""Read a live testbed run from its folder as input of the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from themis.errors import InputError
from themis.values import Value
from themis.wire.values import app_from_message
from themis_lab.paper.live.live_settings import as_live
from themis_lab.paper.live.measured_costs import as_measured
from themis_lab.simulator.metrics import DEFINITION, Document, fairness, summary
from themis_lab.simulator.runs import Run
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import Workload
from themis_lab.simulator.workloads.mix import from_specs
from themis_lab.testbed.audit_values import AuditResult
from themis_lab.testbed.report import build_report
from themis_lab.testbed.run_folder import run_folder
from themis_lab.testbed.run_record import RunRecord, read_run

_OF_AN_APP = (
    "name", "jobs", "rho", "completion_s", "queueing_s", "gpu_time_s", "placement_score", "restarts", "checkpoints",
)  # fmt: skip


class LiveRun(Value, frozen=True, kw_only=True):
    """A live run: its input as the simulator would run it, and the known part of its document."""

    run: Run
    document: Document


def read_live(path: Path) -> LiveRun:
    """Return the arrivals and settings of a live run, and the metrics that the testbed measures.

    Raises:
        InputError: The folder holds no run, or a run without submitted apps.
    """
    record = read_run(run_folder(path))
    settings = _settings(record)
    return LiveRun(run=Run(workload=_workload(record), settings=settings), document=live_document(record))


def live_document(record: RunRecord) -> Document:
    """The metrics of a live run under the keys of a simulated one, without those that were not measured."""
    report = build_report(record, AuditResult(checks={}, violations=(), measured={}))
    # The testbed calls the simulator's restarts resizes; its own restarts follow failures.
    apps = [
        {key: app[key] for key in _OF_AN_APP} | {"restarts": app["restarts"] + app["resizes"]} for app in report["apps"]
    ]
    by_definition = _by_definition(apps)
    ended_s = [app.finished_at_s for app in record.apps if app.finished_at_s > 0]
    begun_s = [app.submitted_at_s for app in record.apps]
    known = by_definition.get(DEFINITION, {})
    return {
        "policy": record.facts.policy,
        "cluster": record.cluster.name,
        "cluster_gpus": record.cluster.gpus,
        "workload": record.facts.mix,
        "seed": record.facts.seed,
        "apps": apps,
        "max_rho": {name: each["max"] for name, each in by_definition.items()},
        "mean_rho": known.get("mean"),
        "jain": known.get("jain"),
        "share_over_1": known.get("share_over_1"),
        "by_definition": by_definition,
        "gpu_time_s": sum(app["gpu_time_s"] for app in apps),
        "makespan_s": max(ended_s) - min(begun_s) if ended_s else None,
        "completion_s": summary(_known(apps, "completion_s")),
        "queueing_s": summary(_known(apps, "queueing_s")),
        "longest_wait_s": max(_known(apps, "queueing_s"), default=None),
        "placement_score": {"mean": summary(_known(apps, "placement_score"))["mean"]},
        "utilisation": report["utilisation"],
        "restarts": sum(app["restarts"] for app in apps),
        "checkpoints": sum(app["checkpoints"] for app in apps),
        "rounds": report["rounds"],
        "auctions": {"share_of_gpus_by_leftovers": report["share_of_gpus_by_leftovers"]},
        "wall_s": record.facts.wall_s,
    }


def _workload(record: RunRecord) -> Workload:
    submitted = [app for app in record.apps if app.HasField("spec")]
    if not submitted:
        raise InputError("the run has no apps to play again", value=record.facts.mix)
    first_s = min(app.submitted_at_s for app in submitted)
    arrivals = [(app.submitted_at_s - first_s, replace(app_from_message(app.spec), name=app.name)) for app in submitted]
    facts = record.facts
    workload = from_specs(arrivals, name=facts.mix, time_scale=facts.time_scale, seed=facts.seed)
    return as_measured(workload, record)


def _settings(record: RunRecord) -> Settings:
    live = record.settings
    base = Settings(cluster=record.cluster, policy=live.policy, seed=live.seed)
    chosen = as_live(base, auction=live.auction, lease=live.lease, time_scale=live.time_scale)
    return replace(chosen, coalesce_s=live.coalesce_s)


def _by_definition(apps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = list(apps[0]["rho"]) if apps else []
    values = {name: [app["rho"][name] for app in apps if app["rho"][name] is not None] for name in names}
    return {name: fairness(rhos) for name, rhos in values.items() if rhos}


def _known(apps: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [app[key] for app in apps if app[key] is not None]
