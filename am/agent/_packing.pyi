"""The compiled packing: C-contiguous arrays in and out. i8 is int64, f8 float64.

Arrays of other types or of shapes that do not agree are a ValueError. Arrays must not overlap.
"""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

def times_s(
    alone_s: Array,  # f8 [jobs, kinds], one of each at least
    counts: Array,  # i8 [divisions, kinds]
    in_pairs: bool,  # also exchange pairs of jobs
    closely: bool,  # also fill gangs one after the other
    out: Array,  # f8 [divisions]
) -> None:
    """When the last job ends, for each division of gangs."""

def left_out_s(
    alone_s: Array,  # f8 [jobs, kinds], one of each at least
    counts: Array,  # i8 [divisions, kinds]
    end_s: float,
    most_s: float,  # counting stops at this sum, and at the least sum before
    out: Array,  # f8 [divisions]
) -> None:
    """The time of the jobs that do not end in time, for each division of gangs."""

def gangs_of_jobs(
    alone_s: Array,  # f8 [jobs, kinds], one of each at least
    kind: Array,  # i8 [gangs], each at least the one before
    load_s: Array,  # f8 [gangs]
    out: Array,  # i8 [jobs]
) -> float:
    """When the last job ends on some gangs, and on which of them each job runs."""

def follow_s(
    shapes: Array,  # i8 [jobs, 3]: GPUs of the smallest gang, of a task, of the largest gang
    gpu_s: Array,  # f8 [jobs, levels]: seconds on one GPU
    queue: Array,  # i8 [waiting]: jobs
    end_s: Array,  # f8 [running]
    gangs: Array,  # i8 [running, 2]: GPUs and level
    within: int,  # the level of all GPUs
    start_s: float,
    certain: float,
    best_s: float,
) -> float:
    """When the last job ends if waiting jobs get the GPUs that others leave; the simulation stops past `best_s`."""
