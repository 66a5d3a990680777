"""An instance as users write it down (a JSON document), read into values; every error names the field.

{"types": ["k80", "v100"], "capacity": [1, 1], "tenants": [{"id": "u1", "speedup": [1, 2], "weight": 1}]}
"""

from __future__ import annotations

from msgspec import UNSET

from rm_plugin.policies.oef.speedup import MAX_DEVICES, Instance, Tenant, check_instance
from themis.errors import InputError
from themis.json_fields import Brief, Fields, Keys, number, read_json, text

ROOT = "instance"
INSTANCE = Keys(required=("types", "capacity", "tenants"))
TENANT = Keys(required=("id", "speedup"), optional=("weight", "demand"))


def read_instance(content: bytes, source: str) -> Instance:
    """Read an instance from a file's content.

    Args:
        content: The file's bytes.
        source: Names the file in errors.

    Raises:
        InputError: It is not JSON in UTF-8, or no instance; the message names the file or the field.
    """
    return parse_instance(read_json(content, source, ROOT))


def parse_instance(document: object) -> Instance:
    """Read an instance from a parsed document; docs/explanation/oef.md says what every key means.

    Raises:
        InputError: A field is missing, unknown, of the wrong type or out of range; the message names the field.
    """
    root = Fields.of(document, ROOT, INSTANCE)
    instance = Instance(
        types=tuple(text(name, path) for name, path in root.entries("types")),
        capacity=tuple(_devices(count, path) for count, path in root.entries("capacity")),
        tenants=tuple(_tenant(entry, path) for entry, path in root.entries("tenants")),
    )
    check_instance(instance, ROOT)
    return instance


def _devices(value: object, path: str) -> int:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not (whole and 0 <= value <= MAX_DEVICES):  # type: ignore[operator]
        raise InputError(f"{path} must be a whole number from 0 to {MAX_DEVICES}", value=Brief(value))
    return int(value)  # type: ignore[call-overload, no-any-return]


def _tenant(entry: object, path: str) -> Tenant:
    fields = Fields.of(entry, path, TENANT)
    return Tenant(
        tenant_id=fields.text("id"),
        speedup=tuple(number(value, where, zero=True) for value, where in fields.entries("speedup")),
        weight=fields.number("weight", default=1.0),
        demand=fields.number("demand") if "demand" in fields else UNSET,
    )
