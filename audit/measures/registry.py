"""Measures by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from audit.case import Case
from audit.measures.envy import envy
from audit.measures.misreport import misreport
from audit.measures.payment import payment
from audit.values import Sample

Measure = Callable[[Case], list[Sample]]

MEASURES: Mapping[str, Measure] = {"envy": envy, "misreport": misreport, "payment": payment}
"""What is measured in each market; a measure may give samples of several names, which begin with its own."""
