"""Instances of OEF for tests: those of the paper's examples, and random ones."""

from rm_plugin.policies.oef.registry import rule_named
from rm_plugin.policies.oef.speedup import Instance, Tenant, normalise
from rm_plugin.solvers.highs_linear import HighsModel

A = ((1, 2), (1, 3), (1, 4))
B = ((1, 2), (1, 5))
C = ((1, 2, 3), (1, 3, 4))
D = ((1, 2, 3), (1, 4, 5), (1, 5, 6))


def instance(rows, capacity=None, weights=None):
    """Tenants u1, u2, .. with these speedups; one device of each type by default."""
    types = len(rows[0])
    weights = weights or [1.0] * len(rows)
    return Instance(
        types=tuple(f"g{number}" for number in range(1, types + 1)),
        capacity=tuple(capacity or [1] * types),
        tenants=tuple(
            Tenant(tenant_id=f"u{number}", speedup=tuple(map(float, row)), weight=float(weight))
            for number, (row, weight) in enumerate(zip(rows, weights, strict=True), start=1)
        ),
    )


def solve(rule, rows, capacity=None, weights=None):
    """The shares of a rule by its name."""
    return rule_named(rule, HighsModel)(normalise(instance(rows, capacity, weights)))


def random_rows(rng, tenants, types, least=1.0, most=4.0):
    """Speedups that rise along the types, the first 1."""
    return [(1.0, *sorted(rng.uniform(least, most) for _ in range(types - 1))) for _ in range(tenants)]


def random_capacity(rng, types):
    return [rng.randint(1, 8) for _ in range(types)]
