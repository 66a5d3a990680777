"""A market as users write it down (a JSON document), read into values; every error names the field."""

from __future__ import annotations

import json
import reprlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from themis.bids import Bid, BidRow, FreeMachine, Gang, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level
from themis.errors import InputError, UnknownNameError, nearest
from themis.values import Value

MOST = 100_000
"""The largest number of GPUs or gangs that one field may state, far above any cluster we know of."""

MOST_GPUS = 1_000_000
"""The most GPUs that all machines together may have: what solvers add up stays well within 32 bits."""

MOST_CELLS = 1_000_000
"""The most that machines times GPUs of the largest may be: `exact` makes a table of that shape for each size of gang,
before it first looks at the clock. 60,000 machines of 16 GPUs have fewer."""

MOST_SLOTS = 128
"""The most slots of one machine, far above any we know of: packing looks at all of a machine's slots for each gang."""

_MOST_DIGITS = 400
"""A whole number of more digits is past every bound, and Python refuses to read a very long one."""

_MOST_KEY = 80
"""Characters of a key in a path."""


class Keys(Value, frozen=True, kw_only=True):
    """The keys of one kind of object in a market document."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


MARKET = Keys(required=("machines", "bidders"), optional=("free", "empty_bundle"))
MACHINE = Keys(required=("id",), optional=("rack", "gpus", "slots"))
BIDDER = Keys(required=("app", "empty_value", "rows"))
ROW = Keys(required=("value",), optional=("gangs", "pinned", "pinned_gangs", "gpus"))
GANG = Keys(required=("gpus", "within"), optional=("count", "unit_gpus"))


def read_market(content: bytes, source: str) -> Market:
    """A market from what a JSON file holds.

    Args:
        content: The file's bytes.
        source: Names the file in errors.

    Raises:
        InputError: It is not JSON in UTF-8, or no market; the message names the file or the field.
    """
    twice: list[_Twice] = []
    try:
        document = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=lambda pairs: _object(pairs, twice),
            parse_int=lambda digits: int(digits) if len(digits) <= _MOST_DIGITS else float(digits),
        )
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not UTF-8 text", value=f"byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{source} is not JSON, line {error.lineno}, column {error.colno}", value=error.msg) from None
    except RecursionError:
        raise InputError(f"{source} is nested too deeply", remedy="a market has a handful of levels") from None
    if twice:
        # What an object lost to a second value may hold others: the outermost is there for sure.
        path, key = next((path, node.key) for path, node in _nodes(document) if isinstance(node, _Twice))
        raise InputError(f"{path} has a key twice", value=_Brief(key), remedy="keep one")
    return parse_market(document)


class _Twice(dict[str, object]):
    """An object that holds a key twice, of which JSON would silently let the last one win."""

    key = ""


def _object(pairs: list[tuple[str, object]], twice: list[_Twice]) -> dict[str, object]:
    """An object; one with a key twice is noted, to be told once its path is known."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    noted = _Twice(found)
    noted.key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    twice.append(noted)
    return noted


def _nodes(document: object) -> Iterator[tuple[str, object]]:
    """All values of a document with their paths, outer ones first; of long keys the paths tell the ends."""
    nodes: list[tuple[str, object]] = [("market", document)]
    for path, node in nodes:
        yield path, node
        if isinstance(node, dict):
            nodes += [(f"{path}.{_brief_key(key)}", inner) for key, inner in node.items()]
        elif isinstance(node, list):
            nodes += [(f"{path}[{index}]", inner) for index, inner in enumerate(node)]


def _brief_key(key: str) -> str:
    """A key as paths show it."""
    return key if len(key) <= _MOST_KEY else f"{key[: _MOST_KEY // 2]}...{key[-_MOST_KEY // 2 :]}"


def parse_market(document: object) -> Market:
    """A market from a parsed JSON document; docs/explanation/auction.md tells what every key means.

    Raises:
        InputError: A field is missing, unknown, of the wrong type or out of range; the message names the field.
    """
    root = _Fields.of(document, "market", MARKET)
    shapes = [_shape(entry, field) for entry, field in root.entries("machines")]
    known: dict[str, _Shape] = {}
    for index, shape in enumerate(shapes):
        if shape.machine_id in known:
            path = f"market.machines[{index}].id"
            raise InputError(f"{path} is there twice", value=_Brief(shape.machine_id), remedy="give each its own")
        known[shape.machine_id] = shape
    if sum(sum(shape.slots) for shape in shapes) > MOST_GPUS:
        raise InputError(f"market.machines have more than {MOST_GPUS} GPUs together")
    largest_gpus = max((sum(shape.slots) for shape in shapes), default=0)
    if len(shapes) * largest_gpus > MOST_CELLS:
        raise InputError(
            f"market.machines are too uneven: {len(shapes)} of them, times {largest_gpus} GPUs of the largest, are more"
            f" than {MOST_CELLS}",
            remedy="tell a machine that is so much larger than the others as several",
        )
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


class _Shape(Value, frozen=True, kw_only=True):
    machine_id: str
    rack_id: str
    slots: tuple[int, ...]


class _Brief:
    """An offending value as errors show it: a whole bid in place of a number would bury the message."""

    def __init__(self, value: object) -> None:
        self._shown = _REPR.repr(value)

    def __repr__(self) -> str:
        return self._shown


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


class _Fields(Value, frozen=True, kw_only=True):
    """A JSON object whose keys were checked, and the path that names it in errors."""

    values: Mapping[str, object]
    path: str

    @classmethod
    def of(cls, value: object, path: str, keys: Keys) -> _Fields:
        if not isinstance(value, Mapping):
            raise InputError(f"{path} must be an object", value=_Brief(value))
        known = (*keys.required, *keys.optional)
        for key in value:
            if key not in known:
                near = nearest(str(key), known)
                remedy = f"did you mean {near!r}?" if near else f"known keys: {', '.join(known)}"
                raise InputError(f"{path} has an unknown key", value=_Brief(key), remedy=remedy)
        for key in keys.required:
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
            raise InputError(f"{self.at(key)} must be a text that is not empty", value=_Brief(value))
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise InputError(f"{self.at(key)} holds half a character", value=_Brief(value), remedy="mend the text")
        return value

    def whole(self, key: str, default: int = 1) -> int:
        return _whole(self.values.get(key, default), self.at(key), least=1)

    def number(self, key: str, *, zero: bool = False) -> float:
        """A finite number above 0, or of 0 too."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{self.at(key)} must be a number", value=_Brief(value))
        # Not `float(value)`: it fails on a whole number past the largest float.
        if not 0 <= value <= sys.float_info.max or (value == 0 and not zero):
            wanted = "of 0 or more" if zero else "above 0"
            raise InputError(f"{self.at(key)} must be a finite number {wanted}", value=_Brief(value))
        return float(value)

    def entries(self, key: str) -> list[tuple[object, str]]:
        """The entries of a list with the path of each."""
        value = self.values.get(key, [])
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise InputError(f"{self.at(key)} must be a list", value=_Brief(value))
        return [(entry, f"{self.at(key)}[{index}]") for index, entry in enumerate(value)]

    def counts(self, key: str, known: Mapping[str, _Shape]) -> Allocation:
        """GPUs by machine."""
        return _counts(self.values.get(key, {}), self.at(key), known)


def _counts(value: object, path: str, known: Mapping[str, _Shape]) -> Allocation:
    if not isinstance(value, Mapping):
        raise InputError(f"{path} must be an object of GPUs by machine", value=_Brief(value))
    for machine_id in value:
        _check_machine(machine_id, known, path)
    return Allocation.of({machine: _whole(count, f"{path}.{machine}", least=1) for machine, count in value.items()})


def _whole(value: object, path: str, *, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise InputError(f"{path} must be a whole number from {least} to {MOST}", value=_Brief(value))
    return value


def _check_machine(machine_id: object, known: Mapping[str, _Shape], path: str) -> None:
    if machine_id not in known:
        raise UnknownNameError(f"machine in {path}", str(machine_id), known)


def _shape(entry: object, path: str) -> _Shape:
    fields = _Fields.of(entry, path, MACHINE)
    if "gpus" not in fields and "slots" not in fields:
        raise InputError(f"{path} lacks a field", value="gpus", remedy=f"add {path}.gpus or {path}.slots")
    if "slots" not in fields:
        slots: tuple[int, ...] = (fields.whole("gpus"),)
    else:
        slots = _slots(fields)
    if "gpus" in fields and fields.whole("gpus") != sum(slots):
        raise InputError(
            f"{path}.slots must add up to its gpus", value=_Brief(list(slots)), remedy=f"gpus is {fields.whole('gpus')}"
        )
    return _Shape(machine_id=fields.text("id"), rack_id=fields.text("rack", "rack"), slots=slots)


def _slots(fields: _Fields) -> tuple[int, ...]:
    """The GPUs of each slot that a machine states."""
    stated = fields.entries("slots")
    if not 1 <= len(stated) <= MOST_SLOTS:
        remedy = "leave machines without GPUs out" if not stated else "tell the machine as several"
        raise InputError(f"{fields.at('slots')} must be 1 to {MOST_SLOTS} slots", value=len(stated), remedy=remedy)
    return tuple(_whole(size, where, least=1) for size, where in stated)


def _free_slots(root: _Fields, known: Mapping[str, _Shape]) -> dict[str, tuple[int, ...]]:
    if "free" not in root:
        return {machine_id: shape.slots for machine_id, shape in known.items()}
    stated = root.values["free"]
    if not isinstance(stated, Mapping):
        raise InputError(f"{root.at('free')} must be an object of free GPUs by machine", value=_Brief(stated))
    for machine_id in stated:
        _check_machine(machine_id, known, root.at("free"))
    return {
        machine_id: _free_of(stated.get(machine_id, 0), shape, f"{root.at('free')}.{machine_id}")
        for machine_id, shape in known.items()
    }


def _free_of(stated: object, shape: _Shape, path: str) -> tuple[int, ...]:
    """Free GPUs by slot, stated so, or as one number that takes the slots in order."""
    remedy = f"its slots: {_Brief(list(shape.slots))}"
    if isinstance(stated, Sequence) and not isinstance(stated, str):
        free = tuple(_whole(count, f"{path}[{slot}]") for slot, count in enumerate(stated))
        if len(free) != len(shape.slots):
            raise InputError(f"{path} must have one number a slot", value=_Brief(stated), remedy=remedy)
        fits = all(count <= size for count, size in zip(free, shape.slots, strict=True))
    else:
        left = _whole(stated, path)
        fits = left <= sum(shape.slots)
        filled = []
        for size in shape.slots:
            filled.append(min(size, left))
            left -= filled[-1]
        free = tuple(filled)
    if not fits:
        raise InputError(f"{path} is more than the machine has", value=_Brief(stated), remedy=remedy)
    return free


def _bid(entry: object, path: str, known: Mapping[str, _Shape]) -> Bid:
    fields = _Fields.of(entry, path, BIDDER)
    empty_value = fields.number("empty_value", zero=True)
    rows = tuple(_row(row, where, known) for row, where in fields.entries("rows"))
    return Bid(app_id=fields.text("app"), round_id=0, empty_value=empty_value, rows=rows)


def _row(entry: object, path: str, known: Mapping[str, _Shape]) -> BidRow:
    fields = _Fields.of(entry, path, ROW)
    if "gpus" in fields and ("gangs" in fields or "pinned" in fields):
        raise InputError(
            f"{path} has both gpus and gangs or pinned", remedy="beside gpus an explicit row may have only pinned_gangs"
        )
    value = fields.number("value")
    gangs = tuple(_gang(gang, where) for gang, where in fields.entries("gangs"))
    pinned = fields.counts("gpus" if "gpus" in fields else "pinned", known)
    pinned_gangs = tuple(_counts(gang, where, known) for gang, where in fields.entries("pinned_gangs"))
    try:
        return BidRow(value=value, gangs=gangs, pinned=pinned, pinned_gangs=pinned_gangs)
    except InputError as error:
        raise _named(error, path) from error


def _gang(entry: object, path: str) -> Gang:
    fields = _Fields.of(entry, path, GANG)
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
    return InputError(f"{path}: {error.what}", value=_Brief(error.value), remedy=error.remedy)


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
            raise InputError(
                f"market.bidders[{index}].app is there twice", value=_Brief(bid.app_id), remedy="one bid an app"
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
