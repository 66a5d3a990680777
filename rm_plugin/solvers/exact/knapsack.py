"""The knapsack of a market: what each row uses of each resource, in the arrays of the compiled core.

If only one bidder pins on a machine, its pins are part of what its rows use, exactly. If several bidders pin there,
what a pin uses may depend on the others. Such a machine has a table of what p pinned GPUs use together. The core shares
the table out among the bidders; its search adds what the shares leave out (docs/design/auction.md, "Shared pins").

Example: a machine has 8 free GPUs, that is one part of 8. Two bidders may each renew 4 GPUs there. Either one takes the
part of 8 from all others, and both together take no more than that. Added up, their uses would be 2 parts. The table
says 1 part for 4 pinned GPUs, and 1 part for 8.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.market_arrays import Ints, Longs, Rows
from rm_plugin.solvers.exact.resources import Resource
from themis.values import Value

Bools = NDArray[np.bool_]


class Uses(Value, frozen=True, kw_only=True):
    """What rows use of the resources.

    Attributes:
        use: Use by row [rows, resources], without the pins that `by_table` marks.
        by_table: Whether a pin is on a machine with a table [pins].
        machines: Positions of the machines with a table.
        taken: What pinned GPUs use [machines, resources, GPUs].
    """

    use: Ints
    by_table: Bools
    machines: NDArray[np.intp]
    taken: NDArray[np.int32]


def used_by_gangs(rows: Rows, resources: Sequence[Resource]) -> Longs:
    """Use of the resources by the gangs of rows [rows, resources]."""
    by_kind = np.stack([resource.by_kind for resource in resources], axis=1)
    used: Longs = rows.counts.astype(np.int64) @ by_kind.astype(np.int64)
    return used


def uses_of(rows: Rows, resources: Sequence[Resource], free: Ints, by_gangs: Longs) -> Uses:
    """Use of the resources by rows, pins included; `by_gangs` is the part of their gangs."""
    taken = np.stack([resource.taken for resource in resources], axis=1)
    use = by_gangs.copy()
    limited = {int(str(resource.name[1])) for resource in resources if resource.name[0] == "pinned"}
    shared = _needs_table(rows, taken, free, limited)
    by_table = shared[rows.pin_machine]
    alone = ~by_table
    np.add.at(use, rows.pin_row[alone], taken[rows.pin_machine[alone], :, rows.pin_gpus[alone]])
    # A row that uses more than the capacity cannot win. The exact amount could only make the core's sums overflow.
    use = np.minimum(use, [resource.capacity + 1 for resource in resources])
    return Uses(use=use.astype(np.int32), by_table=by_table, machines=np.flatnonzero(shared), taken=taken)


def most_pinned(rows: Rows, machines: int) -> Ints:
    """The most GPUs that all bidders together pin on each machine [machines]."""
    if not len(rows.pin_gpus):
        return np.zeros(machines, dtype=np.int32)
    total: Ints = _most_pinned_by(rows, machines).sum(axis=0, dtype=np.int32)
    return total


def _most_pinned_by(rows: Rows, machines: int) -> Ints:
    """The most GPUs that each bidder pins on each machine [bidders, machines]."""
    most = np.zeros((len(rows.row_start) - 1, machines), dtype=np.int32)
    np.maximum.at(most, (rows.bidder[rows.pin_row], rows.pin_machine), rows.pin_gpus)
    return most


def _needs_table(rows: Rows, taken: NDArray[np.int32], free: Ints, limited: Container[int]) -> Bools:
    """Whether a machine needs a table [machines]: several bidders pin there, and what they use does not add up.

    It also needs one if they may pin more than is free, unless the machine has a resource of its own (`limited`).
    """
    shared = np.zeros(len(free), dtype=np.bool_)
    if not len(rows.pin_gpus):
        return shared
    most = _most_pinned_by(rows, len(free))
    pinning, asked = (most > 0).sum(axis=0), most.sum(axis=0)
    pinned = np.flatnonzero(pinning)
    by_machine = np.argsort(rows.pin_machine, kind="stable")
    steps = np.gcd.reduceat(rows.pin_gpus[by_machine], np.searchsorted(rows.pin_machine[by_machine], pinned))
    several = pinning[pinned] > 1
    for machine, step in zip(pinned[several].tolist(), steps[several].tolist(), strict=True):
        unlimited = asked[machine] > free[machine] and machine not in limited
        shared[machine] = unlimited or not _adds_up(taken[machine, :, : free[machine] + 1], step)
    return shared


def pinned_together(rows: Rows, free: Ints) -> set[tuple[int, int]]:
    """All (machine, GPUs) that may be pinned together: pins of one bidder, or any sum of several bidders' pins."""
    if not len(rows.pin_gpus):
        return set()
    by_machine: dict[int, set[tuple[int, int]]] = {}
    for machine, who, gpus in zip(
        rows.pin_machine.tolist(), rows.bidder[rows.pin_row].tolist(), rows.pin_gpus.tolist(), strict=True
    ):
        by_machine.setdefault(machine, set()).add((who, gpus))
    together = set()
    for machine, pins in by_machine.items():
        if len({who for who, _ in pins}) == 1:
            together |= {(machine, gpus) for _, gpus in pins}
        else:
            step = math.gcd(*(gpus for _, gpus in pins))
            together |= {(machine, gpus) for gpus in range(step, int(free[machine]) + 1, step)}
    return together


def _adds_up(taken: NDArray[np.int32], step: int) -> bool:
    """Whether the use of pinned GPUs is linear in multiples of `step`, for every resource."""
    steps = taken[:, ::step]
    return bool((steps == np.arange(steps.shape[1]) * steps[:, min(1, steps.shape[1] - 1), None]).all())


def undominated(rows: Rows, needs: Ints, by_table: Bools) -> Bools:
    """Whether a row is undominated [rows]: no other of its bidder gains as much, needs no more and pins no more.

    Each row is compared with the thousand kept rows nearest in gain, so time grows only as the number of rows.

    Args:
        rows: Rows, best first.
        needs: Amounts to compare [rows, needs]. They cover all pins except those marked.
        by_table: Whether a pin is compared by machine [pins].
    """
    keep = np.empty(rows.rows, dtype=np.uint8)
    count = np.bincount(rows.pin_row[by_table], minlength=rows.rows)
    _core.prune(
        rows.row_start,
        needs.shape[1],
        np.ascontiguousarray(needs, dtype=np.int32),
        np.concatenate(([0], np.cumsum(count))).astype(np.int32),
        rows.pin_machine[by_table],
        rows.pin_gpus[by_table],
        keep,
    )
    return keep.astype(np.bool_)


def build_problem(
    rows: Rows, resources: Sequence[Resource], free: Ints, unit: float, uses: Uses | None = None
) -> _core.Problem:
    """Build the core's problem. `uses` is computed if it is not given."""
    if uses is None:
        uses = uses_of(rows, resources, free, used_by_gangs(rows, resources))
    pin_row, pin_machine = rows.pin_row[uses.by_table], rows.pin_machine[uses.by_table]
    pin_gpus = rows.pin_gpus[uses.by_table]
    lengths = uses.taken.shape[1] * (free[uses.machines] + 1)
    place = np.zeros(len(free), dtype=np.int64)
    place[uses.machines] = np.arange(len(uses.machines))
    count = np.bincount(pin_row, minlength=rows.rows)
    tables = [uses.taken[machine, :, : free[machine] + 1].ravel() for machine in uses.machines]
    return _core.problem(
        unit,
        rows.row_start,
        rows.gain,
        rows.gpus,
        rows.tie,
        uses.use,
        np.array([resource.capacity for resource in resources], dtype=np.int32),
        np.concatenate(([0], np.cumsum(count))).astype(np.int32),
        place[pin_machine].astype(np.int32),
        pin_gpus,
        free[uses.machines].astype(np.int32),
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int32),
        np.concatenate([np.zeros(0, dtype=np.int32), *tables]).astype(np.int32),
    )
