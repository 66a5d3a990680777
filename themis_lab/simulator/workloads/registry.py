"""Find workloads by name, or read the file of a public trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from themis.cluster import Cluster
from themis.errors import InputError, UnknownNameError
from themis.values import Value
from themis_lab.simulator.workload import Workload
from themis_lab.simulator.workloads.bad_rows import BadRows
from themis_lab.simulator.workloads.gavel import DEFAULT_GPU_TYPE, from_gavel, read_gavel_trace, read_throughputs
from themis_lab.simulator.workloads.gavel_sample import GavelSampleOptions, gavel_sample
from themis_lab.simulator.workloads.options import build_options
from themis_lab.simulator.workloads.paper import PaperOptions, Workload1Options, workload_1, workload_2
from themis_lab.simulator.workloads.philly import bursts_of, read_philly_csv, read_philly_json
from themis_lab.simulator.workloads.synthetic import SyntheticOptions, synthetic
from themis_lab.simulator.workloads.trace_apps import from_bursts, from_extract

SMALL: Mapping[str, Any] = {"apps": 12, "scale": 10.0, "job_divisor": 5.0}
"""Options of the small workloads: 12 apps with the load of the 85, a fifth of the jobs, and half of the work each."""


class NoOptions(Value, frozen=True, kw_only=True):
    """Options of a workload that has none."""


class PhillyOptions(Value, frozen=True, kw_only=True):
    """Options of a Philly trace. Bursts of fewer than `least_jobs` jobs are left out, and rows that cannot be read."""

    least_jobs: int = 1
    skip_bad_rows: bool = False

    def __post_init__(self) -> None:
        if self.least_jobs < 1:
            raise InputError("a burst has at least one job", value=self.least_jobs, remedy="least_jobs is 1 or more")


class GavelOptions(Value, frozen=True, kw_only=True):
    """Options of a Gavel trace: the path of its throughputs, by default in its folder, and the type of GPU."""

    throughputs: str = ""
    gpu_type: str = DEFAULT_GPU_TYPE
    skip_bad_rows: bool = False


class Entry(Value, frozen=True, kw_only=True):
    """A workload: a line about it, its function, its options, and the option values that its name sets."""

    summary: str
    make: Callable[[int, Cluster, Any], Workload]
    options: type[Any]
    defaults: Mapping[str, Any]


WORKLOADS: Mapping[str, Entry] = {
    "w1": Entry(
        summary="the paper's workload 1: 85 searches of 1- and 2-GPU jobs over two weeks",
        make=lambda seed, _, options: workload_1(seed, options),
        options=Workload1Options,
        defaults={},
    ),
    "w2": Entry(
        summary="the paper's workload 2: the same arrivals, successive halving, jobs of 2 to 8 GPUs",
        make=lambda seed, _, options: workload_2(seed, options),
        options=PaperOptions,
        defaults={},
    ),
    "w1-small": Entry(
        summary="workload 1 scaled down to 12 apps over about four hours",
        make=lambda seed, _, options: workload_1(seed, options),
        options=Workload1Options,
        defaults=SMALL,
    ),
    "w2-small": Entry(
        summary="workload 2 scaled down to 12 apps over about four hours",
        make=lambda seed, _, options: workload_2(seed, options),
        options=PaperOptions,
        defaults=SMALL,
    ),
    "synthetic": Entry(
        summary="Poisson arrivals at a load relative to the cluster",
        make=synthetic,
        options=SyntheticOptions,
        defaults={},
    ),
    "gavel": Entry(
        summary="apps of one job each, drawn from the statistics of Gavel's trace, with its load on the cluster",
        make=gavel_sample,
        options=GavelSampleOptions,
        defaults={},
    ),
    "philly": Entry(
        summary="the extract of the Philly trace as it is: 526 apps over two weeks",
        make=lambda seed, *_: from_extract(seed),
        options=NoOptions,
        defaults={},
    ),
}
"""The workloads that `workload_named` knows by name."""

SUFFIXES = (".trace", ".csv", ".json")
RELEASED = "cluster_job_log"
"""The file name of Philly's released JSON."""


def workload_named(text: str, seed: int, cluster: Cluster, **options: Any) -> Workload:
    """Return the workload of this name, or of the trace at this path.

    Args:
        text: A key of WORKLOADS, or the path of a Gavel trace (`.trace`), of Philly's flat table (`.csv`) or of its
            JSON release (`.json`, or `cluster_job_log` as it is called there).
        seed: The same seed gives the same workload.
        cluster: The cluster that it will run on; only `synthetic` uses it.
        options: By keyword, the attributes of the workload's options (see its Entry; PhillyOptions and GavelOptions
            for files), as values or as text.

    Raises:
        UnknownNameError: The workload or an option is unknown.
        InputError: A file or an option is invalid.
    """
    path = Path(text)
    if path.suffix in SUFFIXES or path.name == RELEASED:
        return _from_file(path, seed, options)
    if text not in WORKLOADS and path.is_file():
        remedy = f"its name must end with {', '.join(SUFFIXES)}, or be {RELEASED}"
        raise InputError("a file whose format cannot be derived from its name", value=text, remedy=remedy)
    if text not in WORKLOADS:
        raise UnknownNameError("workload", text, WORKLOADS)
    entry = WORKLOADS[text]
    workload = entry.make(seed, cluster, build_options(entry.options, {**entry.defaults, **options}, text))
    return Workload(name=text, apps=workload.apps, source=workload.source)


def _from_file(path: Path, seed: int, options: Mapping[str, Any]) -> Workload:
    if path.suffix == ".trace":
        gavel: GavelOptions = build_options(GavelOptions, options, path.name)
        table = Path(gavel.throughputs) if gavel.throughputs else path.parent / "throughputs.csv"
        bad = BadRows(skip=gavel.skip_bad_rows)
        jobs, throughputs = read_gavel_trace(path, bad), read_throughputs(table, gavel.gpu_type, bad)
        return from_gavel(jobs, throughputs, seed, path.name, bad)
    philly: PhillyOptions = build_options(PhillyOptions, options, path.name)
    read = read_philly_csv if path.suffix == ".csv" else read_philly_json
    trace = read(path, skip_bad_rows=philly.skip_bad_rows)
    return from_bursts(bursts_of(trace.jobs), seed, path.name, philly.least_jobs, trace.gaps)
