"""Derive `philly_apps.csv` from Philly: `python tools/derive_philly_extract.py DATA_FOLDER`.

DATA_FOLDER holds `philly/philly.csv`. themis_lab/simulator/workloads/data/SOURCES.md states source, licence and rules.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import quantiles

from themis_lab.simulator.workloads.philly import Burst, bursts_of, read_philly_csv

OUT = Path(__file__).resolve().parents[1] / "themis_lab" / "simulator" / "workloads" / "data" / "philly_apps.csv"
MIN_JOBS = 8
WINDOW_S = 14 * 86400.0
SINGLE_SHARE = 0.1
SINGLE_GPUS = (1, 2)
DAY_S = 86400.0
HEAD = ("app", "arrival_s", "jobs", "gpus_a_job", "gpu_s", "duration_deciles_s", "virtual_cluster")


def main(arguments: Sequence[str]) -> int:
    """Write the table; returns the exit code."""
    if len(arguments) != 1 or not (Path(arguments[0]) / "philly" / "philly.csv").is_file():
        sys.stderr.write("usage: derive_philly_extract.py DATA_FOLDER, which holds philly/philly.csv\n")
        return 2
    begin_s, kept = extract(bursts_of(read_philly_csv(Path(arguments[0]) / "philly" / "philly.csv").jobs))
    with OUT.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEAD)
        writer.writerows(row(number, burst, begin_s) for number, burst in enumerate(kept))
    day = datetime(1970, 1, 1) + timedelta(seconds=begin_s)
    sys.stdout.write(f"{len(kept)} apps written, from {day:%Y-%m-%d} on\n")
    return 0


def extract(bursts: Sequence[Burst]) -> tuple[float, list[Burst]]:
    """Return the window's start, and its apps: every burst of 8 jobs or more, and single jobs as one app in ten."""
    large = [burst for burst in bursts if len(burst.jobs) >= MIN_JOBS]
    begin_s = busiest(large)
    within = [burst for burst in bursts if begin_s <= burst.submitted_s < begin_s + WINDOW_S]
    searches = [burst for burst in within if len(burst.jobs) >= MIN_JOBS]
    lone = [burst for burst in within if len(burst.jobs) == 1 and burst.gpus in SINGLE_GPUS]
    wanted = round(len(searches) * SINGLE_SHARE / (1.0 - SINGLE_SHARE))
    # Evenly over the window's order, from the middle of each part: no seed, no choice.
    singles = [lone[int((part + 0.5) * len(lone) / wanted)] for part in range(wanted)]
    return begin_s, sorted([*searches, *singles], key=lambda burst: burst.submitted_s)


def busiest(large: Sequence[Burst]) -> float:
    """The midnight from which 14 days hold most of these bursts; the earliest on a tie."""
    first = int(large[0].submitted_s // DAY_S)
    last = int(large[-1].submitted_s // DAY_S)
    days = [day * DAY_S for day in range(first, last + 1)]
    return max(days, key=lambda begin: sum(begin <= burst.submitted_s < begin + WINDOW_S for burst in large))


def row(number: int, burst: Burst, begin_s: float) -> tuple[object, ...]:
    """The app's row: what it is, and eleven points of its jobs' durations, from the shortest to the longest."""
    durations = sorted(job.duration_s for job in burst.jobs)
    inner = quantiles(durations, n=10, method="inclusive") if len(durations) > 1 else durations * 9
    deciles = " ".join(str(round(seconds)) for seconds in (durations[0], *inner, durations[-1]))
    arrival_s = round(burst.submitted_s - begin_s)
    cluster = burst.jobs[0].virtual_cluster
    return (f"p{number:03d}", arrival_s, len(durations), burst.gpus, round(burst.gpu_s), deciles, cluster)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
