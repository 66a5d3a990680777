"""Derive gavel_statistics.csv (`themis_lab/simulator/workloads/data`) from public files.

`python tools/derive_gavel_statistics.py TRACE THROUGHPUTS`.

themis_lab/simulator/workloads/data/SOURCES.md states source, licence and rules.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import quantiles

from themis_lab.simulator.workloads.gavel import GavelJob, Throughput, Throughputs, read_gavel_trace, read_throughputs

OUT = Path(__file__).resolve().parents[1] / "themis_lab" / "simulator" / "workloads" / "data" / "gavel_statistics.csv"


def main(arguments: Sequence[str]) -> int:
    """Write the table; returns the exit code."""
    if len(arguments) != 2:
        sys.stderr.write("usage: derive_gavel_statistics.py TRACE THROUGHPUTS\n")
        return 2
    found = statistics(read_gavel_trace(Path(arguments[0])), read_throughputs(Path(arguments[1])))
    with OUT.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("statistic", "values"))
        writer.writerows((name, " ".join(f"{value:.6g}" for value in values)) for name, values in found.items())
    return 0


def statistics(jobs: Sequence[GavelJob], throughputs: Throughputs) -> Mapping[str, Sequence[float]]:
    """The statistics by name; every job must have a throughput."""
    speeds = [throughputs[job.model, job.batch, job.gpus] for job in jobs]
    arrivals_s = [job.arrival_s for job in jobs]
    counts = sorted(Counter(job.gpus for job in jobs).items())
    return {
        "mean_gap_s": [(max(arrivals_s) - min(arrivals_s)) / (len(jobs) - 1)],
        "gpus": [gpus for gpus, _ in counts],
        "jobs_by_gpus": [count for _, count in counts],
        "run_s_deciles": deciles([job.steps / speed.consolidated for job, speed in zip(jobs, speeds, strict=True)]),
        "steps_per_s_deciles": deciles([speed.consolidated for speed in speeds]),
        "across_servers_deciles": deciles([across(s) for job, s in zip(jobs, speeds, strict=True) if job.gpus > 1]),
    }


def across(speed: Throughput) -> float:
    """The slowdown on several servers compared with one, at least 1."""
    return max(1.0, speed.consolidated / speed.unconsolidated)


def deciles(values: Sequence[float]) -> list[float]:
    """Least, the nine deciles, largest."""
    return [min(values), *quantiles(values, n=10, method="inclusive"), max(values)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
