"""Parse Submarine's resource grammar: `name=integer[unit]`, comma-separated."""

from __future__ import annotations

import re
from collections.abc import Mapping

from themis.errors import InputError, UnknownNameError
from themis.values import Value

_ALIASES: Mapping[str, str] = {"memory": "memory-mb", "gpu": "yarn.io/gpu"}
_KNOWN = ("memory-mb", "vcores", "yarn.io/gpu")
_AMOUNT = re.compile(r"(\d{1,12})([MmGg]?)")
_MB = {"": 1, "m": 1, "g": 1024}


class Resources(Value, frozen=True, kw_only=True):
    """The resources of one task; None for a resource that was not given."""

    memory_mb: int | None = None
    vcores: int | None = None
    gpus: int | None = None


def parse_resources(text: str, flag: str) -> Resources:
    """Read resources such as `memory=4G,vcores=2,gpu=2`.

    The aliases are memory for memory-mb and gpu for yarn.io/gpu; the units are M and G, of memory only.
    `memory=2048` is refused: old Submarine read it as 2048 bytes, that is 0 MB, which must be a mistake.

    Args:
        text: The text.
        flag: The flag that has this value, for errors.

    Raises:
        InputError: The text is malformed, a resource is unknown or repeated, or memory has no unit.
    """
    amounts: dict[str, int] = {}
    for part in text.split(","):
        given, equals, amount = (word.strip() for word in part.partition("="))
        if not equals:
            remedy = "write name=integer[unit], as in memory=4G,vcores=2,gpu=1"
            raise InputError(f"{flag}: malformed resource", value=part, remedy=remedy)
        name = _ALIASES.get(given, given)
        if name not in _KNOWN:
            raise UnknownNameError(f"resource in {flag}", given, (*_KNOWN, *_ALIASES))
        if name in amounts:
            raise InputError(f"{flag}: {name} is given twice", value=text, remedy="keep one")
        amounts[name] = _amount(given, amount, flag)
    return Resources(memory_mb=amounts.get("memory-mb"), vcores=amounts.get("vcores"), gpus=amounts.get("yarn.io/gpu"))


def _amount(name: str, text: str, flag: str) -> int:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise InputError(f"{flag}: {name} must be a whole number", value=text, remedy="units are M and G, or none")
    amount, unit = int(match[1]), match[2].lower()
    if unit and name not in ("memory", "memory-mb"):
        raise InputError(f"{flag}: {name} takes no unit", value=text, remedy=f"write {name}={amount}")
    if name == "memory" and not unit and amount:
        readings = f"write memory={amount}M for {amount} MB, or memory={amount}G for {amount} GB"
        why = "without a unit Submarine read it as bytes, which made 0 MB"
        raise InputError(f"{flag}: memory has no unit", value=f"memory={text}", remedy=f"{readings} ({why})")
    return amount * _MB[unit]
