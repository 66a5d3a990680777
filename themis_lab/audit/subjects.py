"""The mechanisms that are audited on instances, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from themis_lab.audit.allox import instances as allox_instances
from themis_lab.audit.allox import properties as allox_properties
from themis_lab.audit.instance_audit import Subject
from themis_lab.audit.oef import instances as oef_instances
from themis_lab.audit.oef import properties as oef_properties

SUBJECTS: Mapping[str, Subject[Any]] = {
    "allox": Subject(
        key="allox",
        title="AlloX",
        properties=allox_properties.PROPERTIES,
        claims={},
        draw=allox_instances.random_instance,
        document=allox_instances.instance_document,
        smaller=allox_instances.smaller,
    ),
    "oef": Subject(
        key="oef",
        title="OEF",
        properties=oef_properties.PROPERTIES,
        claims=oef_properties.CLAIMS,
        draw=oef_instances.random_instance,
        document=oef_instances.instance_document,
        smaller=oef_instances.smaller,
    ),
}
