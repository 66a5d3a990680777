"""Properties by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from themis_lab.audit.case import Case
from themis_lab.audit.properties.answers import answers
from themis_lab.audit.properties.determinism import determinism
from themis_lab.audit.properties.feasible import feasible
from themis_lab.audit.properties.grants import grants
from themis_lab.audit.properties.monotone import monotone
from themis_lab.audit.properties.optimality import optimality
from themis_lab.audit.properties.order import order
from themis_lab.audit.properties.pareto import pareto
from themis_lab.audit.properties.payments import payments
from themis_lab.audit.properties.scale import scale
from themis_lab.audit.properties.time_limited import time_limited
from themis_lab.audit.properties.truthful import truthful

Property = Callable[[Case], list[str] | None]
"""A property returns the violations of a case. It returns an empty list if it holds, and None if it does not apply."""

PROPERTIES: Mapping[str, Property] = {
    "answers": answers,
    "feasible": feasible,
    "payments": payments,
    "grants": grants,
    "optimality": optimality,
    "hurried": time_limited,
    "pareto": pareto,
    "order": order,
    "determinism": determinism,
    "monotone": monotone,
    "scale": scale,
    "truthful": truthful,
}
"""Properties by name, in the order in which they are checked."""
