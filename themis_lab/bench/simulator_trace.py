"""Write drawn jobs as a trace in Gavel's format."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from themis_lab.simulator.workloads.gavel import DEFAULT_GPU_TYPE
from themis_lab.simulator.workloads.gavel_sample import DrawnJob, model_name

_THROUGHPUT_COLUMNS = (
    "model", "batch_size", "num_gpus", "gpu_type", "steps_per_s_consolidated", "steps_per_s_unconsolidated",
)  # fmt: skip


def write_trace(jobs: Sequence[DrawnJob], folder: Path, name: str) -> tuple[Path, Path]:
    """Write the jobs as a trace and its table of throughputs. Returns both paths."""
    trace, table = folder / f"{name}.trace", folder / f"{name}.csv"
    trace.write_text("".join(_line(number, job) for number, job in enumerate(jobs)), encoding="utf-8")
    with table.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_THROUGHPUT_COLUMNS)
        for number, job in enumerate(jobs):
            speeds = (job.steps_per_s, job.steps_per_s_across)
            writer.writerow((model_name(number), "", job.gpus, DEFAULT_GPU_TYPE, *speeds))
    return trace, table


def _line(number: int, job: DrawnJob) -> str:
    words = (
        model_name(number), "-", "-", "--steps", 1, job.steps, job.gpus, "static", 1, -1.0, job.run_s, job.arrival_s,
    )  # fmt: skip
    return "\t".join(map(str, words)) + "\n"
