"""A market as users write it down (a JSON document), read into values; every error names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from themis.bids import Bid, BidRow, FreeMachine, Gang, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level
from themis.errors import InputError, UnknownNameError, nearest


def parse_market(document: object) -> Market:
    """A market from a parsed JSON document.

    Keys: `machines` (each `id`, `rack`, and `gpus` or `slots` or both), `free` (free GPUs by machine, a number or one
    number a slot; a number takes slots in order; machines not named have none free; without `free` all GPUs are),
    `empty_bundle` (`finite` or `lexicographic`), `bidders` (each `app`, `empty_value`, `rows`). A row has a `value` and
    either `gangs` (each `gpus`, `within`, `count`, `unit_gpus`) with optional `pinned` GPUs by machine (and
    `pinned_gangs`, a list of GPUs by machine: which of them belong together), or `gpus`: GPUs by machine, nothing else.

    Raises:
        InputError: A field is missing, unknown, of the wrong type or out of range; the message names the field.
    """
    root = _Fields.of(document, "market", required=("machines", "bidders"), optional=("free", "empty_bundle"))
    shapes = [_shape(entry, field) for entry, field in root.entries("machines")]
    known: dict[str, _Shape] = {}
    for shape in shapes:
        if shape.machine_id in known:
            raise InputError("two machines share one id", value=shape.machine_id, remedy="give each its own")
        known[shape.machine_id] = shape
    free = _free_slots(root, known)
    bids = tuple(_bid(entry, field, known) for entry, field in root.entries("bidders"))
    _refuse_twins(bids)
    market = Market(
        machines=tuple(
            FreeMachine(machine_id=shape.machine_id, rack_id=shape.rack_id, free_slots=free[shape.machine_id])
            for shape in shapes
        ),
        bids=bids,
        empty_bundle=_empty_bundle(root),
    )
    _check_empty_values(market)
    return market


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    machine_id: str
    rack_id: str
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    """A JSON object whose keys were checked, and the path that names it in errors."""

    values: Mapping[str, object]
    path: str

    @classmethod
    def of(cls, value: object, path: str, *, required: Sequence[str], optional: Sequence[str] = ()) -> _Fields:
        if not isinstance(value, Mapping):
            raise InputError(f"{path} must be an object", value=value)
        known = (*required, *optional)
        for key in value:
            if key not in known:
                near = nearest(str(key), known)
                remedy = f"did you mean {near!r}?" if near else f"known keys: {', '.join(known)}"
                raise InputError(f"{path} has an unknown key", value=key, remedy=remedy)
        for key in required:
            if key not in value:
                raise InputError(f"{path} lacks a field", value=key, remedy=f"add {path}.{key}")
        return cls(values=value, path=path)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def at(self, key: str) -> str:
        return f"{self.path}.{key}"

    def text(self, key: str, default: str = "") -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str) or not value:
            raise InputError(f"{self.at(key)} must be a text that is not empty", value=value)
        return value

    def whole(self, key: str, default: int = 1) -> int:
        return _whole(self.values.get(key, default), self.at(key), least=1)

    def number(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{self.at(key)} must be a number", value=value)
        return float(value)

    def entries(self, key: str) -> list[tuple[object, str]]:
        """The entries of a list with the path of each."""
        value = self.values.get(key, [])
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise InputError(f"{self.at(key)} must be a list", value=value)
        return [(entry, f"{self.at(key)}[{index}]") for index, entry in enumerate(value)]

    def counts(self, key: str, known: Mapping[str, _Shape]) -> Allocation:
        """GPUs by machine."""
        return _counts(self.values.get(key, {}), self.at(key), known)


def _counts(value: object, path: str, known: Mapping[str, _Shape]) -> Allocation:
    if not isinstance(value, Mapping):
        raise InputError(f"{path} must be an object of GPUs by machine", value=value)
    for machine_id in value:
        _check_machine(machine_id, known, path)
    return Allocation.of({machine: _whole(count, f"{path}.{machine}") for machine, count in value.items()})


def _whole(value: object, path: str, *, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{path} must be a whole number of {least} or more", value=value)
    return value


def _check_machine(machine_id: object, known: Mapping[str, _Shape], path: str) -> None:
    if machine_id not in known:
        raise UnknownNameError(f"machine in {path}", str(machine_id), known)


def _shape(entry: object, path: str) -> _Shape:
    fields = _Fields.of(entry, path, required=("id",), optional=("rack", "gpus", "slots"))
    if "gpus" not in fields and "slots" not in fields:
        raise InputError(f"{path} lacks a field", value="gpus", remedy=f"add {path}.gpus or {path}.slots")
    if "slots" not in fields:
        slots: tuple[int, ...] = (fields.whole("gpus"),)
    else:
        slots = tuple(_whole(size, where, least=1) for size, where in fields.entries("slots"))
    if "gpus" in fields and fields.whole("gpus") != sum(slots):
        raise InputError(
            f"{path}.slots must add up to its gpus", value=list(slots), remedy=f"gpus is {fields.whole('gpus')}"
        )
    return _Shape(machine_id=fields.text("id"), rack_id=fields.text("rack", "rack"), slots=slots)


def _free_slots(root: _Fields, known: Mapping[str, _Shape]) -> dict[str, tuple[int, ...]]:
    if "free" not in root:
        return {machine_id: shape.slots for machine_id, shape in known.items()}
    stated = root.values["free"]
    if not isinstance(stated, Mapping):
        raise InputError(f"{root.at('free')} must be an object of free GPUs by machine", value=stated)
    for machine_id in stated:
        _check_machine(machine_id, known, root.at("free"))
    return {
        machine_id: _free_of(stated.get(machine_id, 0), shape, f"{root.at('free')}.{machine_id}")
        for machine_id, shape in known.items()
    }


def _free_of(stated: object, shape: _Shape, path: str) -> tuple[int, ...]:
    if isinstance(stated, Sequence) and not isinstance(stated, str):
        free = tuple(_whole(count, f"{path}[{slot}]") for slot, count in enumerate(stated))
    else:
        left, filled = _whole(stated, path), []
        for size in shape.slots:
            filled.append(min(size, left))
            left -= filled[-1]
        free = (*filled[:-1], filled[-1] + left) if filled else ()
    if len(free) != len(shape.slots) or any(count > size for count, size in zip(free, shape.slots, strict=True)):
        raise InputError(f"{path} is more than the machine has", value=stated, remedy=f"its slots: {list(shape.slots)}")
    return free


def _bid(entry: object, path: str, known: Mapping[str, _Shape]) -> Bid:
    fields = _Fields.of(entry, path, required=("app", "empty_value", "rows"))
    empty_value = fields.number("empty_value")
    rows = tuple(_row(row, where, known) for row, where in fields.entries("rows"))
    try:
        return Bid(app_id=fields.text("app"), round_id=0, empty_value=empty_value, rows=rows)
    except InputError as error:
        raise _named(error, path) from error


def _row(entry: object, path: str, known: Mapping[str, _Shape]) -> BidRow:
    fields = _Fields.of(entry, path, required=("value",), optional=("gangs", "pinned", "pinned_gangs", "gpus"))
    if "gpus" in fields and ("gangs" in fields or "pinned" in fields or "pinned_gangs" in fields):
        raise InputError(f"{path} has both gpus and gangs or pinned", remedy="an explicit row has only gpus")
    value = fields.number("value")
    gangs = tuple(_gang(gang, where) for gang, where in fields.entries("gangs"))
    pinned = fields.counts("gpus" if "gpus" in fields else "pinned", known)
    pinned_gangs = tuple(_counts(gang, where, known) for gang, where in fields.entries("pinned_gangs"))
    try:
        return BidRow(value=value, gangs=gangs, pinned=pinned, pinned_gangs=pinned_gangs)
    except InputError as error:
        raise _named(error, path) from error


def _gang(entry: object, path: str) -> Gang:
    fields = _Fields.of(entry, path, required=("gpus", "within"), optional=("count", "unit_gpus"))
    gpus, count, unit_gpus = fields.whole("gpus"), fields.whole("count"), fields.whole("unit_gpus")
    label = fields.text("within")
    levels = [level.label for level in Level]
    if label not in levels:
        raise UnknownNameError(f"locality level in {fields.at('within')}", label, levels)
    try:
        return Gang(gpus, Level.parse(label), count, unit_gpus)
    except InputError as error:
        raise _named(error, path) from error


def _named(error: InputError, path: str) -> InputError:
    return InputError(f"{path}: {error.what}", value=error.value, remedy=error.remedy)


def _empty_bundle(root: _Fields) -> EmptyBundle:
    name = root.text("empty_bundle", EmptyBundle.FINITE.value)
    try:
        return EmptyBundle(name)
    except ValueError:
        choices = (choice.value for choice in EmptyBundle)
        raise UnknownNameError(f"empty bundle in {root.at('empty_bundle')}", name, choices) from None


def _refuse_twins(bids: Sequence[Bid]) -> None:
    seen: set[str] = set()
    for index, bid in enumerate(bids):
        if bid.app_id in seen:
            raise InputError(f"market.bidders[{index}].app is there twice", value=bid.app_id, remedy="one bid an app")
        seen.add(bid.app_id)


def _check_empty_values(market: Market) -> None:
    for index, bid in enumerate(market.bids):
        if market.empty_bundle is EmptyBundle.FINITE and bid.empty_value <= 0:
            raise InputError(
                f"market.bidders[{index}].empty_value must be more than 0",
                value=bid.empty_value,
                remedy="or set market.empty_bundle to lexicographic",
            )
