"""The rules of AlloX and its baselines by name. Each decides which waiting jobs of a round start.

SRPT is not among them: it preempts and migrates jobs at every event without cost, and here a job keeps its device until
it ends. The policy `srtf` is similar, with leases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rm_plugin.arbiter.round_values import RoundSnapshot
from rm_plugin.policies.allox import allox_plus, decision
from rm_plugin.policies.allox.baselines import bf, drfa, drff, drfs, es, es_fcfs, jsq, sjf
from rm_plugin.policies.allox.values import Decision, Snapshot
from rm_plugin.policies.oef_tenants import tenant_of_app
from themis.cluster import Cluster

Rule = Callable[[Snapshot, RoundSnapshot], Decision]
"""Decides which jobs of a frame start now; the frame is of this round."""


def _drfa(frame: Snapshot, of: RoundSnapshot) -> Decision:
    types = _gpus_first(of.cluster)
    return drfa.decide(frame, drfa.mean_speedups(frame.waiting, types, slowest=types[-1]))


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "allox": lambda frame, of: decision.decide(frame, of.settings.alpha),
        "allox_plus": lambda frame, of: allox_plus.decide(frame, late_order=of.settings.late_order),
        "sjf_plus": lambda frame, _: sjf.decide(frame),
        "best_fit": lambda frame, _: bf.decide(frame),
        "jsq_plus": lambda frame, _: jsq.decide(frame),
        "equal_share": lambda frame, of: es.decide(frame, _users(of), _gpus_first(of.cluster)),
        "equal_share_fcfs": lambda frame, of: es_fcfs.decide(frame, _users(of)),
        "drff": lambda frame, of: drff.decide(frame, _gpu_types(of.cluster)),
        "drfs": lambda frame, _: drfs.decide(frame),
        "drfa": _drfa,
    }
)


def _users(of: RoundSnapshot) -> list[str]:
    """All users with an app, whether its jobs wait or not."""
    return [tenant_of_app(app, of.settings)[0] for app in of.apps]


def _gpu_types(cluster: Cluster) -> list[str]:
    return [device.name for device in cluster.present_devices if device.is_gpu]


def _gpus_first(cluster: Cluster) -> list[str]:
    """All device types: GPUs before CPU nodes, the fastest first."""
    devices = sorted(cluster.present_devices, key=lambda each: (not each.is_gpu, -each.speed, each.name))
    return [device.name for device in devices]
