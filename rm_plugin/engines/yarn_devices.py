"""The device type of a YARN node, from its node attribute, the cluster file, or the settings."""

from __future__ import annotations

from collections.abc import Mapping

from themis.cluster import DeviceType, Machine
from themis.errors import InputError
from themis.hadoop.values import NodeReport


class NodeDevices:
    """Finds the device type of a node.

    Example: YARN reports the attribute `nm.yarn.io/device` of n1 as `v100`. With the attribute `device`, and `v100`
    among the types, n1 has V100s.

    Args:
        types: All device types by name.
        default: Name of the type of nodes without another. Empty if every node must have one.
        attribute: Name of the node attribute, without its prefix. So it may come from NodeManagers (`nm.yarn.io`) or
            from an administrator (`rm.yarn.io`).
    """

    def __init__(self, types: Mapping[str, DeviceType], *, default: str, attribute: str) -> None:
        self.types = types
        self._default = default
        self._attribute = attribute

    def of(self, report: NodeReport, listed: Machine | None) -> DeviceType | None:
        """Return the device type of a node. None if the node offers no devices: no GPUs, and no type is named.

        Args:
            report: YARN's report on the node. Its attribute comes first.
            listed: The machine of that name in the cluster file. Its type comes second.

        Raises:
            InputError: No type, an unknown type, two types, or GPUs that do not fit the type.
        """
        named = self._named(report) or (listed.device if listed is not None else "")
        if not named and not report.gpus:
            return None
        name = named or self._default
        if not name:
            remedy = f"yarn nodeattributes -replace {report.host}:{self._attribute}=TYPE, or set yarn.device"
            raise InputError("YARN reports no device type of a node", value=report.host, remedy=remedy)
        device = self.types.get(name)
        if device is None:
            remedy = f"declare it in yarn.devices, or correct the attribute; declared: {', '.join(sorted(self.types))}"
            raise InputError(f"{report.host} has an unknown device type", value=name, remedy=remedy)
        if device.is_gpu != (report.gpus > 0):
            remedy = "a GPU type needs GPUs in YARN's report on the node (yarn.gpu_resource), a CPU type a node without"
            raise InputError(f"{report.host} of type {name} does not fit its GPUs", value=report.gpus, remedy=remedy)
        return device

    def _named(self, report: NodeReport) -> str:
        """The type that the node's attribute names. Empty without the attribute."""
        values = {
            value for name, value in report.attributes.items() if name.rpartition("/")[2] == self._attribute and value
        }
        if len(values) > 1:
            remedy = f"remove one: yarn nodeattributes -remove {report.host}:{self._attribute}"
            raise InputError(f"{report.host} has two device types", value=sorted(values), remedy=remedy)
        return values.pop() if values else ""
