"""Speedup vectors: the input of every programme (Middleware'24, sections 2.3, 4.2.3 and 4.2.4).

A tenant's *speedup* on a GPU type is its throughput there, divided by its throughput on the *reference type*: the
slowest type that every tenant can use. So efficiency counts in GPUs of the reference type. For example, throughputs of
40 and 120 samples a second on K80 and V100 are the speedup vector (1, 3), and half a V100 is worth 1.5 K80.

A tenant with several job types becomes several *virtual tenants*, one for each job type, which share its weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from themis.errors import InputError
from themis.values import Value

MAX_RATIO = 1e6
"""The largest ratio of two speedups of a tenant, and of two weights. Above it, LP tolerances decide the result."""

LEAST_DEMAND = 1e-3
"""GPUs. Below it, LP tolerances decide the result."""

MAX_DEVICES = 1_000_000
"""The most devices of one type."""

Matrix = NDArray[np.float64]


class Tenant(Value, frozen=True, kw_only=True):
    """A tenant, or a virtual tenant, as the programmes see it.

    Attributes:
        tenant_id: Its name.
        speedup: Throughput by GPU type in any one unit; 0 if it cannot run there.
        weight: Its priority, pi in the paper; any positive number.
        demand: GPUs that it can use at most. Without it, any number, as in the paper; records then have no such field.
    """

    tenant_id: str
    speedup: tuple[float, ...]
    weight: float = 1.0
    demand: float | UnsetType = UNSET


class Instance(Value, frozen=True, kw_only=True):
    """What shares are computed from.

    Attributes:
        types: GPU types, the slowest first.
        capacity: Healthy devices of each type.
        tenants: Tenants with a job to run.
    """

    types: tuple[str, ...]
    capacity: tuple[int, ...]
    tenants: tuple[Tenant, ...]


class Speedups(Value, frozen=True, kw_only=True):
    """An instance in normal form: the matrix W of the paper, its rows in a fixed order.

    Attributes:
        tenant_ids: The tenant of each row. Rows are ordered by (speedup vector, tenant id), so the result does not
            depend on the order in which tenants are listed.
        matrix: W, of shape (tenants, types); each row divided by its entry at the reference type.
        weights: pi of each row, scaled to a mean of 1.
        capacity: m, devices by type.
        demand: GPUs that the tenant of each row can use at most; infinite if it can use all that there are. None if
            every tenant can.
        reference: The number of the reference type.
        left_out: Tenants that can run on no type that has devices. They get nothing, and do not bind the others.
        warnings: What voids or weakens the guarantees, in sentences.
    """

    tenant_ids: tuple[str, ...]
    matrix: Matrix
    weights: NDArray[np.float64]
    capacity: NDArray[np.float64]
    demand: NDArray[np.float64] | None = None
    reference: int
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]


def check_instance(instance: Instance, path: str = "instance") -> None:
    """Check that a programme can be built.

    Args:
        instance: The instance.
        path: Begins the path of a field in errors.

    Raises:
        InputError: A number is out of range, lengths differ, or a name is given twice. The message names the field.
    """
    _check_types(instance, path)
    if not instance.tenants:
        raise InputError(f"{path}.tenants must have a tenant", remedy="add one")
    seen: set[str] = set()
    for index, tenant in enumerate(instance.tenants):
        here = f"{path}.tenants[{index}]"
        if tenant.tenant_id in seen:
            raise InputError(f"{here}.id occurs twice", value=tenant.tenant_id, remedy="give each its own")
        seen.add(tenant.tenant_id)
        _check_speedup(tenant.speedup, instance.types, f"{here}.speedup")
        if not (math.isfinite(tenant.weight) and tenant.weight > 0):
            raise InputError(f"{here}.weight must be a finite number above 0", value=tenant.weight)
        if tenant.demand is not UNSET and not (math.isfinite(tenant.demand) and tenant.demand >= LEAST_DEMAND):
            raise InputError(f"{here}.demand must be a finite number from {LEAST_DEMAND:g}", value=tenant.demand)
    weights = [tenant.weight for tenant in instance.tenants]
    if max(weights) > MAX_RATIO * min(weights):
        index = weights.index(max(weights))
        raise InputError(
            f"{path}.tenants[{index}].weight must be at most {MAX_RATIO:g} times the least", value=max(weights)
        )


def _check_types(instance: Instance, path: str) -> None:
    if not instance.types:
        raise InputError(f"{path}.types must have a GPU type", remedy="add one")
    for index, name in enumerate(instance.types):
        if name in instance.types[:index]:
            raise InputError(f"{path}.types[{index}] occurs twice", value=name, remedy="name each type once")
    if len(instance.capacity) != len(instance.types):
        raise InputError(
            f"{path}.capacity must have a number for each of the {len(instance.types)} types",
            value=len(instance.capacity),
        )
    for index, devices in enumerate(instance.capacity):
        if not 0 <= devices <= MAX_DEVICES:
            raise InputError(f"{path}.capacity[{index}] must be from 0 to {MAX_DEVICES}", value=devices)
    if not any(instance.capacity):
        raise InputError(f"{path}.capacity has no device of any type", remedy="give a type a device")


def _check_speedup(speedup: Sequence[float], types: Sequence[str], path: str) -> None:
    if len(speedup) != len(types):
        raise InputError(f"{path} must have a number for each of the {len(types)} types", value=len(speedup))
    for index, value in enumerate(speedup):
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"{path}[{index}] must be a finite number of 0 or more", value=value)
    usable = [value for value in speedup if value > 0]
    if not usable:
        raise InputError(f"{path} is 0 everywhere", remedy="a tenant must be able to run on a type")
    if max(usable) / MAX_RATIO > min(usable):
        index = speedup.index(max(usable))
        raise InputError(f"{path}[{index}] must be at most {MAX_RATIO:g} times the least", value=max(usable))


def normalise(instance: Instance) -> Speedups:
    """Bring an instance into normal form. Raises InputError as `check_instance` does."""
    check_instance(instance)
    has_devices = np.array(instance.capacity) > 0
    served = [
        t for t in instance.tenants if any(w > 0 for w, there in zip(t.speedup, has_devices, strict=True) if there)
    ]
    # Rows of tenants that are left out still have efficiencies, of 0, so the reference type counts them too.
    shared = reference_type(instance.tenants)
    reference = shared or 0
    rows = sorted(
        (tuple(w / _reference_entry(tenant, reference) for w in tenant.speedup), tenant.tenant_id, tenant)
        for tenant in served
    )
    weights = np.array([tenant.weight for _, _, tenant in rows])
    if len(rows):
        # First by a power of two, which loses no digit: the sum of huge weights is infinite.
        weights = np.ldexp(weights, -np.frexp(weights.max())[1])
        weights /= weights.mean()
    return Speedups(
        tenant_ids=tuple(tenant_id for _, tenant_id, _ in rows),
        matrix=np.array([row for row, _, _ in rows]).reshape(len(rows), len(instance.types)),
        weights=weights,
        capacity=np.array(instance.capacity, dtype=np.float64),
        demand=_demand([tenant for _, _, tenant in rows], instance.capacity),
        reference=reference,
        left_out=tuple(sorted({t.tenant_id for t in instance.tenants} - {tenant_id for _, tenant_id, _ in rows})),
        warnings=tuple(_warnings(instance, served, shared is not None)),
    )


def _demand(tenants: Sequence[Tenant], capacity: Sequence[int]) -> NDArray[np.float64] | None:
    """Demands by row. One that all GPUs together do not exceed is no bound."""
    demand = np.full(len(tenants), np.inf)
    for row, tenant in enumerate(tenants):
        usable = math.fsum(devices for devices, speedup in zip(capacity, tenant.speedup, strict=True) if speedup > 0)
        if tenant.demand is not UNSET and tenant.demand < usable:
            demand[row] = tenant.demand
    return demand if np.isfinite(demand).any() else None


def reference_type(tenants: Sequence[Tenant]) -> int | None:
    """Return the number of the slowest type that all tenants can use; None if there is none."""
    for number in range(len(tenants[0].speedup)):
        if all(tenant.speedup[number] > 0 for tenant in tenants):
            return number
    return None


def _reference_entry(tenant: Tenant, reference: int) -> float:
    """What a tenant's vector is divided by: its entry at the reference type, or else at the first that it can use."""
    return tenant.speedup[reference] or next(value for value in tenant.speedup if value > 0)


def _warnings(instance: Instance, served: Sequence[Tenant], shared: bool) -> list[str]:
    warnings = []
    partial = sorted(tenant.tenant_id for tenant in instance.tenants if 0 in tenant.speedup)
    if partial:
        warnings.append(
            f"guarantees are void: {_names(partial)} cannot run on every type; the theorems need speedups above 0"
        )
    if not shared:
        warnings.append(
            "efficiencies do not compare: no type can be used by all tenants, so each has its own reference"
        )
    left_out = sorted({t.tenant_id for t in instance.tenants} - {t.tenant_id for t in served})
    if left_out:
        warnings.append(f"left out: {_names(left_out)} can run on no type that has devices")
    falling = sorted(tenant.tenant_id for tenant in instance.tenants if _falls(tenant.speedup))
    if falling:
        warnings.append(f"speedups fall along the order of types: {_names(falling)}")
    return warnings


def _falls(speedup: Sequence[float]) -> bool:
    usable = [value for value in speedup if value > 0]
    return any(later < earlier for earlier, later in pairwise(usable))


def _names(tenant_ids: Sequence[str], most: int = 5) -> str:
    more = f" and {len(tenant_ids) - most} more" if len(tenant_ids) > most else ""
    return ", ".join(tenant_ids[:most]) + more


def virtual_tenants(tenant_id: str, weight: float, job_types: Mapping[str, tuple[float, ...]]) -> list[Tenant]:
    """Return one virtual tenant for each job type, named `TENANT/JOB_TYPE` (section 4.2.4).

    They have equal parts of the tenant's weight, so a tenant gains nothing by splitting its jobs into more types.

    >>> types = {"vgg": (1.0, 2.0), "lstm": (1.0, 5.0)}
    >>> [(tenant.tenant_id, tenant.weight) for tenant in virtual_tenants("u1", 1.0, types)]
    [('u1/vgg', 0.5), ('u1/lstm', 0.5)]

    Args:
        tenant_id: The tenant.
        weight: Its weight.
        job_types: Speedup vectors by the name of the job type.
    """
    part = weight / len(job_types)
    return [
        Tenant(tenant_id=f"{tenant_id}/{name}", speedup=speedup, weight=part) for name, speedup in job_types.items()
    ]
