"""One AlloX instance as a JSON document: jobs, machines and the time of the decision. Every error names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rm_plugin.policies.allox.values import Configuration, Job, Machine
from themis.errors import InputError
from themis.json_fields import Brief, Fields, Keys, read_json
from themis.values import Value

MAX_S = 1e15
"""The largest time in seconds. Beyond it, sums of times lose more than a second to rounding."""

INSTANCE = Keys(required=("machines", "jobs", "now_s"))
MACHINE = Keys(required=("id", "type", "available_s"))
JOB = Keys(required=("id", "user", "arrival_s", "time_s"))


class Instance(Value, frozen=True, kw_only=True):
    """The jobs that wait at `now_s`, and all machines. A machine is idle if it is available by then."""

    now_s: float
    machines: tuple[Machine, ...]
    jobs: tuple[Job, ...]


def read_instance(content: bytes, source: str) -> Instance:
    """Read an instance from the bytes of a JSON file.

    Raises:
        InputError: It is not JSON in UTF-8, or no instance; the message names the file or the field.
    """
    return parse_instance(read_json(content, source, "instance"))


def parse_instance(document: object) -> Instance:
    """Read an instance from a parsed JSON document; docs/explanation/allox.md describes the keys.

    Raises:
        InputError: A field is missing, unknown, of the wrong type or out of range; the message names the field.
    """
    root = Fields.of(document, "instance", INSTANCE)
    now_s = root.number("now_s", zero=True, most=MAX_S)
    machines = tuple(_machine(entry, path, now_s) for entry, path in root.entries("machines"))
    if not machines:
        raise InputError("instance.machines must hold at least one machine", remedy="add one")
    _check_distinct("machines", [machine.machine_id for machine in machines])
    types = {machine.type_name for machine in machines}
    jobs = tuple(_job(entry, path, types, now_s) for entry, path in root.entries("jobs"))
    _check_distinct("jobs", [job.job_id for job in jobs])
    return Instance(now_s=now_s, machines=machines, jobs=jobs)


def _machine(entry: object, path: str, now_s: float) -> Machine:
    fields = Fields.of(entry, path, MACHINE)
    available_s = fields.number("available_s", zero=True, most=MAX_S)
    return Machine(
        machine_id=fields.text("id"),
        type_name=fields.text("type"),
        available_s=available_s,
        is_idle=available_s <= now_s,
    )


def _job(entry: object, path: str, types: set[str], now_s: float) -> Job:
    fields = Fields.of(entry, path, JOB)
    job_id, user = fields.text("id"), fields.text("user")
    arrival_s = fields.number("arrival_s", zero=True, most=MAX_S)
    if arrival_s > now_s:
        remedy = f"leave the job out: at {now_s:g} s it does not wait yet"
        raise InputError(f"{path}.arrival_s must be at most instance.now_s", value=arrival_s, remedy=remedy)
    stated = fields.values["time_s"]
    where = fields.at("time_s")
    if not isinstance(stated, Mapping):
        raise InputError(f"{where} must be an object of seconds by device type", value=Brief(stated))
    times = Fields.of(stated, where, Keys(required=(), optional=tuple(stated)))
    times_s = {name: times.number(name, most=MAX_S) for name in stated if stated[name] is not None}
    known = ", ".join(sorted(types))
    for name in times_s:
        if name not in types:
            raise InputError(f"{times.at(name)} is of a type that no machine has", remedy=f"the types are: {known}")
    configurations = {name: Configuration(time_s=times_s[name]) for name in sorted(times_s)}
    if not configurations:
        remedy = f"give a time for one of: {known}"
        raise InputError(f"{where} lets the job run nowhere", value=Brief(stated), remedy=remedy)
    return Job(job_id=job_id, user=user, arrival_s=arrival_s, configurations=configurations)


def _check_distinct(key: str, ids: Sequence[str]) -> None:
    seen: set[str] = set()
    for index, each in enumerate(ids):
        if each in seen:
            path = f"instance.{key}[{index}].id"
            raise InputError(f"{path} is there twice", value=Brief(each), remedy="give each its own")
        seen.add(each)
