"""Measures by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from themis_lab.audit.case import Case
from themis_lab.audit.measures.envy import envy
from themis_lab.audit.measures.misreport import misreport
from themis_lab.audit.measures.payment import payment
from themis_lab.audit.values import Sample

Measure = Callable[[Case], list[Sample]]

MEASURES: Mapping[str, Measure] = {"envy": envy, "misreport": misreport, "payment": payment}
"""Measures by name. A measure may return samples of several names, which start with its own."""
