"""Cluster files: groups of like machines on racks, with the device types that they carry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from themis.cluster import Cluster, DeviceKind, DeviceType, Machine
from themis.config.loader import Section, fit, load_yaml
from themis.errors import InputError, UnknownNameError


class DeviceSection(Section):
    """A device type. `emulated: true` says that no such device is in the machine; tasks run on its CPUs."""

    kind: DeviceKind = DeviceKind.GPU
    memory_mb: int = Field(default=0, ge=0)
    speed: float = Field(default=1.0, gt=0)
    emulated: bool = False


class MachineGroup(Section):
    """`count` machines alike, dealt out over `racks` in turn. `slots` holds the GPUs of each slot, [1] on CPU nodes."""

    count: int = Field(default=1, ge=1)
    prefix: str = Field(min_length=1)
    slots: tuple[int, ...] = Field(min_length=1)
    racks: tuple[str, ...] = Field(min_length=1)
    device: str = "gpu"
    cpus: int = Field(default=1, ge=1)
    memory_mb: int = Field(default=0, ge=0)


class ClusterFile(Section):
    """A cluster file."""

    name: str
    devices: dict[str, DeviceSection] = Field(description="the device types, each by its name")
    machines: tuple[MachineGroup, ...] = Field(min_length=1, description="the machines, group by group")


def load_cluster(path: Path) -> Cluster:
    """Read a cluster file; whatever does not fit raises InputError."""
    return build_cluster(fit(ClusterFile, load_yaml(path), str(path)), str(path))


def device_types(sections: Mapping[str, DeviceSection]) -> dict[str, DeviceType]:
    """The device types of these sections, by name."""
    return {
        name: DeviceType(
            name=name,
            kind=section.kind,
            memory_mb=section.memory_mb,
            speed=section.speed,
            emulated=section.emulated,
        )
        for name, section in sections.items()
    }


def build_cluster(file: ClusterFile, source: str) -> Cluster:
    """The cluster that a file describes; machine ids are the group's prefix and a running number."""
    devices = device_types(file.devices)
    machines: list[Machine] = []
    for group in file.machines:
        if group.device not in devices:
            raise UnknownNameError(f"device type in {source}", group.device, devices)
        if any(size < 1 for size in group.slots):
            raise InputError(f"{source}: a slot needs at least one GPU", value=group.slots)
        if not devices[group.device].is_gpu and group.slots != (1,):
            remedy = "a CPU node is leased as one device: write slots: [1]"
            raise InputError(
                f"{source}: machines of CPU type {group.device} have other slots", value=group.slots, remedy=remedy
            )
        machines.extend(_members(group))
    return Cluster(name=file.name, machines=tuple(machines), devices=devices)


def _members(group: MachineGroup) -> list[Machine]:
    return [
        Machine(
            machine_id=f"{group.prefix}{number:02d}",
            rack_id=group.racks[number % len(group.racks)],
            slots=group.slots,
            device=group.device,
            cpus=group.cpus,
            memory_mb=group.memory_mb,
        )
        for number in range(group.count)
    ]
