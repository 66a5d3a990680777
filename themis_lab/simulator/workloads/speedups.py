"""Random speedups of many tenants on many GPU types, to measure how allocation rules grow."""

from __future__ import annotations

from random import Random

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.oef.speedup import Instance, Tenant


def random_speedups(seed: int, tenants: int, types: int) -> Instance:
    """Draw an instance: types of 4 to 32 devices, and speedups from 1 to 4 that rise along them."""
    rng = Random(child_seed(seed, "large", str(tenants)))
    return Instance(
        types=tuple(f"type{number}" for number in range(types)),
        capacity=tuple(4 * rng.randint(1, 8) for _ in range(types)),
        tenants=tuple(
            Tenant(tenant_id=f"u{number}", speedup=(1.0, *sorted(rng.uniform(1.0, 4.0) for _ in range(types - 1))))
            for number in range(tenants)
        ),
    )
