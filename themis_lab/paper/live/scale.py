"""Scales of the experiment: share of the paper's workload, speed, cluster and leases."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field

from themis.config.cluster_file import ClusterFile
from themis.config.group_file import GroupFile
from themis.config.loader import Section, load
from themis.config.rm_settings import LeaseSettings
from themis.errors import UnknownNameError

SUFFIXES = (".yaml", ".yml")
_SCALES = "scales"


class TraceSection(Section):
    """Options of the paper's workload (docs/reference/workloads.md); the others are as in the paper."""

    apps: int = Field(ge=1)
    scale: float = Field(gt=0, description="all work is divided by it, and arrivals come together as much")
    stretch: float = Field(default=1.0, gt=0, description="gaps between arrivals are multiplied by it")
    job_divisor: float = Field(default=1.0, gt=0, description="counts of jobs are divided by it, not the work")
    app_spread: float = Field(default=10.0, ge=1, description="95th percentile of an app's work by its median")
    job_spread: float = Field(default=10.0, ge=1, description="longest job by the median job of its app")


class TrainedApp(Section):
    """An app that trains for real, in addition to the replayed ones."""

    group: GroupFile
    at_s: float = Field(default=0.0, ge=0, description="real seconds after the start")


class ScaleFile(Section):
    """A scale of the experiment. Its seconds are real; those of the trace are divided by `time_scale`."""

    name: str = Field(min_length=1)
    about: str = Field(min_length=1, description="how far it departs from the paper, for the report")
    time_scale: float = Field(gt=0, description="factor on the measured speed of replayed jobs")
    time_limit_s: float = Field(gt=0, description="real seconds after which the run of one policy has failed")
    lease: LeaseSettings
    rm: Mapping[str, Any] = Field(default={}, description="further settings of the ResourceManager")
    cluster: ClusterFile
    trace: TraceSection
    pair_divisor: float = Field(default=1.0, gt=0, description="the work of the two apps of table 5 is divided by it")
    trained: tuple[TrainedApp, ...] = ()


def scale_named(text: str) -> ScaleFile:
    """Return the scale of this name, or of the file at this path. Raises InputError with the nearest known name."""
    if text.endswith(SUFFIXES):
        return load(ScaleFile, Path(text))
    if text not in scale_names():
        raise UnknownNameError("scale of the experiment", text, scale_names())
    return load(ScaleFile, Path(str(files("themis_lab.paper.live") / _SCALES / f"{text}.yaml")))


def scale_names() -> tuple[str, ...]:
    """The scales that ship with Themis."""
    return tuple(sorted(Path(str(place)).stem for place in (files("themis_lab.paper.live") / _SCALES).iterdir()))
