"""Idle machines pooled by device type: interchangeable within a type, so the lowest id goes first."""

from __future__ import annotations

from collections import deque

from rm_plugin.policies.allox.progress import value_of
from rm_plugin.policies.allox.values import Job, Snapshot, Start


class IdleMachines:
    """The machines of a snapshot that are idle, less those taken."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._capacity = snapshot.capacity
        self._free: dict[str, deque[str]] = {}
        for machine in sorted(snapshot.machines, key=lambda machine: machine.machine_id):
            if machine.is_idle:
                self._free.setdefault(machine.type_name, deque()).append(machine.machine_id)

    def __bool__(self) -> bool:
        return any(self._free.values())

    def types(self) -> list[str]:
        """Types with an idle machine, by name."""
        return sorted(name for name, machines in self._free.items() if machines)

    def has(self, type_name: str) -> bool:
        """Whether a machine of the type is idle."""
        return bool(self._free.get(type_name))

    def take(self, job: Job, type_name: str) -> Start:
        """Start a job on the idle machine of a type with the lowest id."""
        machine_id = self._free[type_name].popleft()
        value = value_of(job, type_name, self._capacity)
        return Start(job=job, machine_id=machine_id, type_name=type_name, value=value)
