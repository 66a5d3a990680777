"""Clusters to simulate: by name, by a short text such as `16x8+6x4/1+16x1`, or from a cluster file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from themis.cluster import Cluster, DeviceType, Machine
from themis.config.examples import ExampleKind, examples, file_or_example
from themis.errors import InputError, UnknownNameError

CLUSTERS: Mapping[str, str] = {
    "testbed": "8x2+12x4",
    "paper-168": "16x8+6x4/1+16x1",
    "paper-256": "27x8+6x4/1+16x1",
    "fig18": "1x8+28x2",
    "two-8": "2x8",
}
"""Known clusters as MACHINESxGPUS, with /SLOT for slots of an unusual size (docs/reference/workloads.md, Clusters)."""

MACHINES_A_RACK = 8
MAX_MACHINES = 100_000
MAX_GPUS = 100_000

_GROUP = re.compile(r"([1-9]\d{0,17})x([1-9]\d{0,17})(?:/([1-9]\d{0,17}))?")
_DEVICE = "gpu"
_REMEDY = "write MACHINESxGPUS joined by +, as in 16x8+6x4/1+16x1, where /1 stands for slots of one GPU"


def cluster_named(text: str) -> Cluster:
    """The cluster of that name, of that text, or in a cluster file or example.

    A text lists groups of identical machines, `MACHINESxGPUS` joined by `+`. A slot holds two GPUs if the machine has
    an even number of them, else one; `/1` after a group, or another divisor, changes that. Machines are distributed in
    turn over the fewest racks of which none has more than 8.

    Raises:
        UnknownNameError: Neither a known name nor a text nor a path.
        InputError: A malformed text, or a file that does not fit.
    """
    if text in CLUSTERS:
        return _cluster(text, CLUSTERS[text])
    if text.endswith((".yaml", ".yml")) or Path(text).is_file() or text in examples(ExampleKind.CLUSTER):
        # Imported late: reading YAML by a schema is slow to import, and names need neither.
        from themis.config.cluster_file import load_cluster

        return load_cluster(file_or_example(text, ExampleKind.CLUSTER))
    if text[:1].isdigit():
        return _cluster(text, text)
    raise UnknownNameError("cluster", text, [*CLUSTERS, *examples(ExampleKind.CLUSTER)])


def _cluster(name: str, spec: str) -> Cluster:
    groups = [_group(part, spec) for part in spec.split("+")]
    total = sum(count for count, _ in groups)
    check_size(total, sum(count * sum(slots) for count, slots in groups), spec)
    racks = -(-total // MACHINES_A_RACK)
    width = max(2, len(str(total - 1)))
    slots = [slots for count, slots in groups for _ in range(count)]
    machines = tuple(
        Machine(machine_id=f"m{number:0{width}d}", rack_id=f"rack{number % racks}", slots=each, device=_DEVICE)
        for number, each in enumerate(slots)
    )
    return Cluster(name=name, machines=machines, devices={_DEVICE: DeviceType(name=_DEVICE)})


def _group(part: str, spec: str) -> tuple[int, tuple[int, ...]]:
    """How many machines, and the slots of each."""
    match = _GROUP.fullmatch(part.strip())
    if match is None:
        raise InputError("malformed cluster", value=spec, remedy=_REMEDY)
    count, gpus = int(match[1]), int(match[2])
    check_size(count, count * gpus, spec)
    size = int(match[3]) if match[3] else (2 if gpus % 2 == 0 else 1)
    if gpus % size:
        raise InputError("the slots of a machine must share its GPUs evenly", value=part, remedy=_REMEDY)
    return count, (size,) * (gpus // size)


def check_size(machines: int, gpus: int, spec: str) -> None:
    """Raise InputError if a cluster, named by `spec`, has more machines or GPUs than a run can hold."""
    if machines > MAX_MACHINES:
        raise InputError("too many machines in a cluster", value=spec, remedy=f"at most {MAX_MACHINES}")
    if gpus > MAX_GPUS:
        raise InputError("too many GPUs in a cluster", value=spec, remedy=f"at most {MAX_GPUS}")
