"""Properties by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from audit.case import Case
from audit.properties.answers import answers
from audit.properties.determinism import determinism
from audit.properties.feasible import feasible
from audit.properties.grants import grants
from audit.properties.hurried import hurried
from audit.properties.monotone import monotone
from audit.properties.optimality import optimality
from audit.properties.order import order
from audit.properties.pareto import pareto
from audit.properties.payments import payments
from audit.properties.scale import scale
from audit.properties.truthful import truthful

Property = Callable[[Case], list[str] | None]
"""What is wrong with a case: nothing when the list is empty; None where the property says nothing about it."""

PROPERTIES: Mapping[str, Property] = {
    "answers": answers,
    "feasible": feasible,
    "payments": payments,
    "grants": grants,
    "optimality": optimality,
    "hurried": hurried,
    "pareto": pareto,
    "order": order,
    "determinism": determinism,
    "monotone": monotone,
    "scale": scale,
    "truthful": truthful,
}
"""What must hold, in the order in which it is looked at."""
