"""Reads the extract of Philly that ships: when apps arrive, how many jobs they have and how long these run."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache

from themis.values import Value
from themis_lab.simulator.workloads.models import DATA


class ExtractApp(Value, frozen=True, kw_only=True):
    """An app of the extract. `themis_lab/simulator/workloads/data/SOURCES.md` says how it was cut out.

    Attributes:
        arrival_s: Seconds from the start of the window.
        gpus: GPUs of each job.
        gpu_s: GPU seconds of all jobs.
        deciles_s: Eleven points of the jobs' durations, shortest to longest.
    """

    name: str
    arrival_s: float
    jobs: int
    gpus: int
    gpu_s: float
    deciles_s: tuple[float, ...]
    virtual_cluster: str

    def duration_s(self, share: float) -> float:
        """The duration that so large a share of the jobs, 0 to 1, does not exceed; linear between the deciles."""
        place = min(max(share, 0.0), 1.0) * (len(self.deciles_s) - 1)
        left = min(int(place), len(self.deciles_s) - 2)
        low, high = self.deciles_s[left], self.deciles_s[left + 1]
        return low + (high - low) * (place - left)


@cache
def read_extract() -> tuple[ExtractApp, ...]:
    """All apps of the extract in order of arrival."""
    with (DATA / "philly_apps.csv").open(newline="", encoding="utf-8") as stream:
        return tuple(_app(row) for row in csv.DictReader(stream))


def _app(row: Mapping[str, str]) -> ExtractApp:
    return ExtractApp(
        name=row["app"],
        arrival_s=float(row["arrival_s"]),
        jobs=int(row["jobs"]),
        gpus=int(row["gpus_a_job"]),
        gpu_s=float(row["gpu_s"]),
        deciles_s=tuple(float(seconds) for seconds in row["duration_deciles_s"].split()),
        virtual_cluster=row["virtual_cluster"],
    )
