"""The plan of a live experiment: the apps with their arrivals, the cluster, and the policies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml
from msgspec import to_builtins
from msgspec.structs import replace

from submarine_client.programs import check_program
from themis.cluster import Cluster
from themis.config.cluster_file import build_cluster
from themis.config.group_file import build_app
from themis.config.loader import fit
from themis.config.rm_settings import AuctionSettings
from themis.errors import InputError
from themis.values import Value
from themis_lab.paper.live.apps import replayed
from themis_lab.paper.live.live_settings import as_live
from themis_lab.paper.live.scale import ScaleFile, TrainedApp
from themis_lab.paper.tab5 import APPS, pair_app
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import AppTrace, Workload
from themis_lab.simulator.workloads.mix import from_specs
from themis_lab.simulator.workloads.registry import workload_named
from themis_lab.testbed.driver import RunPlan
from themis_lab.testbed.mix import Arrival, Setup, rm_settings

WORKLOADS = ("w1", "w2")
LONG, SHORT = (f"tab5-{app.name}" for app in APPS)
"""The two apps of the paper's table 5."""


class Experiment(Value, frozen=True, kw_only=True):
    """One workload of the paper at a scale: the same apps at the same times under each of the policies."""

    workload: str
    scale: ScaleFile
    seed: int
    policies: tuple[str, ...]
    arriving: tuple[Arrival, ...]
    cluster: Cluster

    @property
    def fingerprint(self) -> str:
        """Equal for experiments that run a policy in the same way. It does not depend on the set of policies."""
        what = {
            "workload": self.workload,
            "seed": self.seed,
            "scale": self.scale.model_dump(mode="json"),
            "apps": [to_builtins(arrival) for arrival in self.arriving],
        }
        return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The name of its runs."""
        return f"{self.workload}-{self.scale.name}"

    def run_of(self, policy: str, cluster_file: Path) -> RunPlan:
        """The testbed's plan for one policy. `cluster_file` holds `cluster_text`."""
        scale = self.scale
        setup = Setup(
            name=self.name,
            seed=self.seed,
            time_scale=scale.time_scale,
            time_limit_s=scale.time_limit_s,
            cluster=cluster_file,
            lease=scale.lease,
            rm=scale.rm,
        )
        return RunPlan(setup=setup, arriving=self.arriving, policy=policy, seed=self.seed, cluster=self.cluster)

    def cluster_text(self) -> str:
        """The cluster as a cluster file."""
        return yaml.safe_dump(self.scale.cluster.model_dump(mode="json"), sort_keys=False)

    def simulated(self) -> Workload:
        """The apps as the simulator would run them, with assumed costs."""
        arriving = [(arrival.at_s, arrival.spec) for arrival in self.arriving]
        return from_specs(arriving, name=self.name, time_scale=self.scale.time_scale, seed=self.seed)

    def settings(self, policy: str) -> Settings:
        """The service's settings as the simulator's."""
        scale = self.scale
        auction = fit(AuctionSettings, scale.rm.get("auction", {}), f"auction of the scale {scale.name}")
        base = Settings(cluster=self.cluster, policy=policy, seed=self.seed)
        return as_live(base, auction=auction, lease=scale.lease, time_scale=scale.time_scale)


def plan_experiment(workload: str, policies: Sequence[str], seed: int, scale: ScaleFile) -> Experiment:
    """Read and generate everything that the experiment needs, so that errors show before anything starts.

    The apps are those of the paper's workload at this scale, the long and the short app of table 5 at the median
    arrival, and those that train.

    Raises:
        InputError: An unknown workload, no policy or one twice, or a scale whose apps do not fit.
    """
    if workload not in WORKLOADS:
        raise InputError("unknown workload of the experiment", value=workload, remedy=f"one of {', '.join(WORKLOADS)}")
    if not policies or len(set(policies)) != len(policies):
        raise InputError("policies must be named, each once", value=", ".join(policies), remedy="as in themis,gandiva")
    cluster = build_cluster(scale.cluster, f"the cluster of the scale {scale.name}")
    traces = _traces(workload, seed, scale, cluster)
    arriving = [replayed(trace, time_scale=scale.time_scale, seed=seed) for trace in traces]
    arriving += [_trained(app, scale.name) for app in scale.trained]
    _check_names(arriving)
    experiment = Experiment(
        workload=workload,
        scale=scale,
        seed=seed,
        policies=tuple(policies),
        arriving=tuple(sorted(arriving, key=lambda arrival: arrival.at_s)),
        cluster=cluster,
    )
    _check_settings(experiment)
    return experiment


def _check_settings(experiment: Experiment) -> None:
    """Check the service's settings before it is started."""
    place = Path("cluster.yaml")
    setup = experiment.run_of(experiment.policies[0], place).setup
    rm_settings(setup, policy=experiment.policies[0], seed=experiment.seed, cluster=place, state_dir=place.parent)


def _traces(workload: str, seed: int, scale: ScaleFile, cluster: Cluster) -> list[AppTrace]:
    """The apps of the trace, and at its median arrival the two apps of table 5."""
    apps = workload_named(workload, seed, cluster, **scale.trace.model_dump()).apps
    middle_s = apps[len(apps) // 2].arrival_s
    pair = [pair_app(app, middle_s, scale.pair_divisor) for app in APPS]
    return [*apps, *(replace(app, name=name) for app, name in zip(pair, (LONG, SHORT), strict=True))]


def _trained(app: TrainedApp, scale: str) -> Arrival:
    source = f"app {app.group.name} of the scale {scale}"
    return Arrival(at_s=app.at_s, spec=check_program(build_app(app.group, source), source))


def _check_names(arriving: Iterable[Arrival]) -> None:
    names = [arrival.spec.name for arrival in arriving]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError("two apps of the experiment share a name", value=twice[0], remedy="rename the one that trains")
