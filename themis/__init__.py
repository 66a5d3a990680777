"""Themis: a GPU cluster scheduler for machine-learning apps, fair in finish time.

This package is the kernel: the values that every part of Themis shares. What is listed here is the public interface;
its names are loaded on first use, so that a small program does not pay for all of them.

Example: read a cluster file and an app's group file, and see what the app asks for.

    >>> from themis import load_cluster, load_group
    >>> from themis.config.examples import ExampleKind, examples
    >>> cluster = load_cluster(examples(ExampleKind.CLUSTER)["small-8"])
    >>> app = load_group(examples(ExampleKind.APP)["replay-search"])
    >>> cluster.gpus, len(app.jobs), app.demand_max_gpus
    (8, 8, 32)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from themis.apps import AppSpec, JobSpec
    from themis.bids import AppReport, Bid, BidRow, Market
    from themis.cluster import Allocation, Cluster, DeviceType, GpuId, Level, Machine
    from themis.config.cluster_file import load_cluster
    from themis.config.group_file import load_group
    from themis.errors import InputError, InvariantError, ThemisError, UnknownNameError, UnreachableError
    from themis.leases import Lease
    from themis.lifecycle import AppState, JobState, LeaseState
    from themis.reporting import report, report_run

__version__ = "0.1.0"

_MODULES = {
    "themis.apps": ("AppSpec", "JobSpec"),
    "themis.bids": ("AppReport", "Bid", "BidRow", "Market"),
    "themis.cluster": ("Allocation", "Cluster", "DeviceType", "GpuId", "Level", "Machine"),
    "themis.config.cluster_file": ("load_cluster",),
    "themis.config.group_file": ("load_group",),
    "themis.errors": ("InputError", "InvariantError", "ThemisError", "UnknownNameError", "UnreachableError"),
    "themis.leases": ("Lease",),
    "themis.lifecycle": ("AppState", "JobState", "LeaseState"),
    "themis.reporting": ("report", "report_run"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Allocation",
    "AppReport",
    "AppSpec",
    "AppState",
    "Bid",
    "BidRow",
    "Cluster",
    "DeviceType",
    "GpuId",
    "InputError",
    "InvariantError",
    "JobSpec",
    "JobState",
    "Lease",
    "LeaseState",
    "Level",
    "Machine",
    "Market",
    "ThemisError",
    "UnknownNameError",
    "UnreachableError",
    "__version__",
    "load_cluster",
    "load_group",
    "report",
    "report_run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
