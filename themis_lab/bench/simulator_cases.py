"""The cases of `bench simulator`, their sizes, and published measurements of similar cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from themis.errors import InputError
from themis.values import Value
from themis_lab.bench.simulator_trace import write_trace
from themis_lab.simulator.workloads.gavel import read_gavel_trace, read_throughputs
from themis_lab.simulator.workloads.gavel_sample import draw_jobs

LEFT_OUT_S = 300.0
"""A size that takes longer is left out, and so is every larger one."""

COMPARED_LIMIT_S = 1800.0
"""Time limit of the runs that are compared with a reference."""

LOAD = 1.0
TASK_GPU_S = 1800.0
SIGMA = 0.7
"""The synthetic workload of the growth: load, median GPU seconds per task, and the spread of those."""

REACH_MEMORY = 0.5
W1_REACH_S = 60.0
REFERENCE_LABEL = (
    "figures from elsewhere, measured on another but like machine and never here: a public simulator with a"
    " finish-time-fair policy"
)

_MACHINE_GPUS = 8
_SERVER_GPUS = 4


class Part(StrEnum):
    """A part of the benchmark."""

    GAVEL_120 = "gavel-120"
    GAVEL_900 = "gavel-900"
    W1 = "w1"
    GROWTH = "growth"


class Reference(Value, frozen=True, kw_only=True):
    """Time and memory of a public simulator: seconds from start to end, and MB (10^6 bytes).

    `reach`: our aim, times as fast.
    """

    wall_s: float
    memory_mb: float
    reach: float


class Size(Value, frozen=True, order=True):
    """A cluster of machines of eight GPUs, and apps that arrive at it."""

    gpus: int
    apps: int

    def __post_init__(self) -> None:
        if self.gpus < _MACHINE_GPUS or self.gpus % _MACHINE_GPUS or self.apps < 1:
            value, remedy = f"{self.gpus}/{self.apps}", "write GPUS/APPS, GPUs being a multiple of 8: 80/16,400/80"
            raise InputError("no such size", value=value, remedy=remedy)

    def within(self, other: Size) -> bool:
        """Whether it is no larger than another size, in GPUs and in apps."""
        return self.gpus <= other.gpus and self.apps <= other.apps


SHAPES: Mapping[Part, tuple[Size, Reference]] = {
    Part.GAVEL_120: (Size(32, 120), Reference(wall_s=4.6, memory_mb=224.0, reach=5.0)),
    Part.GAVEL_900: (Size(256, 900), Reference(wall_s=33.6, memory_mb=630.0, reach=10.0)),
}
"""GPUs, jobs and reference of the cases that are compared with other simulators."""


class SimulatorBenchPlan(Value, frozen=True, kw_only=True):
    """A whole benchmark run. `budget_s` limits its seconds (None: no limit).

    Attributes:
        parts: The parts to run.
        sizes: Sizes of the part `growth`.
        trace: The public trace of 120 jobs; None: make a random one.
        throughputs: Its table; None: the `throughputs.csv` next to it.
        repeats: Runs of each case with an aim; the fastest is compared.
    """

    parts: Sequence[Part] = tuple(Part)
    sizes: Sequence[Size] = ()
    policy: str = "themis"
    seed: int = 1
    budget_s: float | None = None
    trace: Path | None = None
    throughputs: Path | None = None
    repeats: int = 3

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise InputError("--repeats must be 1 or more", value=self.repeats)
        if self.budget_s is not None and not self.budget_s > 0.0:
            raise InputError("--budget-s must be a number above 0", value=self.budget_s)
        if self.throughputs is not None and self.trace is None:
            raise InputError("--throughputs belongs to a trace", remedy="name the trace with --trace")


class Case(Value, frozen=True, kw_only=True):
    """A run to measure: the arguments of `themis simulate`, and its reference.

    Attributes:
        source: The source of its workload, in a few words.
        reach_s: Our aim in seconds, if there is no reference.
    """

    part: Part
    size: Size
    arguments: tuple[str, ...]
    source: str
    limit_s: float
    repeats: int = 1
    reference: Reference | None = None
    reach_s: float | None = None

    def __str__(self) -> str:
        size = f"{self.size.gpus}/{self.size.apps}"
        return f"{self.part} {size}"


def cases_of(plan: SimulatorBenchPlan, folder: Path) -> list[Case]:
    """The cases in order. Random traces are written into the folder.

    Raises:
        InputError: The trace or its table cannot be read.
    """
    cases = [_gavel_case(plan, part, folder) for part in SHAPES if part in plan.parts]
    if Part.W1 in plan.parts:
        cases.append(_w1_case(plan))
    if Part.GROWTH in plan.parts:
        sizes = sorted(set(plan.sizes), key=lambda size: (size.gpus * size.apps, size))
        cases += [_growth_case(plan, size) for size in sizes]
    return cases


def _gavel_case(plan: SimulatorBenchPlan, part: Part, folder: Path) -> Case:
    size, reference = SHAPES[part]
    given = plan.trace if part is Part.GAVEL_120 else None
    jobs = size.apps
    if given is None:
        trace, table = write_trace(draw_jobs(size.apps, size.gpus, plan.seed), folder, part)
    else:
        trace, table = given, plan.throughputs or given.parent / "throughputs.csv"
        # Read here too, so that an invalid file is reported at once.
        jobs = len(read_gavel_trace(trace))
        read_throughputs(table)
    cluster = f"{size.gpus // _SERVER_GPUS}x{_SERVER_GPUS}"
    named = ("--workload", str(trace), "--throughputs", str(table))
    return Case(
        part=part,
        size=Size(size.gpus, jobs),
        arguments=_arguments(plan, cluster, *named),
        source="drawn trace" if given is None else "given trace",
        limit_s=COMPARED_LIMIT_S,
        repeats=plan.repeats,
        reference=reference if jobs == size.apps else None,
    )


def _w1_case(plan: SimulatorBenchPlan) -> Case:
    return Case(
        part=Part.W1,
        size=Size(168, 85),
        arguments=_arguments(plan, "paper-168", "--workload", "w1"),
        source="workload w1",
        limit_s=COMPARED_LIMIT_S,
        repeats=plan.repeats,
        reach_s=W1_REACH_S,
    )


def _growth_case(plan: SimulatorBenchPlan, size: Size) -> Case:
    options = {"apps": size.apps, "load": LOAD, "task_gpu_s": TASK_GPU_S, "sigma": SIGMA}
    given = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    cluster = f"{size.gpus // _MACHINE_GPUS}x{_MACHINE_GPUS}"
    return Case(
        part=Part.GROWTH,
        size=size,
        arguments=_arguments(plan, cluster, "--workload", "synthetic", *given),
        source=f"synthetic, load {LOAD:g}",
        limit_s=LEFT_OUT_S,
    )


def _arguments(plan: SimulatorBenchPlan, cluster: str, *workload: str) -> tuple[str, ...]:
    usual = ("--policy", plan.policy, "--solver", "exact", "--seed", str(plan.seed))
    return ("simulate", *usual, "--cluster", cluster, *workload)
