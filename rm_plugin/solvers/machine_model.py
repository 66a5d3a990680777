"""The market as a mixed-integer programme over machines, in arrays: exact for gangs of any size, unit and level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.bidders import Bidder
from rm_plugin.solvers.kinds import Kind, has_types
from rm_plugin.solvers.realise import Layout, racks_by_type
from themis.bids import FreeMachine
from themis.cluster import Level
from themis.values import Value

Place = tuple[object, ...]


class MachineModel(Value, frozen=True, kw_only=True):
    """Maximise `gains . z` with `lower <= A z <= upper`, `0 <= z <= upper_bounds`, z whole; A by rows (CSR).

    The first variables choose the rows: bidder `choice_of[k][0]` takes its row `choice_of[k][1]`.
    The others count gangs by place: `slots`, `machines`, `racks`, `types` and `units` map places to variables (see
    `Layout`).
    """

    gains: NDArray[np.float64]
    upper_bounds: NDArray[np.float64]
    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    choice_of: tuple[tuple[int, int], ...]
    has_types: bool
    slots: dict[tuple[Kind, str, int], int]
    machines: dict[tuple[Kind, str], int]
    racks: dict[tuple[Kind, str], int]
    types: dict[tuple[Kind, str], int]
    units: dict[tuple[int, str], int]

    def layout(self, solution: NDArray[np.int64]) -> Layout:
        """The places of a whole solution."""
        return Layout(
            slots={place: int(solution[column]) for place, column in self.slots.items()},
            machines={place: int(solution[column]) for place, column in self.machines.items()},
            racks={place: int(solution[column]) for place, column in self.racks.items()},
            types={place: int(solution[column]) for place, column in self.types.items()},
            units={place: int(solution[column]) for place, column in self.units.items()},
        )


@dataclass(slots=True)
class _Rows:
    """Constraints under construction, as sparse entries. Each constraint has a key."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    index: dict[Place, int] = field(default_factory=dict)
    entries: dict[tuple[int, int], float] = field(default_factory=dict)

    def open(self, key: Place, lower: float, upper: float) -> None:
        self.index[key] = len(self.lower)
        self.lower.append(lower)
        self.upper.append(upper)

    def add(self, key: Place, column: int, value: float) -> None:
        """Add to one coefficient. A constraint that was never opened cannot bind, so its entries are dropped.

        Coefficients are added up: two kinds of one bid row may share a unit, and HiGHS rejects duplicate entries.
        """
        row = self.index.get(key)
        if row is not None:
            self.entries[row, column] = self.entries.get((row, column), 0.0) + value


def build_model(machines: Sequence[FreeMachine], bidders: Sequence[Bidder]) -> MachineModel:
    """The programme of a market.

    Variables: x[bidder, row]; y[kind, slot], y[kind, machine] and y[kind, rack], gangs of a kind there; and
    u[unit, machine], whole units of rack and cluster gangs for units of at least two GPUs. Gangs are counted over all
    bidders, since gangs of one kind can be swapped between bidders. Constraints:

    - a bidder takes at most one row;
    - every gang of the chosen rows has a place;
    - a slot holds its gangs, and a machine its slot and machine gangs, its units and its pinned GPUs;
    - a rack's units cover its rack gangs, and all units together cover all gangs in units;
    - rack gangs of single GPUs fit into what the rack's machines leave, and the chosen rows ask for no more GPUs than
      are free. Single GPUs are never fragmented, so that is exact without a variable per machine.

    If device types matter (`kinds.has_types`), a rack is the machines of one type in it, so rack gangs have one type.
    y[kind, type] counts the cluster gangs on each type, and each type holds them like a rack. A gang that names its
    type has variables only there.

    A solution may contain places that no chosen row needs (free disposal). They only use up capacity.
    """
    return _Builder(machines, bidders).build()


class _Builder:
    def __init__(self, machines: Sequence[FreeMachine], bidders: Sequence[Bidder]) -> None:
        self._kinds = sorted({kind for bidder in bidders for row in bidder.rows for kind, _ in row.kinds})
        self._has_types = has_types(machines, self._kinds)
        by_type = racks_by_type(machines) if self._has_types else machines
        self._free = sorted((machine for machine in by_type if machine.free), key=lambda m: m.machine_id)
        self._rack_of = {machine.machine_id: machine.rack_id for machine in self._free}
        self._type_of = {machine.machine_id: machine.device for machine in self._free}
        self._type_of_rack = {machine.rack_id: machine.device for machine in self._free}
        self._bidders = bidders
        self._rows = _Rows()
        self._uppers: list[float] = []
        self._gains: list[float] = []
        self._choice_of: list[tuple[int, int]] = []
        self._slots: dict[tuple[Kind, str, int], int] = {}
        self._machines: dict[tuple[Kind, str], int] = {}
        self._racks: dict[tuple[Kind, str], int] = {}
        self._types: dict[tuple[Kind, str], int] = {}
        self._units: dict[tuple[int, str], int] = {}

    def build(self) -> MachineModel:
        self._open_rows()
        self._add_choices()
        for kind in self._kinds:
            if kind.level is Level.SLOT:
                self._add_slot_gangs(kind)
            elif kind.level is Level.MACHINE:
                self._add_machine_gangs(kind)
            elif kind.level is Level.RACK:
                self._add_rack_gangs(kind)
            elif self._needs_type(kind):
                self._add_type_gangs(kind)
        for unit in self._whole_units():
            self._add_units(unit)
        return self._finish()

    def _whole_units(self) -> list[int]:
        return sorted({kind.unit for kind in self._kinds if kind.level >= Level.RACK and kind.unit > 1})

    def _open_rows(self) -> None:
        rows = self._rows
        for index in range(len(self._bidders)):
            rows.open(("bidder", index), 0, 1)
        for kind in self._kinds:
            if kind.level <= Level.RACK or self._needs_type(kind):
                rows.open(("kind", kind), 0, np.inf)
        for unit in self._whole_units():
            rows.open(("units", unit), 0, np.inf)
            for rack in self._rack_ids():
                rows.open(("rack units", unit, rack), 0, np.inf)
            for device in self._device_types():
                rows.open(("type units", unit, device), 0, np.inf)
        self._open_capacities()

    def _open_capacities(self) -> None:
        if any(kind.level is Level.RACK and kind.unit == 1 for kind in self._kinds):
            for rack in self._rack_ids():
                free = sum(machine.free for machine in self._free if machine.rack_id == rack)
                self._rows.open(("rack", rack), -np.inf, free)
        if any(kind.level is Level.SLOT for kind in self._kinds):
            for machine in self._free:
                for slot, free in enumerate(machine.free_slots):
                    self._rows.open(("slot", machine.machine_id, slot), -np.inf, free)
        for device in self._device_types():
            free = sum(machine.free for machine in self._free if machine.device == device)
            self._rows.open(("type", device), -np.inf, free)
        for machine in self._free:
            self._rows.open(("machine", machine.machine_id), -np.inf, machine.free)
        self._rows.open(("cluster",), -np.inf, sum(machine.free for machine in self._free))

    def _needs_type(self, kind: Kind) -> bool:
        """Whether a cluster gang must be put on one device type. A single GPU of any type fits on each."""
        return self._has_types and kind.level is Level.CLUSTER and (kind.gpus > 1 or bool(kind.device))

    def _device_types(self) -> list[str]:
        return sorted({machine.device for machine in self._free}) if self._has_types else []

    def _rack_ids(self) -> list[str]:
        return sorted({machine.rack_id for machine in self._free})

    def _column(self, upper: float, gain: float = 0.0) -> int:
        self._uppers.append(upper)
        self._gains.append(gain)
        return len(self._uppers) - 1

    def _add_choices(self) -> None:
        for index, bidder in enumerate(self._bidders):
            for position, row in enumerate(bidder.rows):
                column = self._column(1, bidder.gain(row))
                self._choice_of.append((index, position))
                self._rows.add(("bidder", index), column, 1)
                self._rows.add(("cluster",), column, row.gpus)
                for kind, count in row.kinds:
                    self._rows.add(("kind", kind), column, -count)
                    if kind.level >= Level.RACK:
                        self._rows.add(("units", kind.unit), column, -count * kind.units)
                for machine_id, count in row.pinned:
                    self._use_machine(machine_id, column, count)

    def _use_machine(self, machine_id: str, column: int, gpus: int) -> None:
        self._rows.add(("machine", machine_id), column, gpus)
        self._rows.add(("rack", self._rack_of[machine_id]), column, gpus)
        self._rows.add(("type", self._type_of[machine_id]), column, gpus)

    def _add_slot_gangs(self, kind: Kind) -> None:
        gpus = kind.gpus
        for machine in self._free:
            for slot, free in enumerate(machine.free_slots):
                if free >= gpus and kind.device in ("", machine.device):
                    column = self._column(free // gpus)
                    self._slots[kind, machine.machine_id, slot] = column
                    self._rows.add(("kind", kind), column, 1)
                    self._rows.add(("slot", machine.machine_id, slot), column, gpus)
                    self._use_machine(machine.machine_id, column, gpus)

    def _add_machine_gangs(self, kind: Kind) -> None:
        gpus = kind.gpus
        for machine in self._free:
            if machine.free >= gpus and kind.device in ("", machine.device):
                column = self._column(machine.free // gpus)
                self._machines[kind, machine.machine_id] = column
                self._rows.add(("kind", kind), column, 1)
                self._use_machine(machine.machine_id, column, gpus)

    def _add_rack_gangs(self, kind: Kind) -> None:
        for rack in self._rack_ids():
            units = sum(machine.free // kind.unit for machine in self._free if machine.rack_id == rack)
            device = self._type_of_rack[rack]
            if units >= kind.units and kind.device in ("", device):
                column = self._column(units // kind.units)
                self._racks[kind, rack] = column
                self._rows.add(("kind", kind), column, 1)
                self._rows.add(("rack units", kind.unit, rack), column, -kind.units)
                self._rows.add(("type units", kind.unit, device), column, -kind.units)
                if kind.unit == 1:
                    self._rows.add(("rack", rack), column, kind.gpus)
                    self._rows.add(("type", device), column, kind.gpus)

    def _add_type_gangs(self, kind: Kind) -> None:
        for device in self._device_types():
            units = sum(machine.free // kind.unit for machine in self._free if machine.device == device)
            if units >= kind.units and kind.device in ("", device):
                column = self._column(units // kind.units)
                self._types[kind, device] = column
                self._rows.add(("kind", kind), column, 1)
                self._rows.add(("type units", kind.unit, device), column, -kind.units)
                if kind.unit == 1:
                    self._rows.add(("type", device), column, kind.gpus)

    def _add_units(self, unit: int) -> None:
        for machine in self._free:
            if machine.free >= unit:
                column = self._column(machine.free // unit)
                self._units[unit, machine.machine_id] = column
                self._rows.add(("units", unit), column, 1)
                self._rows.add(("rack units", unit, machine.rack_id), column, 1)
                self._rows.add(("type units", unit, machine.device), column, 1)
                self._use_machine(machine.machine_id, column, unit)

    def _finish(self) -> MachineModel:
        places = np.array(list(self._rows.entries), dtype=np.int64).reshape(-1, 2)
        values = np.array(list(self._rows.entries.values()), dtype=np.float64)
        order = np.lexsort((places[:, 1], places[:, 0]))
        counts = np.bincount(places[:, 0], minlength=len(self._rows.lower))
        return MachineModel(
            gains=np.array(self._gains, dtype=np.float64),
            upper_bounds=np.array(self._uppers, dtype=np.float64),
            starts=np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
            columns=places[order, 1].astype(np.int32),
            values=values[order],
            lower=np.array(self._rows.lower, dtype=np.float64),
            upper=np.array(self._rows.upper, dtype=np.float64),
            choice_of=tuple(self._choice_of),
            has_types=self._has_types,
            slots=self._slots,
            machines=self._machines,
            racks=self._racks,
            types=self._types,
            units=self._units,
        )
