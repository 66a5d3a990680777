"""Winner determination `exact`: a knapsack over few resources, solved by prices and a pruned dynamic programme.

How it proves what it finds (auction.md, section 2): the knapsack only knows limits that every feasible choice keeps,
so no feasible choice is worth more than its optimum; when the optimum's gangs then find their places on the machines,
it is the market's optimum, and the places are the certificate. When they find none, a limit that forbids the choice is
learnt from a linear programme over what machines can hold (`separation`), and the knapsack is solved again. Where no
such limit exists an integer programme decides on the choice (`deciding`), or HiGHS among the few rows that the proven
gap leaves (`remainder`). Markets whose rows all name machines go another way (`tables`). Where everybody may have its
best row there is nothing to solve (`uncontended`), and where only the number of GPUs counts little (`one_machine`).

Ties. Equal means equal in whole units of 2**-40 of the log objective, a sum of rounded logs: equal products of other
values (0.25 * 1 and 0.5 * 0.5) may miss each other by a unit. Of equal choices the one that asks for fewer GPUs wins,
then the one whose rows have the smaller sum of digests (36 bits of app id, gangs and pinned GPUs). That order is a
property of the market, not of the search: the order of bidders, rows and machines does not matter (auction.md tells
where HiGHS or the clock decide instead).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rm_plugin.solvers.candidates import check_market
from rm_plugin.solvers.exact.compiled import CompiledMarket, OutOfTimeError
from rm_plugin.solvers.exact.found import as_solution
from rm_plugin.solvers.exact.hasty import HastyMarket
from rm_plugin.solvers.exact.one_machine import OneMachineMarket, one_machine
from rm_plugin.solvers.exact.places import Places
from rm_plugin.solvers.exact.problem import solve_problem
from rm_plugin.solvers.exact.rows import MarketArrays, read_market
from rm_plugin.solvers.exact.tables import TableMarket, has_tables_only
from rm_plugin.solvers.exact.uncontended import UncontendedMarket, uncontended
from rm_plugin.solvers.port import Solution
from themis.bids import Market

Ready = CompiledMarket | TableMarket | UncontendedMarket | OneMachineMarket | HastyMarket


class ExactSolver:
    """Exact winner determination by our own method (themis.md, section 3; auction.md, section 2)."""

    name = "exact"

    def __init__(self) -> None:
        self._market: Market | None = None
        self._ready: Ready | None = None
        self._unused_s = 0.0

    def solve(self, market: Market, time_limit_s: float) -> Solution:
        """Solve one market.

        Args:
            market: Free machines and bids.
            time_limit_s: Seconds for the whole solve. Past it the best choice found is returned with its gap; where not
                even the market was made ready by then, a choice by one price (`hasty`).

        Raises:
            InputError: Two bids of one app, or a finite market with an empty bundle worth 0.
        """
        deadline_s = time.monotonic() + time_limit_s
        found = _solution(self._made_ready(market, deadline_s), None, deadline_s)
        self._unused_s = max(0.0, deadline_s - time.monotonic())
        return found

    def without(self, market: Market, app_ids: Sequence[str], time_limit_s: float) -> Mapping[str, Solution]:
        """The market without each of these bidders, from the prices and limits that the first problem found.

        Problems that no time is left for take the first one's choice less the bidder's row, with its gap. What the
        first left of its time is theirs, too.
        """
        unused_s, self._unused_s = self._unused_s if self._market is market else 0.0, 0.0
        deadline_s = time.monotonic() + time_limit_s + unused_s
        ready = self._ready if self._market is market else None
        ready = self._made_ready(market, deadline_s) if ready is None else ready
        solutions = {}
        for number, app_id in enumerate(app_ids):
            # Whoever needs less than its part leaves the rest to those that come later.
            part_s = (deadline_s - time.monotonic()) / (len(app_ids) - number)
            solutions[app_id] = _solution(ready, app_id, time.monotonic() + part_s, deadline_s)
        return solutions

    def _made_ready(self, market: Market, deadline_s: float) -> Ready:
        """A market made ready for its problems, kept while it is the same object, unless that was done in haste."""
        if self._ready is None or self._market is not market or isinstance(self._ready, HastyMarket):
            check_market(market)
            self._ready = _ready(market, read_market(market), deadline_s)
            self._market = market
        return self._ready


def _ready(market: Market, arrays: MarketArrays, deadline_s: float) -> Ready:
    """What of reading is left of the time goes to limits, or to a relaxation where all rows name machines."""
    if time.monotonic() >= deadline_s:
        return HastyMarket(arrays)
    places = Places(arrays)
    simple = uncontended(arrays, places) or one_machine(arrays, places)
    if simple is not None:
        return simple
    if has_tables_only(arrays):
        return TableMarket(market, arrays)
    try:
        return CompiledMarket(market, arrays, deadline_s, places)
    except OutOfTimeError:
        return HastyMarket(arrays)


def _solution(ready: Ready, without: str | None, deadline_s: float, last_s: float | None = None) -> Solution:
    """The best choice without a bidder (None: with all); gangs find their places where all bidders are there."""
    if isinstance(ready, HastyMarket | UncontendedMarket | OneMachineMarket):
        return ready.solution(without)
    if isinstance(ready, TableMarket):
        return ready.solution(without, deadline_s, last_s)
    skip = -1 if without is None else ready.position(without)
    return as_solution(ready.arrays, solve_problem(ready, skip, deadline_s, last_s), placed=without is None)
