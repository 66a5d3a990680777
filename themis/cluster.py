"""The cluster: machines with slots and device types on racks, locality levels, and allocations as counts by machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum, StrEnum
from functools import cached_property

from msgspec import field

from themis.errors import InputError, UnknownNameError
from themis.number_parsing import as_whole
from themis.values import Value


class Level(IntEnum):
    """Locality levels, tightest first: how far apart the GPUs of one gang are (NSDI'20, section 3.1.2).

    For example, a gang with one GPU in each of two slots of a machine spans the level MACHINE.
    """

    SLOT = 0
    MACHINE = 1
    RACK = 2
    CLUSTER = 3

    # An enum hashes its name, in Python; gangs by level are looked up all the time, and equal numbers hash alike.
    __hash__ = int.__hash__

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
    """What a device is: a GPU, or a whole CPU node, which is leased as one device."""

    GPU = "gpu"
    CPU = "cpu"


MAX_SPEED = 1e9
"""The largest speed on a device type. The least is its inverse."""


class DeviceType(Value, frozen=True, kw_only=True):
    """A model of device. `speed` is relative to the reference GPU; a job may state its own (`themis.speeds`).

    For example, on a type of speed 3 a job with 600 s of work on one reference GPU takes 200 s.

    GPUs of an `emulated` type are declared and leased like others, but no machine has a card for them.
    """

    name: str
    kind: DeviceKind = DeviceKind.GPU
    memory_mb: int = 0
    speed: float = 1.0
    emulated: bool = False

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU, real or emulated, and not a CPU node."""
        return self.kind is DeviceKind.GPU

    @property
    def has_card(self) -> bool:
        """Whether a machine has a real GPU of this type, which its tasks must see."""
        return self.is_gpu and not self.emulated

    def __post_init__(self) -> None:
        check_speed(f"the speed of device type {self.name}", self.speed)


def check_speed(what: str, speed: float) -> None:
    """Raise InputError unless a speed is in the range in which times and shares can be computed."""
    # The comparison is false for NaN too.
    if not 1.0 / MAX_SPEED <= speed <= MAX_SPEED:
        remedy = f"give a number from {1.0 / MAX_SPEED:g} to {MAX_SPEED:g}; the reference GPU has speed 1"
        raise InputError(f"{what} is unusable", value=speed, remedy=remedy)


class GpuId(Value, frozen=True, order=True):
    """One GPU: its machine and its index there, as CUDA counts."""

    machine_id: str
    index: int

    def __str__(self) -> str:
        return f"{self.machine_id}/{self.index}"

    @classmethod
    def parse(cls, text: str) -> GpuId:
        """The inverse of `str`; malformed text raises InputError."""
        machine_id, separator, index = text.rpartition("/")
        number = as_whole(index)
        if not machine_id or not separator or number is None:
            raise InputError("malformed GPU id", value=text, remedy="write MACHINE/INDEX")
        return cls(machine_id, number)


class Machine(Value, frozen=True, kw_only=True):
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
        """The slot that holds the GPU of this index; an index the machine lacks raises InputError.

        >>> Machine(machine_id="m0", rack_id="r0", slots=(2, 2)).slot_of(2)
        1
        """
        end = 0
        for slot, size in enumerate(self.slots):
            end += size
            if 0 <= index < end:
                return slot
        raise InputError(f"machine {self.machine_id} has no GPU of this index", value=index)


class Allocation(Value, frozen=True, order=True):
    """GPUs by machine. Only counts matter. Machines without a GPU are left out; the others are in order of their ids.

    >>> Allocation.of({"m1": 2, "m0": 4, "m2": 0}).counts
    (('m0', 4), ('m1', 2))
    """

    counts: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, counts: Mapping[str, int] | Iterable[tuple[str, int]]) -> Allocation:
        """An allocation from counts by machine; zeros are dropped.

        Raises:
            InputError: A negative count, or a machine that is counted twice.
        """
        # To ask whether a dictionary is a Mapping takes longer than to copy a small one.
        if type(counts) is dict or isinstance(counts, Mapping):
            pairs = dict(counts)
        else:
            listed = list(counts)
            pairs = dict(listed)
            if len(pairs) < len(listed):
                raise InputError("an allocation cannot count a machine twice", value=listed)
        if not pairs:
            return cls()
        if min(pairs.values()) < 0:
            bad = {machine: count for machine, count in pairs.items() if count < 0}
            raise InputError("an allocation cannot hold a negative count", value=bad)
        return cls(tuple(sorted([pair for pair in pairs.items() if pair[1]])))

    @classmethod
    def of_gpus(cls, gpus: Iterable[GpuId]) -> Allocation:
        """The allocation that these single GPUs make up."""
        counts: dict[str, int] = {}
        for gpu in gpus:
            counts[gpu.machine_id] = counts.get(gpu.machine_id, 0) + 1
        # No count can be zero or negative.
        return cls(tuple(sorted(counts.items())))

    @classmethod
    def sum_of(cls, allocations: Iterable[Allocation]) -> Allocation:
        """The sum of allocations; of many this is much quicker than adding one after the other."""
        total: dict[str, int] = {}
        for allocation in allocations:
            for machine, count in allocation.counts:
                total[machine] = total.get(machine, 0) + count
        return cls.of(total)

    @property
    def gpus(self) -> int:
        """Total number of GPUs."""
        counts = self.counts
        # Most gangs are on one machine.
        return counts[0][1] if len(counts) == 1 else sum([count for _, count in counts])

    def by_machine(self) -> dict[str, int]:
        """The counts as a new dictionary."""
        return dict(self.counts)

    def count(self, machine_id: str) -> int:
        """GPUs on one machine."""
        for machine, count in self.counts:
            if machine == machine_id:
                return count
        return 0

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.counts)

    def __add__(self, other: Allocation) -> Allocation:
        if not other.counts:
            return self
        if not self.counts:
            return other
        total = dict(self.counts)
        for machine, count in other.counts:
            total[machine] = total.get(machine, 0) + count
        return Allocation(tuple(sorted(total.items())))

    def __sub__(self, other: Allocation) -> Allocation:
        if not other.counts:
            return self
        rest = dict(self.counts)
        for machine, count in other.counts:
            rest[machine] = rest.get(machine, 0) - count
        return Allocation.of(rest)

    def within(self, other: Allocation) -> bool:
        """Whether every count is at most the other's."""
        if not self.counts:
            return True
        limit = dict(other.counts)
        return all(count <= limit.get(machine, 0) for machine, count in self.counts)


def level_across(machine_ids: Iterable[str], rack_of: Mapping[str, str], slot: int | None = None) -> Level:
    """The level that a gang on these machines spans.

    Args:
        machine_ids: The machines.
        rack_of: The rack by machine, needed if there are several machines.
        slot: The slot of one machine that holds all of the gang, if one does.
    """
    members = set(machine_ids)
    if len(members) <= 1:
        return Level.MACHINE if slot is None else Level.SLOT
    return Level.RACK if len({rack_of[machine_id] for machine_id in members}) == 1 else Level.CLUSTER


class Cluster(Value, frozen=True, dict=True, kw_only=True):
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
    def gpus_by_device(self) -> Mapping[str, int]:
        """Number of devices by type, types in order of first appearance. A type without devices is absent."""
        counts: dict[str, int] = {}
        for machine in self.machines:
            counts[machine.device] = counts.get(machine.device, 0) + machine.gpus
        return {device: count for device, count in counts.items() if count}

    @cached_property
    def machine_sizes(self) -> Mapping[str, Mapping[int, int]]:
        """Number of machines by their GPUs, by device type. Each app that is submitted is compared with them."""
        sizes: dict[str, dict[int, int]] = {}
        for machine in self.machines:
            of_type = sizes.setdefault(machine.device, {})
            of_type[machine.gpus] = of_type.get(machine.gpus, 0) + 1
        return sizes

    @cached_property
    def present_devices(self) -> tuple[DeviceType, ...]:
        """The device types that machines have. A type that the cluster does not describe is a GPU of speed 1."""
        return tuple(self.devices.get(name) or DeviceType(name=name) for name in self.gpus_by_device)

    @cached_property
    def reference_gpus(self) -> float:
        """The devices in reference units: each counts by the speed of its type."""
        return math.fsum(device.speed * self.gpus_by_device[device.name] for device in self.present_devices)

    @cached_property
    def has_types(self) -> bool:
        """Whether the machines have several device types, or CPU nodes. If not, gangs do not name their type."""
        return len(self.gpus_by_device) > 1 or any(not device.is_gpu for device in self.present_devices)

    @cached_property
    def cpu_nodes(self) -> int:
        """Number of devices that are CPU nodes."""
        return sum(self.gpus_by_device[device.name] for device in self.present_devices if not device.is_gpu)

    @cached_property
    def device_noun(self) -> str:
        """What texts call a device: a GPU, unless some are CPU nodes."""
        return "GPU" if all(device.is_gpu for device in self.present_devices) else "device"

    def of_type(self, device: str) -> Cluster:
        """The machines of one device type."""
        machines = tuple(machine for machine in self.machines if machine.device == device)
        return Cluster(name=self.name, machines=machines, devices=self.devices)

    def device_of(self, allocation: Allocation) -> str:
        """The device type of an allocation. Raises InputError without GPUs, or with GPUs of several types."""
        types = {self.machine(machine_id).device for machine_id, _ in allocation}
        if len(types) != 1:
            raise InputError("an allocation needs one device type", value=sorted(types))
        return types.pop()

    @cached_property
    def _by_id(self) -> dict[str, Machine]:
        return {machine.machine_id: machine for machine in self.machines}

    @cached_property
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
        return self._gpu_ids

    @cached_property
    def gpu_set(self) -> frozenset[GpuId]:
        """Every GPU, for membership tests."""
        return frozenset(self._gpu_ids)

    def gpus_of(self, machine_id: str) -> tuple[GpuId, ...]:
        """The GPUs of one machine, by index; an unknown machine raises UnknownNameError."""
        try:
            return self._gpus_of[machine_id]
        except KeyError:
            raise UnknownNameError("machine", machine_id, self._by_id) from None

    @cached_property
    def _gpus_of(self) -> dict[str, tuple[GpuId, ...]]:
        return {
            machine.machine_id: tuple(GpuId(machine.machine_id, index) for index in range(machine.gpus))
            for machine in self.machines
        }

    @cached_property
    def _gpu_ids(self) -> tuple[GpuId, ...]:
        return tuple(gpu for gpus in self._gpus_of.values() for gpu in gpus)

    @cached_property
    def rack_of(self) -> Mapping[str, str]:
        """The rack of every machine."""
        return {machine.machine_id: machine.rack_id for machine in self.machines}

    def level_of(self, allocation: Allocation) -> Level:
        """The nearest level that all GPUs of an allocation share, slots left aside: MACHINE, RACK or CLUSTER."""
        return level_across([machine_id for machine_id, _ in allocation], self.rack_of)

    def level_of_gpus(self, gpus: Iterable[GpuId]) -> Level:
        """The nearest level that these single GPUs share, slots included."""
        members = tuple(gpus)
        machine_ids = {gpu.machine_id for gpu in members}
        if len(machine_ids) > 1:
            return level_across(machine_ids, self.rack_of)
        slots = {self.machine(gpu.machine_id).slot_of(gpu.index) for gpu in members}
        return Level.SLOT if len(slots) <= 1 else Level.MACHINE

    @cached_property
    def fitting_levels(self) -> tuple[Level, ...]:
        """`nearest_level_for` of 1, 2, .. GPUs, up to all there are."""
        slot = max((size for machine in self.machines for size in machine.slots), default=0)
        rack = max((sum(machine.gpus for machine in members) for members in self.racks.values()), default=0)
        # Each of the three holds the one before, so the bounds do not fall.
        bounds = ((slot, Level.SLOT), (self.largest_machine_gpus, Level.MACHINE), (rack, Level.RACK))
        return tuple(
            next((level for bound, level in bounds if gpus <= bound), Level.CLUSTER) for gpus in range(1, self.gpus + 1)
        )

    def nearest_level_for(self, gpus: int) -> Level:
        """The nearest level at which a gang of this many GPUs fits in the empty cluster."""
        if gpus < 1:
            return Level.SLOT
        return self.fitting_levels[gpus - 1] if gpus <= self.gpus else Level.CLUSTER
