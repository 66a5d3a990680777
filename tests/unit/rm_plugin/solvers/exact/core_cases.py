"""Small random clusters, gangs and knapsacks, and what the compiled core should say of them, in plain Python."""

import itertools

import numpy as np
from small_markets import bid, machine, market

from rm_plugin.solvers.brute_force import place_all
from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.market_arrays import Rows
from rm_plugin.solvers.exact.resources import Resource
from rm_plugin.solvers.kinds import count_kinds, has_one_rack
from rm_plugin.solvers.port import Win
from rm_plugin.solvers.realise import pinned_gangs
from themis.bids import BidRow, GangRequest
from themis.cluster import Allocation, Level
from themis_lab.audit.feasibility import infeasible

LEVELS = tuple(Level)


def draw_machines(rng, most=4, racks=2, slots=2, slot_gpus=4):
    return tuple(
        machine(
            f"m{index}",
            *(rng.randint(0, slot_gpus) for _ in range(rng.randint(1, slots))),
            rack=f"r{rng.randrange(racks)}",
        )
        for index in range(rng.randint(1, most))
    )


def draw_gangs(rng, most=3, sizes=(1, 2, 3, 4), levels=LEVELS, units=(1, 2, 3)):
    gangs = []
    for _ in range(rng.randint(1, most)):
        gpus = rng.choice(sizes)
        unit = rng.choice([unit for unit in units if gpus % unit == 0])
        gangs.append(GangRequest(gpus, rng.choice(levels), rng.choice((1, 1, 2)), unit))
    return tuple(gangs)


def draw_pins(rng, machines, most=2):
    chosen = rng.sample(machines, rng.randint(0, min(most, len(machines))))
    return Allocation.of({each.machine_id: rng.randint(1, each.free) for each in chosen if each.free})


def one_row(gangs, pinned):
    return BidRow(value=1.0, gangs=gangs, pinned=pinned)


def fits(machines, *rows):
    """The exact answer, by trying everything."""
    return place_all(machines, {f"a{index}": row for index, row in enumerate(rows)}) is not None


def wrongs_of(machines, rows, placed):
    """What is wrong with gangs placed for rows, by the auditor's rules; pinned GPUs are added."""
    bids = [bid(f"a{index}", 0.0, row) for index, row in enumerate(rows)]
    racks = {each.machine_id: each.rack_id for each in machines}
    wins = {
        f"a{index}": Win(row=0, gangs=(*placed[index], *pinned_gangs(row.pinned_parts, racks)))
        for index, row in enumerate(rows)
    }
    return infeasible(market(machines, *bids), wins)


class Cluster:
    """A cluster in the core's arrays, less pinned GPUs."""

    def __init__(self, machines, pinned=None):
        self.machines = machines
        taken = (pinned or Allocation()).by_machine()
        names = sorted({each.rack_id for each in machines})
        self.racks = len(names)
        self.free = np.array([each.free - taken.get(each.machine_id, 0) for each in machines], dtype=np.int32)
        self.rack = np.array([names.index(each.rack_id) for each in machines], dtype=np.int32)
        self.slot_start = np.cumsum([0, *(len(each.free_slots) for each in machines)]).astype(np.int32)
        self.slot_free = np.array([free for each in machines for free in each.free_slots], dtype=np.int32)

    def pack(self, gangs, *, sparing=False):
        """The gangs of one row without pins, each of a kind of its own, in their order."""
        rooms = int(self.free.sum()) + 1
        parts, owner = np.empty((rooms, 4), dtype=np.int32), np.empty(rooms, dtype=np.int32)
        arrays = (self.racks, self.free, self.rack, self.slot_start, self.slot_free)
        shapes, order = np.array(gangs, dtype=np.int32).reshape(-1, 3), np.arange(len(gangs), dtype=np.int32)
        pins = (np.zeros(2, dtype=np.int32), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32))
        row, counts = np.zeros(1, dtype=np.int32), np.ones((1, len(gangs)), dtype=np.int32)
        written = _core.pack_chosen(*arrays, row, shapes, order, counts, *pins, sparing, parts, owner)
        return written, parts[: max(0, written)].tolist()

    def fit(self, kinds, most_steps=100_000):
        parts = np.empty((2 * int(self.free.sum()) + 2, 4), dtype=np.int32)
        shapes = np.array([(kind.level, kind.gpus, kind.unit) for kind in kinds], dtype=np.int32).reshape(-1, 3)
        counts = np.array(list(kinds.values()), dtype=np.int32)
        arrays = (self.racks, self.free, self.rack, self.slot_start, self.slot_free)
        answer, written = _core.fit(*arrays, shapes, counts, most_steps, parts)
        return answer, parts[:written].tolist()


def kinds_of(gangs, machines):
    return dict(sorted(count_kinds(gangs, one_rack=has_one_rack(machines)).items()))


# ---- knapsacks ----------------------------------------------------------------------------------------------------


def draw_knapsack(rng, *, bidders=3, most_rows=4, kinds=2, machines=2, gains=6):
    """Rows with few different gains, so that many choices tie, and random limits with tables that do not add up."""
    free = np.array([rng.randint(1, 5) for _ in range(machines)], dtype=np.int32)
    rows_of = [rng.randint(0, most_rows) for _ in range(bidders)]
    total = sum(rows_of)
    pins = [[(m, rng.randint(1, int(free[m]))) for m in range(machines) if rng.random() < 0.4] for _ in range(total)]
    rows = Rows(
        row_start=np.cumsum([0, *rows_of]).astype(np.int32),
        index=np.array([place for many in rows_of for place in range(many)], dtype=np.int32),
        gain=np.array([rng.randint(1, gains) << 36 for _ in range(total)], dtype=np.int64),
        gpus=np.array([rng.randint(1, 4) for _ in range(total)], dtype=np.int32),
        tie=np.array([rng.randrange(1 << 36) for _ in range(total)], dtype=np.int64),
        counts=np.array([[rng.randint(0, 2) for _ in range(kinds)] for _ in range(total)], np.int32).reshape(-1, kinds),
        pin_start=np.cumsum([0, *map(len, pins)]).astype(np.int32),
        pin_machine=np.array([m for each in pins for m, _ in each], dtype=np.int32),
        pin_gpus=np.array([gpus for each in pins for _, gpus in each], dtype=np.int32),
    )
    limits = [_draw_limit(rng, number, kinds, free) for number in range(rng.randint(1, 3))]
    return best_first(rows), limits, free


def best_first(rows):
    """The same rows, those of each bidder by gain, GPUs and digest; of equal ones the first of the bid first."""
    return rows._taken(np.lexsort((rows.index, rows.tie, rows.gpus, -rows.gain, rows.bidder)), rows.row_start)


def _draw_limit(rng, number, kinds, free):
    width = int(free.max()) + 1
    taken = np.zeros((len(free), width), dtype=np.int32)
    for m in range(len(free)):
        steps = [0, *(rng.randint(0, 2) for _ in range(int(free[m])))]
        taken[m, : len(steps)] = np.cumsum(steps)
        taken[m, len(steps) :] = taken[m, len(steps) - 1]
    by_kind = np.array([rng.randint(0, 2) for _ in range(kinds)], dtype=np.int32)
    return Resource(name=("drawn", number), capacity=rng.randint(1, 6), by_kind=by_kind, taken=taken)


def pinned_by(rows, choice, machines):
    pinned = np.zeros(machines, dtype=np.int64)
    for row in choice:
        pins = slice(rows.pin_start[row], rows.pin_start[row + 1])
        pinned[rows.pin_machine[pins]] += rows.pin_gpus[pins]
    return pinned


def keeps(limit, rows, choice, pinned):
    """Whether rows keep a limit; pinned GPUs by machine are counted together."""
    used = sum(int(rows.counts[row] @ limit.by_kind) for row in choice)
    return used + sum(int(limit.taken[m, gpus]) for m, gpus in enumerate(pinned.tolist())) <= limit.capacity


def all_choices(rows, skip=-1):
    """Every choice of at most one row a bidder, as tuples with -1 for none."""
    starts = rows.row_start.tolist()
    options = [
        [-1] if bidder == skip else [-1, *range(first, end)]
        for bidder, (first, end) in enumerate(itertools.pairwise(starts))
    ]
    return itertools.product(*options)


def feasible_choices(rows, limits, free, skip=-1):
    """Those that keep all limits and pin no more than is free."""
    for choice in all_choices(rows, skip):
        chosen = [row for row in choice if row >= 0]
        pinned = pinned_by(rows, chosen, len(free))
        if (pinned <= free).all() and all(keeps(limit, rows, chosen, pinned) for limit in limits):
            yield choice


def rank(rows, choice):
    """Smaller is better: gain, then fewer GPUs, then the smaller sum of digests."""
    chosen = [row for row in choice if row >= 0]
    return (
        -sum(int(rows.gain[row]) for row in chosen),
        sum(int(rows.gpus[row]) for row in chosen),
        sum(int(rows.tie[row]) for row in chosen),
    )


def bound_of(problem, skip, price):
    """The upper bound that prices give; `losses` writes what rows lose as well."""
    return _core.losses(problem, skip, price, np.empty(10_000, dtype=np.int64))
