"""What is compiled of bids' asks. Arrays are C-contiguous: i8 is int64, f8 float64.

Arrays of other types or of shapes that do not agree are a ValueError, as are numbers that cannot be.
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
