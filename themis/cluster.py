"""The cluster: machines with slots and device types on racks, locality levels, and allocations as counts by machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property

from themis.errors import InputError, UnknownNameError


class Level(IntEnum):
    """Locality levels, nearest first: how far apart the GPUs of one gang lie (themis.md, section 1)."""

    SLOT = 0
    MACHINE = 1
    RACK = 2
    CLUSTER = 3

    @property
    def label(self) -> str:
        """The name that users type: `slot`, `machine`, `rack` or `cluster`."""
        return self.name.lower()

    @classmethod
    def parse(cls, label: str) -> Level:
        """The level of that label; an unknown one raises UnknownNameError."""
        try:
            return cls[label.upper()]
        except KeyError:
            raise UnknownNameError("locality level", label, (level.label for level in cls)) from None


class DeviceKind(StrEnum):
    """What a device is; policies for mixed devices need CPUs beside GPUs."""

    GPU = "gpu"
    CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """A model of device. `speed` is relative to the reference GPU; a job may state its own speed by device type."""

    name: str
    kind: DeviceKind = DeviceKind.GPU
    memory_mb: int = 0
    speed: float = 1.0
    emulated: bool = False


@dataclass(frozen=True, slots=True, order=True)
class GpuId:
    """One GPU: its machine and its index there, as CUDA counts."""

    machine_id: str
    index: int

    def __str__(self) -> str:
        return f"{self.machine_id}/{self.index}"

    @classmethod
    def parse(cls, text: str) -> GpuId:
        """The inverse of `str`; malformed text raises InputError."""
        machine_id, separator, index = text.rpartition("/")
        # `isdigit` alone lets through what `int` refuses, superscripts for instance.
        if not machine_id or not separator or not (index.isascii() and index.isdigit()):
            raise InputError("malformed GPU id", value=text, remedy="write MACHINE/INDEX")
        return cls(machine_id, int(index))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine: `slots` holds the number of GPUs of each slot (GPUs of one slot share the fastest link)."""

    machine_id: str
    rack_id: str
    slots: tuple[int, ...]
    device: str = "gpu"
    cpus: int = 1
    memory_mb: int = 0

    @property
    def gpus(self) -> int:
        """Number of GPUs of the machine."""
        return sum(self.slots)

    def slot_of(self, index: int) -> int:
        """The slot that holds the GPU of this index; an index the machine lacks raises InputError."""
        end = 0
        for slot, size in enumerate(self.slots):
            end += size
            if 0 <= index < end:
                return slot
        raise InputError(f"machine {self.machine_id} has no GPU of this index", value=index)


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """GPUs by machine. Only counts matter; machines without a GPU are left out, machines stand in order."""

    counts: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, counts: Mapping[str, int] | Iterable[tuple[str, int]]) -> Allocation:
        """An allocation from counts by machine; zeros are dropped.

        Raises:
            InputError: A negative count, or a machine that is counted twice.
        """
        if isinstance(counts, Mapping):
            pairs = dict(counts)
        else:
            listed = list(counts)
            pairs = dict(listed)
            if len(pairs) < len(listed):
                raise InputError("an allocation cannot count a machine twice", value=listed)
        bad = {machine: count for machine, count in pairs.items() if count < 0}
        if bad:
            raise InputError("an allocation cannot hold a negative count", value=bad)
        return cls(tuple(sorted((machine, count) for machine, count in pairs.items() if count)))

    @classmethod
    def of_gpus(cls, gpus: Iterable[GpuId]) -> Allocation:
        """The allocation that these single GPUs make up."""
        counts: dict[str, int] = {}
        for gpu in gpus:
            counts[gpu.machine_id] = counts.get(gpu.machine_id, 0) + 1
        return cls.of(counts)

    @property
    def gpus(self) -> int:
        """Total number of GPUs."""
        return sum(count for _, count in self.counts)

    def by_machine(self) -> dict[str, int]:
        """The counts as a new dictionary."""
        return dict(self.counts)

    def count(self, machine_id: str) -> int:
        """GPUs on one machine."""
        return next((count for machine, count in self.counts if machine == machine_id), 0)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.counts)

    def __add__(self, other: Allocation) -> Allocation:
        total = dict(self.counts)
        for machine, count in other.counts:
            total[machine] = total.get(machine, 0) + count
        return Allocation.of(total)

    def __sub__(self, other: Allocation) -> Allocation:
        rest = dict(self.counts)
        for machine, count in other.counts:
            rest[machine] = rest.get(machine, 0) - count
        return Allocation.of(rest)

    def within(self, other: Allocation) -> bool:
        """True when every count is at most the other's."""
        limit = dict(other.counts)
        return all(count <= limit.get(machine, 0) for machine, count in self.counts)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """All machines of a cluster, in a fixed order, and the device types they carry."""

    name: str
    machines: tuple[Machine, ...]
    devices: Mapping[str, DeviceType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for machine in self.machines:
            if machine.machine_id in seen:
                raise InputError("two machines share one id", value=machine.machine_id, remedy="give each its own")
            seen.add(machine.machine_id)

    @cached_property
    def _by_id(self) -> dict[str, Machine]:
        return {machine.machine_id: machine for machine in self.machines}

    @property
    def gpus(self) -> int:
        """Number of GPUs of the cluster (R_C in the paper)."""
        return sum(machine.gpus for machine in self.machines)

    @cached_property
    def largest_machine_gpus(self) -> int:
        """GPUs of the largest machine: no task can ask for more."""
        return max((machine.gpus for machine in self.machines), default=0)

    @cached_property
    def racks(self) -> Mapping[str, tuple[Machine, ...]]:
        """Machines by rack, racks in order of first appearance."""
        racks: dict[str, list[Machine]] = {}
        for machine in self.machines:
            racks.setdefault(machine.rack_id, []).append(machine)
        return {rack: tuple(members) for rack, members in racks.items()}

    def machine(self, machine_id: str) -> Machine:
        """The machine of this id; an unknown one raises UnknownNameError."""
        try:
            return self._by_id[machine_id]
        except KeyError:
            raise UnknownNameError("machine", machine_id, self._by_id) from None

    def gpu_ids(self) -> tuple[GpuId, ...]:
        """Every GPU, machine by machine."""
        return tuple(GpuId(machine.machine_id, index) for machine in self.machines for index in range(machine.gpus))

    def level_of(self, allocation: Allocation) -> Level:
        """The nearest level that all GPUs of an allocation share, slots left aside: MACHINE, RACK or CLUSTER."""
        machine_ids = [machine_id for machine_id, _ in allocation]
        if len(machine_ids) <= 1:
            return Level.MACHINE
        racks = {self.machine(machine_id).rack_id for machine_id in machine_ids}
        return Level.RACK if len(racks) == 1 else Level.CLUSTER

    def level_of_gpus(self, gpus: Iterable[GpuId]) -> Level:
        """The nearest level that these single GPUs share, slots included."""
        members = tuple(gpus)
        level = self.level_of(Allocation.of_gpus(members))
        if level is not Level.MACHINE:
            return level
        slots = {self.machine(gpu.machine_id).slot_of(gpu.index) for gpu in members}
        return Level.SLOT if len(slots) <= 1 else Level.MACHINE

    def nearest_level_for(self, gpus: int) -> Level:
        """The nearest level at which a gang of this many GPUs fits in the empty cluster."""
        if any(gpus <= size for machine in self.machines for size in machine.slots):
            return Level.SLOT
        if gpus <= self.largest_machine_gpus:
            return Level.MACHINE
        if any(gpus <= sum(machine.gpus for machine in rack) for rack in self.racks.values()):
            return Level.RACK
        return Level.CLUSTER
