"""Random instances of OEF by seed and number, their documents, and smaller variants for shrinking."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.oef.speedup import Instance, Tenant


def random_instance(seed: int, number: int) -> Instance:
    """Draw 2 to 6 tenants of weight 1 to 3, and speedups from 1 to 4 that rise along 2 to 4 types of 1 to 8 devices."""
    rng = Random(child_seed(seed, "oef", str(number)))
    types = rng.randint(2, 4)
    most = rng.choice((1.5, 2.5, 4.0))
    return Instance(
        types=tuple(f"g{place}" for place in range(1, types + 1)),
        capacity=tuple(rng.randint(1, 8) for _ in range(types)),
        tenants=tuple(
            Tenant(
                tenant_id=f"u{place}",
                speedup=(1.0, *sorted(rng.uniform(1.0, most) for _ in range(types - 1))),
                weight=float(rng.choice((1, 1, 1, 2, 3))),
            )
            for place in range(1, rng.randint(2, 6) + 1)
        ),
    )


def instance_document(instance: Instance) -> dict[str, object]:
    """The instance as `themis oef --instance` reads it."""
    return {
        "types": list(instance.types),
        "capacity": list(instance.capacity),
        "tenants": [
            {"id": each.tenant_id, "speedup": list(each.speedup), "weight": each.weight} for each in instance.tenants
        ],
    }


def smaller(instance: Instance) -> Iterator[Instance]:
    """Variants with less in them: fewer tenants, fewer types, weights and capacities of 1, rounder speedups."""
    for gone in range(len(instance.tenants)) if len(instance.tenants) > 1 else ():
        yield replace(instance, tenants=instance.tenants[:gone] + instance.tenants[gone + 1 :])
    for gone in range(len(instance.types)) if len(instance.types) > 1 else ():
        yield _without_type(instance, gone)
    for place, devices in enumerate(instance.capacity):
        if devices > 1:
            yield replace(instance, capacity=(*instance.capacity[:place], 1, *instance.capacity[place + 1 :]))
    for place, tenant in enumerate(instance.tenants):
        for simpler in _simpler(tenant):
            tenants = (*instance.tenants[:place], simpler, *instance.tenants[place + 1 :])
            yield replace(instance, tenants=tenants)


def _without_type(instance: Instance, gone: int) -> Instance:
    return Instance(
        types=instance.types[:gone] + instance.types[gone + 1 :],
        capacity=instance.capacity[:gone] + instance.capacity[gone + 1 :],
        tenants=tuple(
            replace(each, speedup=each.speedup[:gone] + each.speedup[gone + 1 :]) for each in instance.tenants
        ),
    )


def _simpler(tenant: Tenant) -> Iterator[Tenant]:
    if tenant.weight != 1.0:
        yield replace(tenant, weight=1.0)
    for digits in (0, 1):
        rounder = tuple(max(round(value, digits), 0.1) for value in tenant.speedup)
        if _digits(rounder) < _digits(tenant.speedup):
            yield replace(tenant, speedup=rounder)


def _digits(speedup: tuple[float, ...]) -> float:
    """How much there is to write; rounding must lower it, so that shrinking ends."""
    return math.fsum(len(repr(value)) for value in speedup)
