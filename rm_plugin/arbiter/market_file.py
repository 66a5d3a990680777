"""A market as users write it down (a JSON document), read into values; every error names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level
from themis.errors import InputError, UnknownNameError
from themis.json_fields import Brief, Fields, Keys, read_json, whole
from themis.values import Value

MAX_GPUS = 1_000_000
"""The most GPUs that all machines together may have: what solvers add up stays well within 32 bits."""

MAX_CELLS = 1_000_000
"""The most that machines times GPUs of the largest may be: `exact` makes a table of that shape for each size of gang,
before it first looks at the clock. 60,000 machines of 16 GPUs have fewer."""

MAX_SLOTS = 128
"""The most slots of one machine, far above any we know of: packing looks at all of a machine's slots for each gang."""

MARKET = Keys(required=("machines", "bidders"), optional=("free", "empty_bundle"))
MACHINE = Keys(required=("id",), optional=("rack", "gpus", "slots", "device"))
BIDDER = Keys(required=("app", "empty_value", "rows"))
ROW = Keys(required=("value",), optional=("gangs", "pinned", "pinned_gangs", "gpus"))
GANG = Keys(required=("gpus", "within"), optional=("count", "unit_gpus", "device"))


def read_market(content: bytes, source: str) -> Market:
    """A market from what a JSON file holds.

    Args:
        content: The file's bytes.
        source: Names the file in errors.

    Raises:
        InputError: It is not JSON in UTF-8, or no market; the message names the file or the field.
    """
    return parse_market(read_json(content, source, "market"))


def parse_market(document: object) -> Market:
    """A market from a parsed JSON document; docs/explanation/auction.md explains every key.

    Raises:
        InputError: A field is missing, unknown, of the wrong type or out of range; the message names the field.
    """
    root = Fields.of(document, "market", MARKET)
    shapes = [_shape(entry, field) for entry, field in root.entries("machines")]
    known: dict[str, _Shape] = {}
    for index, shape in enumerate(shapes):
        if shape.machine_id in known:
            path = f"market.machines[{index}].id"
            raise InputError(f"{path} is there twice", value=Brief(shape.machine_id), remedy="give each its own")
        known[shape.machine_id] = shape
    if sum(sum(shape.slots) for shape in shapes) > MAX_GPUS:
        raise InputError(f"market.machines have more than {MAX_GPUS} GPUs together")
    largest_gpus = max((sum(shape.slots) for shape in shapes), default=0)
    if len(shapes) * largest_gpus > MAX_CELLS:
        raise InputError(
            f"market.machines are too uneven: {len(shapes)} of them, times {largest_gpus} GPUs of the largest, are more"
            f" than {MAX_CELLS}",
            remedy="split a machine that is so much larger than the others",
        )
    free = _free_slots(root, known)
    bids = tuple(_bid(entry, field, known) for entry, field in root.entries("bidders"))
    _refuse_twins(bids)
    market = Market(
        machines=tuple(
            FreeMachine(
                machine_id=shape.machine_id,
                rack_id=shape.rack_id,
                free_slots=free[shape.machine_id],
                device=shape.device,
            )
            for shape in shapes
        ),
        bids=bids,
        empty_bundle=_empty_bundle(root),
    )
    _check_empty_values(market)
    return market


class _Shape(Value, frozen=True, kw_only=True):
    machine_id: str
    rack_id: str
    slots: tuple[int, ...]
    device: str


def _counts(value: object, path: str, known: Mapping[str, _Shape]) -> Allocation:
    if not isinstance(value, Mapping):
        raise InputError(f"{path} must be an object of GPUs by machine", value=Brief(value))
    for machine_id in value:
        _check_machine(machine_id, known, path)
    return Allocation.of({machine: whole(count, f"{path}.{machine}", least=1) for machine, count in value.items()})


def _check_machine(machine_id: object, known: Mapping[str, _Shape], path: str) -> None:
    if machine_id not in known:
        raise UnknownNameError(f"machine in {path}", str(machine_id), known)


def _shape(entry: object, path: str) -> _Shape:
    fields = Fields.of(entry, path, MACHINE)
    if "gpus" not in fields and "slots" not in fields:
        raise InputError(f"{path} lacks a field", value="gpus", remedy=f"add {path}.gpus or {path}.slots")
    if "slots" not in fields:
        slots: tuple[int, ...] = (fields.whole("gpus"),)
    else:
        slots = _slots(fields)
    if "gpus" in fields and fields.whole("gpus") != sum(slots):
        raise InputError(
            f"{path}.slots must add up to its gpus", value=Brief(list(slots)), remedy=f"gpus is {fields.whole('gpus')}"
        )
    return _Shape(
        machine_id=fields.text("id"),
        rack_id=fields.text("rack", "rack"),
        slots=slots,
        device=fields.text("device", "gpu"),
    )


def _slots(fields: Fields) -> tuple[int, ...]:
    """The GPUs of each slot that a machine states."""
    stated = fields.entries("slots")
    if not 1 <= len(stated) <= MAX_SLOTS:
        remedy = "leave machines without GPUs out" if not stated else "split the machine into several"
        raise InputError(f"{fields.at('slots')} must be 1 to {MAX_SLOTS} slots", value=len(stated), remedy=remedy)
    return tuple(whole(size, where, least=1) for size, where in stated)


def _free_slots(root: Fields, known: Mapping[str, _Shape]) -> dict[str, tuple[int, ...]]:
    if "free" not in root:
        return {machine_id: shape.slots for machine_id, shape in known.items()}
    stated = root.values["free"]
    if not isinstance(stated, Mapping):
        raise InputError(f"{root.at('free')} must be an object of free GPUs by machine", value=Brief(stated))
    for machine_id in stated:
        _check_machine(machine_id, known, root.at("free"))
    return {
        machine_id: _free_of(stated.get(machine_id, 0), shape, f"{root.at('free')}.{machine_id}")
        for machine_id, shape in known.items()
    }


def _free_of(stated: object, shape: _Shape, path: str) -> tuple[int, ...]:
    """Free GPUs by slot, stated so, or as one number that takes the slots in order."""
    remedy = f"its slots: {Brief(list(shape.slots))}"
    if isinstance(stated, Sequence) and not isinstance(stated, str):
        free = tuple(whole(count, f"{path}[{slot}]") for slot, count in enumerate(stated))
        if len(free) != len(shape.slots):
            raise InputError(f"{path} must have one number a slot", value=Brief(stated), remedy=remedy)
        fits = all(count <= size for count, size in zip(free, shape.slots, strict=True))
    else:
        left = whole(stated, path)
        fits = left <= sum(shape.slots)
        filled = []
        for size in shape.slots:
            filled.append(min(size, left))
            left -= filled[-1]
        free = tuple(filled)
    if not fits:
        raise InputError(f"{path} is more than the machine has", value=Brief(stated), remedy=remedy)
    return free


def _bid(entry: object, path: str, known: Mapping[str, _Shape]) -> Bid:
    fields = Fields.of(entry, path, BIDDER)
    empty_value = fields.number("empty_value", zero=True)
    rows = tuple(_row(row, where, known) for row, where in fields.entries("rows"))
    return Bid(app_id=fields.text("app"), round_id=0, empty_value=empty_value, rows=rows)


def _row(entry: object, path: str, known: Mapping[str, _Shape]) -> BidRow:
    fields = Fields.of(entry, path, ROW)
    if "gpus" in fields and ("gangs" in fields or "pinned" in fields):
        raise InputError(
            f"{path} has both gpus and gangs or pinned", remedy="beside gpus an explicit row may have only pinned_gangs"
        )
    value = fields.number("value")
    gangs = tuple(_gang(gang, where, known) for gang, where in fields.entries("gangs"))
    pinned_key = "gpus" if "gpus" in fields else "pinned"
    pinned = _counts(fields.values.get(pinned_key, {}), fields.at(pinned_key), known)
    pinned_gangs = tuple(_counts(gang, where, known) for gang, where in fields.entries("pinned_gangs"))
    try:
        return BidRow(value=value, gangs=gangs, pinned=pinned, pinned_gangs=pinned_gangs)
    except InputError as error:
        raise _named(error, path) from error


def _gang(entry: object, path: str, known: Mapping[str, _Shape]) -> GangRequest:
    fields = Fields.of(entry, path, GANG)
    gpus, count, unit_gpus = fields.whole("gpus"), fields.whole("count"), fields.whole("unit_gpus")
    label = fields.text("within")
    device = fields.text("device") if "device" in fields else ""
    types = {shape.device for shape in known.values()}
    if device and device not in types:
        raise UnknownNameError(f"device type in {fields.at('device')}", device, types)
    levels = [level.label for level in Level]
    if label not in levels:
        raise UnknownNameError(f"locality level in {fields.at('within')}", label, levels)
    try:
        return GangRequest(gpus, Level.parse(label), count, unit_gpus, device)
    except InputError as error:
        raise _named(error, path) from error


def _named(error: InputError, path: str) -> InputError:
    return InputError(f"{path}: {error.what}", value=Brief(error.value), remedy=error.remedy)


def _empty_bundle(root: Fields) -> EmptyBundle:
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
            raise InputError(
                f"market.bidders[{index}].app is there twice", value=Brief(bid.app_id), remedy="one bid an app"
            )
        seen.add(bid.app_id)


def _check_empty_values(market: Market) -> None:
    for index, bid in enumerate(market.bids):
        if market.empty_bundle is EmptyBundle.FINITE and bid.empty_value <= 0:
            raise InputError(
                f"market.bidders[{index}].empty_value must be more than 0",
                value=bid.empty_value,
                remedy="or set market.empty_bundle to lexicographic",
            )
