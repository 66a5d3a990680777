"""How fast a job is on each device type: the one rule for policies, agents, simulator and live service. Pure.

Speeds are relative to one reference GPU, which has speed 1. Work is counted in reference units: a job with 600 s of
serial work takes 600 s on one reference GPU, and 200 s on one V100 if its speed there is 3.

The speed of a job on a device type is

1. the job's own entry in `JobSpec.speed_by_device`, if it has one;
2. else the `speed` of the device type, if that is a GPU;
3. else 0, which means that the job cannot run there: a CPU runs only jobs that state their speed on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from themis.apps import JobSpec
from themis.cluster import Cluster, DeviceType
from themis.values import Value


class Speeds(Value, frozen=True):
    """The speeds of one job by device type, fastest first; ties: the smaller name. Types that cannot run it are absent.

    Without entries the speed is 1 on every type. That is the usual case: a cluster of one type of speed 1. A gang that
    names no type counts as one of the first type.
    """

    by_type: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, speeds: Iterable[tuple[str, float]]) -> Speeds:
        """Speeds by type in canonical order, without types of speed 0."""
        return cls(
            tuple(sorted([entry for entry in speeds if entry[1] > 0.0], key=lambda entry: (-entry[1], entry[0])))
        )

    def on(self, device: str) -> float:
        """The speed on a device type, 0 if the job cannot run there.

        >>> speeds = Speeds.of([("k80", 1.0), ("v100", 3.0)])
        >>> speeds.on("v100"), speeds.on("cpu")
        (3.0, 0.0)
        """
        if not self.by_type:
            return 1.0
        if not device:
            return self.fastest
        for name, speed in self.by_type:
            if name == device:
                return speed
        return 0.0

    def relative_to(self, device: str) -> Speeds:
        """These speeds in units of the speed on one device type, which comes first. The job must be able to run there.

        Example: (v100: 3, k80: 1) relative to k80 are (k80: 1, v100: 3), relative to v100 (v100: 1, k80: 1/3).
        """
        if not self.by_type:
            return self
        unit = self.on(device)
        others = [(name, speed / unit) for name, speed in self.by_type if name != device]
        return Speeds(((device, 1.0), *others))

    def only(self, device: str) -> Speeds:
        """These speeds with one device type left: a demand that names its type. The job must be able to run there."""
        return Speeds(((device, self.on(device)),))

    @property
    def highest(self) -> float:
        """The highest speed on any type."""
        return max([speed for _, speed in self.by_type]) if self.by_type else 1.0

    @property
    def fastest(self) -> float:
        """The speed on the first type."""
        return self.by_type[0][1] if self.by_type else 1.0


SAME_SPEED = Speeds()
"""Speed 1 on every device type."""

NOWHERE = Speeds((("(no type)", 1.0),))
"""The speeds of a job that can run on no type that machines have now, for example because its only type was lost."""


def speed_on(job: JobSpec, device: DeviceType) -> float:
    """The speed of a job on a device type, 0 if it cannot run there (the rule of this module)."""
    own = job.speed_by_device.get(device.name)
    if own is not None:
        return own
    return device.speed if device.is_gpu else 0.0


def speeds_in(job: JobSpec, cluster: Cluster) -> Speeds:
    """The speeds of a job on the device types that machines of the cluster have.

    Returns `SAME_SPEED` if every one of these is 1, and `NOWHERE` if every one is 0.
    """
    speeds = [(device.name, speed_on(job, device)) for device in cluster.present_devices]
    if all(speed == 1.0 for _, speed in speeds):
        return SAME_SPEED
    return Speeds.of(speeds) if any(speed > 0.0 for _, speed in speeds) else NOWHERE
