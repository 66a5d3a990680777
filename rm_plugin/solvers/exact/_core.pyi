"""The compiled core of the exact method (docs/design/auction.md): arrays in, arrays out.

i4 and i8 are C-contiguous int32 and int64 arrays, f8 float64. A price is that of a whole capacity, in log value. `skip`
is the position of a bidder to leave out, -1 for none.
"""

from array import array
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from themis.bids import Bid, GangRequest

Array = NDArray[Any]
Flat = array[Any] | bytes

class Problem: ...
class Cover: ...

def problem(
    unit: float,
    row_start: Array,  # i4 [bidders + 1]
    gain: Array,  # i8 [rows]
    gpus: Array,  # i4 [rows]
    tie: Array,  # i8 [rows]
    use: Array,  # i4 [rows, resources], less what the pins below use
    capacity: Array,  # i4 [resources]
    pin_start: Array,  # i4 [rows + 1]
    pin_machine: Array,  # i4 [pins]
    pin_gpus: Array,  # i4 [pins]
    machine_free: Array,  # i4 [machines]
    table_start: Array,  # i4 [machines + 1]
    table: Array,  # i4, by machine [resources, free + 1]
) -> Problem:
    """A knapsack from its arrays (problem.h), which are copied."""

def prices(problem: Problem, skip: int, price: Array, first_mu: float) -> None:
    """Improve f8 [resources] prices in place. `first_mu`: how far off they may be, 0 if nothing is known."""

def share(problem: Problem, skip: int, price: Array) -> bool:
    """Recompute the shares of shared pins at these prices; returns whether any changed.

    `prices`, `losses` and `bounds` count these shares. The first ones assume no prices.
    """

def search(
    problem: Problem,
    skip: int,
    price: Array,
    first_gap: float,
    beam: int,
    seconds: float,
    most_states: int,
    choice: Array,
) -> tuple[int, int, int, int]:
    """The best choice: (status, value, bound, states), rows by bidder into i4 `choice`, -1 for none.

    Status 0: optimal; 1: out of time, or a choice of a beam search; 2: more than `most_states` states. With `beam` > 0
    each stage keeps only that many states: a fast choice without a proof.
    """

def fit(
    racks: int,
    free: Array,  # i4 [machines], pinned GPUs left out
    rack: Array,  # i4 [machines]
    slot_start: Array,  # i4 [machines + 1]
    slot_free: Array,  # i4 [slots]
    kinds: Array,  # i4 [kinds, 3]: level, gpus, unit
    count: Array,  # i4 [kinds]
    most_steps: int,
    parts: Array,  # i4 [2 * free GPUs, 4]: kind, machine, -2 in its rack / -1 on it / 0 in a slot of it, gpus
) -> tuple[int, int]:
    """Whether the gangs fit: (0 no, 1 yes, 2 not decided within `most_steps`; the number of parts)."""

def lift(
    free: Array,
    slot_start: Array,
    slot_free: Array,
    pinned: Array,
    pin_weight: Array,
    size: Array,
    in_slot: Array,
    weight: Array,
    gang_size: Array,
    gang_weight: Array,
    single_weight: int,  # all as in `weigh`
    taken: Array,  # i4 [machines, more than the most free]
) -> int:
    """The most weight that these machines hold; the lifted weights of pinned GPUs into `taken` (lifting.h)."""

def losses(problem: Problem, skip: int, price: Array, loss: Array) -> int:
    """Write what each row loses against the upper bound at these prices into i8 `loss` [rows]; returns the bound."""

def bounds(problem: Problem, price: Array, bound: Array) -> None:
    """The bound at these prices without each bidder, into i8 `bound` [bidders]."""

def pack_chosen(
    racks: int,
    free: Array,
    rack: Array,
    slot_start: Array,
    slot_free: Array,  # as in `fit`, but with pinned GPUs
    chosen: Array,  # i4 [chosen rows]
    shapes: Array,  # i4 [kinds, 3]: level, gpus, unit
    order: Array,  # i4 [kinds]: kinds in the order of placing
    counts: Array,  # i4 [rows, kinds]
    pin_start: Array,  # i4 [rows + 1]
    pin_machine: Array,  # i4 [pins]
    pin_gpus: Array,  # i4 [pins]
    sparing: bool,
    parts: Array,  # i4 [free GPUs, 4]: gang, machine, slot or -1, gpus
    owner: Array,  # i4 [free GPUs]: the row of each gang
) -> int:
    """Place the gangs of chosen rows by best fit, kind by kind; returns the number of parts.

    Returns -1 - k if the first gang without a place is of kind k; k is the number of kinds if pins take more than is
    free. With `sparing`, rack gangs take the GPUs that spoil the fewest whole parts for others.
    """

def read_bids(
    bids: tuple[Bid, ...],
    machines: Mapping[str, tuple[int, int]],  # a dict: position and free GPUs by machine
    total_gpus: int,
    learn: Callable[[GangRequest], tuple[int, int, int]],
) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes]:
    """The rows of bids that may win, as flat numbers: worth more than winning nothing, and not too large alone.

    `learn` is called once for each gang object: it returns the number of its kind, its count and its total GPUs.
    Returns `row_start`, `empty`, `value`, `index`, `gpus`, `cell` and `pin` as `order_rows` takes them.
    """

def order_rows(
    finest: int,
    bits: int,
    row_start: Flat,  # i4 [bidders + 1]
    empty: Flat,  # f8 [bidders]
    app: Flat,  # i8 [bidders]: a digest of each app id
    value: Flat,  # f8 [rows]
    index: Flat,  # i4 [rows]: place in its bid
    gpus: Flat,  # i4 [rows]
    cell: Flat,  # i4 [cells, 3]: row, kind as it was met, count
    place: Flat,  # i4 [kinds met]: the canonical place of each
    pin: Flat,  # i4 [pins, 3]: row, machine, GPUs, ascending
    row_start_out: Array,  # what is written, as `rows.Rows` has it; there is room for all rows
    index_out: Array,
    gain_out: Array,
    gpus_out: Array,
    tie_out: Array,
    counts_out: Array,
    pin_start_out: Array,
    pin_machine_out: Array,
    pin_gpus_out: Array,
) -> tuple[float, int, int, bool]:
    """Write the rows that gain something, those of each bidder by gain, GPUs and digest, then as in the bid.

    Gains are multiples of 2**-finest, or coarser if the sum of all bidders' best gains would need more than `bits`.
    Returns (the gain of 1.0, rows and pins written, whether rows differ only in which pinned GPUs belong together).
    """

def best_on_one_machine(
    row_start: Array,  # i4 [bidders + 1]
    gain: Array,  # i8 [rows], above 0, best first within a bidder
    gpus: Array,  # i4 [rows]
    tie: Array,  # i8 [rows]
    free_gpus: int,
    skip: int,
) -> dict[int, int]:
    """The best choice among rows that ask for no more GPUs together: row by bidder, without the bidder at `skip`.

    -1 leaves no bidder out. Of equal choices the one of fewer GPUs wins, then the one whose digests sum up to less.
    """

def prune(
    row_start: Array, needs: int, need: Array, pin_start: Array, pin_machine: Array, pin_gpus: Array, keep: Array
) -> None:
    """Mark undominated rows in u1 `keep`. Each is compared with the thousand rows last kept before it."""

def cover(
    machine_start: Array,  # i4 [groups + 1]
    free: Array,  # i4 [machines], those of a group one after the other
    slot_start: Array,  # i4 [machines + 1]
    slot_free: Array,  # i4 [slots]
    pinned: Array,  # i4 [machines]: GPUs of a pin there, 0 for none
    pin: Array,  # i4 [machines]: the number of that pin, -1 for none
    times: Array,  # i4 [groups]: how many groups are alike
    size: Array,  # i4 [items]
    in_slot: Array,  # i4 [items]
    gang_size: Array,  # i4 [gangs]
    demand: Array,  # i4 [items + gangs + 1 + pins]: how many of each are asked for, and single GPUs before the pins
) -> Cover:
    """The covering programme of a choice: its demands, and groups of machines. The arrays are copied."""

def cover_price(cover: Cover, dual: Array) -> int:
    """Add patterns until it is known whether fractions of them cover what is left; duals into f8 [demands].

    Returns 0 if they do, 1 if the demands weigh more than the groups hold by these duals, 2 if that is not decided.
    """

def cover_fullest(cover: Cover) -> tuple[int, int]:
    """The pattern with the largest value in the last solution, and how often to fix it; 0 for none."""

def cover_whole(cover: Cover) -> list[tuple[int, int]]:
    """Patterns of the last solution with their values, rounded down; only those of 1 or more."""

def cover_fix(cover: Cover, pattern: int, times: int) -> None:
    """Fix a pattern `times` times (negative: take it back)."""

def cover_forbid(cover: Cover, pattern: int) -> None:
    """Exclude a pattern from now on."""

def cover_pattern(cover: Cover, pattern: int, numbers: Array) -> int:
    """Write what a pattern covers of each demand, for -1 what is left, into i4 [demands]; returns its group."""

def weigh(
    free: Array,  # i4 [machines]
    slot_start: Array,  # i4 [machines + 1]
    slot_free: Array,  # i4 [slots]
    pinned: Array,  # i4 [machines]: GPUs of a pin there, 0 for none
    pin_weight: Array,  # i8 [machines]
    size: Array,  # i4 [items]
    in_slot: Array,  # i4 [items]
    weight: Array,  # i8 [items]
    gang_size: Array,  # i4 [gangs]
    gang_weight: Array,  # i8 [gangs]
    single_weight: int,
    count: Array,  # i4 [items + gangs + 1 + machines]
) -> int:
    """The most weight that these machines hold; the items, gangs, single GPUs and pins that reach it into `count`."""
