"""Read the input of `themis simulate`: a cluster and a workload by name or file, or a testbed mix with its settings."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from themis.errors import InputError
from themis.values import Value
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import Workload

if TYPE_CHECKING:
    from themis_lab.testbed.mix import Mix

MIX_SUFFIXES = (".yaml", ".yml")
_DEFAULT_CLUSTER = "testbed"
_WORKLOAD_OPTIONS = ("apps", "scale", "throughputs", "network_intensive", "skip_bad_rows")


class Input(Value, frozen=True, kw_only=True):
    """Settings before options are applied, the first seed, and the workload of each seed."""

    settings: Settings
    seed: int
    workload: Callable[[int], Workload]


def read_input(options: argparse.Namespace, default_seed: int) -> Input:
    """Return the input that the options name.

    Raises:
        InputError: An unknown name, or an invalid file or option.
    """
    if options.workload.endswith(MIX_SUFFIXES):
        return _mix_input(options)
    from themis_lab.simulator.clusters import cluster_named
    from themis_lab.simulator.workloads.registry import workload_named

    cluster, given = cluster_named(options.cluster or _DEFAULT_CLUSTER), workload_options(options)
    return Input(
        settings=Settings(cluster=cluster),
        seed=default_seed if options.seed is None else options.seed,
        workload=lambda seed: workload_named(options.workload, seed, cluster, **given),
    )


def workload_options(options: argparse.Namespace) -> dict[str, Any]:
    """Options of the workload: those with their own flag, and `--option NAME=VALUE`."""
    given = {name: value for name in _WORKLOAD_OPTIONS if (value := getattr(options, name)) is not None}
    for text in options.option or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError("--option does not parse", value=text, remedy="write NAME=VALUE")
        key = name.replace("-", "_")
        if key in given:
            remedy = "an option is given once"
            raise InputError(
                f"option {key} of the workload is given twice", value=[str(given[key]), value], remedy=remedy
            )
        given[key] = value
    return given


def _mix_input(options: argparse.Namespace) -> Input:
    from rm_plugin.service.admission import check_device_types
    from themis_lab.simulator.clusters import cluster_named
    from themis_lab.simulator.workloads.mix import from_specs
    from themis_lab.testbed.mix import arrivals, load_mix

    mix = load_mix(Path(options.workload))
    if given := workload_options(options):
        raise InputError("a mix takes no options of workloads", value=", ".join(sorted(given)))
    arriving = [(arrival.at_s, arrival.spec) for arrival in arrivals(mix)]
    cluster = cluster_named(options.cluster or str(mix.cluster))
    for _, spec in arriving:
        for job in spec.jobs:
            check_device_types(job, cluster)
    return Input(
        settings=_mix_settings(mix, Settings(cluster=cluster)),
        seed=mix.seed if options.seed is None else options.seed,
        workload=lambda seed: from_specs(arriving, name=mix.name, time_scale=mix.time_scale, seed=seed),
    )


def _mix_settings(mix: Mix, base: Settings) -> Settings:
    from themis.config.loader import fit
    from themis.config.rm_settings import AuctionSettings
    from themis_lab.paper.live.live_settings import as_live

    auction = fit(AuctionSettings, mix.rm.get("auction", {}), f"auction of the mix {mix.name}")
    return as_live(base, auction=auction, lease=mix.lease, time_scale=mix.time_scale)
