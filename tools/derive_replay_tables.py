"""Derive `tf_jobs/tables/slowdown.csv` from public measurements: `python tools/derive_replay_tables.py DATA_FOLDER`.

DATA_FOLDER holds `pollux/<model>/placements.csv` (seconds a step by placement and local batch) and
`gavel/throughputs.csv` (steps a second, on one server and not). tf_jobs/tables/SOURCES.md states sources and rules.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from themis.values import Value

OUT = Path(__file__).resolve().parents[1] / "tf_jobs" / "tables" / "slowdown.csv"
REFERENCE_GPUS = 4
CLUSTER_FACTOR = 1.5
"""By how much the communication that crosses machines is taken to grow beyond a rack: see SOURCES.md."""

SAME_MACHINE = ("2", "4")
ACROSS_MACHINES = ("11", "1111", "22")
"""Pollux placements with the same GPU counts, on one machine and on several: each digit is one machine's GPUs."""

GAVEL_GPU = "v100"
GAVEL_GPUS = (2, 4)


class Source(Value, frozen=True, kw_only=True):
    """One measured model: its name in our tables, its name in the source, and the batch size per GPU."""

    model: str
    measured_as: str
    local_batch: int


POLLUX = (
    Source(model="resnet18_cifar10", measured_as="cifar10", local_batch=129),
    Source(model="resnet50", measured_as="imagenet", local_batch=163),
    Source(model="bert", measured_as="bert", local_batch=12),
    Source(model="deepspeech2", measured_as="deepspeech2", local_batch=20),
    Source(model="yolov3", measured_as="yolov3", local_batch=8),
    Source(model="neumf", measured_as="ncf", local_batch=257),
)
GAVEL = (
    Source(model="lm", measured_as="LM", local_batch=80),
    Source(model="transformer", measured_as="Transformer", local_batch=64),
)


class Measured(Value, frozen=True, kw_only=True):
    """S on one machine and across machines, and the serial time of an iteration at REFERENCE_GPUS local batches."""

    model: str
    serial_iteration_time_s: float
    machine: float
    across: float
    source: str


def main(arguments: Sequence[str]) -> int:
    """Write the table; returns the exit code."""
    if len(arguments) != 1 or not (Path(arguments[0]) / "pollux").is_dir():
        sys.stderr.write("usage: derive_replay_tables.py DATA_FOLDER, which holds pollux/ and gavel/\n")
        return 2
    data = Path(arguments[0])
    models = [*(from_pollux(data / "pollux", s) for s in POLLUX), *(from_gavel(data / "gavel", s) for s in GAVEL)]
    with OUT.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("model", "level", "slowdown", "serial_iteration_time_s", "basis", "source"))
        for measured in models:
            writer.writerows(rows(measured))
    sys.stdout.write(f"{len(models)} models written\n")
    return 0


def from_pollux(folder: Path, source: Source) -> Measured:
    """S(placement) = step time there / step time on one GPU, at the same batch per GPU."""
    with (folder / source.measured_as / "placements.csv").open(newline="", encoding="utf-8") as stream:
        step_s = {
            row["placement"]: float(row["step_time"])
            for row in csv.DictReader(stream)
            if int(row["local_bsz"]) == source.local_batch
        }
    return Measured(
        model=source.model,
        serial_iteration_time_s=REFERENCE_GPUS * step_s["1"],
        machine=mean(step_s[p] / step_s["1"] for p in SAME_MACHINE),
        across=mean(step_s[p] / step_s["1"] for p in ACROSS_MACHINES),
        source=f"pollux {source.measured_as} local_bsz={source.local_batch} T4",
    )


def from_gavel(folder: Path, source: Source) -> Measured:
    """S = n x speed of one GPU / speed of n GPUs; Gavel's speeds count the steps of all n workers together."""
    with (folder / "throughputs.csv").open(newline="", encoding="utf-8") as stream:
        speeds = {
            int(row["num_gpus"]): (
                float(row["steps_per_s_consolidated"]),
                float(row["steps_per_s_unconsolidated"]),
            )
            for row in csv.DictReader(stream)
            if (row["model"], row["batch_size"], row["gpu_type"])
            == (source.measured_as, str(source.local_batch), GAVEL_GPU)
        }
    alone = speeds[1][0]
    return Measured(
        model=source.model,
        serial_iteration_time_s=REFERENCE_GPUS / alone,
        machine=mean(n * alone / speeds[n][0] for n in GAVEL_GPUS),
        across=mean(n * alone / speeds[n][1] for n in GAVEL_GPUS),
        source=f"gavel {source.measured_as} batch={source.local_batch} {GAVEL_GPU}",
    )


def mean(ratios: Iterable[float]) -> float:
    """Geometric mean of slowdowns; one below 1 is noise of the measurement and counts as 1."""
    logs = [math.log(max(ratio, 1.0)) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))


def rows(measured: Measured) -> list[tuple[str, str, str, str, str, str]]:
    """The table's rows of one model; a farther level is never faster than a nearer one."""
    rack = max(measured.machine, measured.across)
    cluster = rack + (CLUSTER_FACTOR - 1.0) * (rack - measured.machine)
    levels = (
        ("machine", measured.machine, "measured"),
        ("rack", rack, "measured across machines"),
        ("cluster", cluster, "extrapolated"),
    )
    serial = f"{measured.serial_iteration_time_s:.4f}"
    return [(measured.model, level, f"{s:.3f}", serial, basis, measured.source) for level, s, basis in levels]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
