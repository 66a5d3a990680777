"""What is compiled of bids' asks. Arrays are C-contiguous: i2 is int16, i8 int64, f8 float64.

Arrays of other types or of shapes that do not agree are a ValueError, as are numbers that cannot be. Arrays must not
overlap.
"""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

def ask_by(
    times_s: Array,  # f8 [jobs, kinds]
    takes: Array,  # f8 [kinds, kinds]: of how many gangs of each kind a gang of one takes the room
    gang_gpus: Array,  # i8 [kinds]
    most: Array,  # i8 [kinds]
    most_gpus: int,  # GPUs by which all room is told, at least 1
    most_gangs: int,
    end_s: float,
    gpus: int,
    out: Array,  # i8 [kinds]
) -> bool:
    """Gangs on which jobs end by a time, if there are any."""

def lay_out(
    most: Array,  # i8 [kinds]
    within: Array,  # i8 [kinds], levels
    kinds_of: Mapping[tuple[int, int], tuple[int, ...]],  # a dict; the kinds by GPUs and unit, the nearest first
    sizes: tuple[tuple[int, int, int], ...],  # GPUs, unit and count
    parts: tuple[float, ...],  # from 0 to 1
) -> list[tuple[int, ...]]:
    """Asks that lay gangs as near as there is room, for parts of the near places."""

def lay_apart(
    most: Array,  # i8 [kinds]
    within: Array,  # i8 [kinds], levels
    kinds_of: Mapping[tuple[int, int], tuple[int, ...]],  # a dict; by GPUs and unit a kind for each level
    sizes: tuple[tuple[int, int, int], ...],  # GPUs, unit and count
    aways: tuple[int, ...],  # how many lie at the farther of two levels
) -> list[tuple[int, ...]]:
    """Asks that lay gangs at one level, or the first of them at a farther one."""

def by_work(
    work_s: Array,  # f8 [jobs]
    shape: Array,  # i8 [jobs], numbers of shapes
    shapes: Array,  # i8 [shapes, 3]: GPUs of the smallest gang, of a task, of the largest gang
    slowdown: Array,  # f8 [shapes, tasks]: S by the number of tasks
    most_gpus: int,
    step: float,
) -> list[tuple[int, tuple[tuple[int, int, int], ...]]]:
    """GPUs dealt to jobs, each time to the one that would end last: totals, and the gangs that they make."""

def in_turn(
    work_s: Array,  # f8 [shapes]
    members: Array,  # i8 [shapes]
    shapes: Array,  # i8 [shapes, 3]: GPUs of the smallest gang, of a task, of the largest gang
    most_gangs: int,
    most_gpus: int,
    step: float,
) -> list[tuple[int, tuple[tuple[int, int, int], ...]]]:
    """GPUs dealt to shapes of jobs, each time to the one of most work a GPU: totals, and the gangs that they make."""

def on_grids(
    counts: Array,  # i8: ascending from 0 for each kind, one kind after the other
    ends: Array,  # i8 [kinds]: where the counts of each kind end
    gang_gpus: Array,  # i8 [kinds]
    most_gangs: int,
    most_gpus: int,
    out: Array,  # i8 [most, kinds]
) -> int:
    """All choices of a count for each kind, within gangs and GPUs: -1 where they are more than `out` holds."""

def next_to(
    keys: Array,  # i8 [asks]: each another
    asks: Array,  # i8 [asks, kinds]
    places: Array,  # i8 [changes]: of which kind there is a gang less
    changes: Array,  # i8 [changes]: by which keys change
    harder: Array,  # i8 [asks * changes]
    easier: Array,  # i8 [asks * changes]
) -> int:
    """How many pairs of asks there are of which a change makes the easier one of the harder one."""

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
    needs: Array,  # i2 [asks, needs]
    gains: Array,  # f8 [asks]
    enough: Array,  # f8 [asks]: what another must gain to stand in for each
    first: int,  # how many asks are kept at first
    cap: int,
    kept: Array,  # i8 [first + asks]: the first ones, then what is found
) -> int:
    """How many asks are kept: the first ones, and all that none kept before stands in for; it ends past the cap."""
