"""The compiled functions for candidates. Arrays are C-contiguous: i2 is int16, i8 int64, f8 float64.

Arrays of other types, shapes that do not agree and invalid numbers raise a ValueError. Arrays must not overlap.
"""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

def fit_by_end(
    times_s: Array,  # f8 [jobs, kinds]
    takes: Array,  # f8 [kinds, kinds]: `capacity_taken`
    gang_gpus: Array,  # i8 [kinds]
    most: Array,  # i8 [kinds]
    max_gpus: int,  # the GPUs of the whole capacity, at least 1
    max_gangs: int,
    end_s: float,
    gpus: int,
    out: Array,  # i8 [kinds]
) -> bool:
    """First fit under an end: gangs on which all jobs end in time, if it finds any."""

def at_tightest(
    most: Array,  # i8 [kinds]
    within: Array,  # i8 [kinds], levels
    kinds_of: Mapping[tuple[int, int], tuple[int, ...]],  # a dict; the kinds by GPUs and unit, the tightest first
    sizes: tuple[tuple[int, int, int], ...],  # GPUs, unit and count
    parts: tuple[float, ...],  # from 0 to 1
) -> list[tuple[int, ...]]:
    """Candidates with gangs at their tightest levels, for parts of the tight places."""

def at_two_levels(
    most: Array,  # i8 [kinds]
    within: Array,  # i8 [kinds], levels
    kinds_of: Mapping[tuple[int, int], tuple[int, ...]],  # a dict; by GPUs and unit a kind for each level
    sizes: tuple[tuple[int, int, int], ...],  # GPUs, unit and count
    loose_counts: tuple[int, ...],  # how many gangs are at the looser of two levels
) -> list[tuple[int, ...]]:
    """Candidates with gangs at one level, or the first of them at a looser one."""

def by_work(
    work_s: Array,  # f8 [jobs]
    shape: Array,  # i8 [jobs], numbers of shapes
    shapes: Array,  # i8 [shapes, 3]: GPUs of the smallest gang, of a task, of the largest gang
    slowdown: Array,  # f8 [shapes, tasks]: S by the number of tasks
    max_gpus: int,
    step: float,
) -> list[tuple[int, tuple[tuple[int, int, int], ...]]]:
    """List scheduling, each step for the job that would end last: totals of GPUs, and the gangs that they make."""

def in_turn(
    work_s: Array,  # f8 [shapes]
    members: Array,  # i8 [shapes]
    shapes: Array,  # i8 [shapes, 3]: GPUs of the smallest gang, of a task, of the largest gang
    max_gangs: int,
    max_gpus: int,
    step: float,
) -> list[tuple[int, tuple[tuple[int, int, int], ...]]]:
    """List scheduling, each step for the shape with most work per GPU: totals of GPUs, and the gangs that they make."""

def on_grids(
    counts: Array,  # i8: ascending from 0 for each kind, one kind after the other
    ends: Array,  # i8 [kinds]: where the counts of each kind end
    gang_gpus: Array,  # i8 [kinds]
    max_gangs: int,
    max_gpus: int,
    out: Array,  # i8 [most, kinds]
) -> int:
    """All choices of a count for each kind within the limits. Returns their number, -1 if they exceed `out`."""

def one_step_variants(
    keys: Array,  # i8 [candidates]: distinct
    candidates: Array,  # i8 [candidates, kinds]
    changed: Array,  # i8 [changes]: the kind that has one gang less
    changes: Array,  # i8 [changes]: the change of the key
    harder: Array,  # i8 [candidates * changes]
    easier: Array,  # i8 [candidates * changes]
) -> int:
    """Finds the pairs of candidates of which a change turns the harder into the easier one. Returns their number."""

def undominated(
    values: Array,  # f8 [candidates]
    gains: Array,  # f8 [candidates]
    needs: Array,  # i2 [candidates, needs]
    gpus: Array,  # i8 [candidates]: 0 for one that is never chosen
    harder: Array,  # i8 [pairs]: candidates
    easier: Array,  # i8 [pairs]: for each a candidate that asks for a little less
    empty_value: float,
    kept: Array,  # i8 [candidates]: where the chosen ones are put
) -> int:
    """The number of candidates worth more than the empty bundle that no other one dominates; fewest needs first."""

def uncovered(
    needs: Array,  # i2 [candidates, needs]
    gains: Array,  # f8 [candidates]
    enough: Array,  # f8 [candidates]: what another one must gain to replace each
    first: int,  # the number of candidates in `kept` at first
    cap: int,
    kept: Array,  # i8 [first + candidates]: the first ones, then those found
) -> int:
    """Keeps the first candidates and all that none kept before replaces. Returns their number; stops past the cap."""
