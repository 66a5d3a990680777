"""The partial-allocation auction: proportional-fair wins and every bidder's kept share (NSDI'20, section 3.3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import field
from msgspec.structs import replace

from rm_plugin.arbiter.payments import kept_share
from rm_plugin.solvers.port import Solution, SolveStatus, Win, WinnerDetermination
from themis.bids import Bid, Market
from themis.values import Value

_WORST_FIRST = (SolveStatus.LICENCE, SolveStatus.TIME_LIMIT)


class Problem(Value, frozen=True, kw_only=True):
    """How one winner determination ended. `without` names the bidder left out, None in the full market.

    `solved_for` names the bidder whose problem answered this one: itself, or another with the same bid.
    """

    without: str | None
    solved_for: str | None
    status: SolveStatus
    gap: float
    log_objective: float
    positive: int
    states: int | None = None
    fallback: bool = False


class AuctionOutcome(Value, frozen=True, kw_only=True):
    """What the auction decided, before rounding.

    Attributes:
        wins: Winning row and gangs by app id; bidders that win nothing are absent.
        shares: c_i in [0, 1] of every bidder, 1 for one that wins nothing.
        problems: One entry a problem: the full market first, then one a winner, by app id.
        solver: Name of the solver.
    """

    wins: Mapping[str, Win]
    shares: Mapping[str, float]
    problems: tuple[Problem, ...] = field(default=())
    solver: str = ""

    @property
    def optimal(self) -> bool:
        """Whether every problem was solved to optimality."""
        return self.status is SolveStatus.OPTIMAL

    @property
    def status(self) -> SolveStatus:
        """The worst status of any problem: LICENCE, then TIME_LIMIT, then OPTIMAL."""
        found = {problem.status for problem in self.problems}
        return next((status for status in _WORST_FIRST if status in found), SolveStatus.OPTIMAL)

    @property
    def log_objective(self) -> float:
        """Log of the product of values in the full market."""
        return self.problems[0].log_objective

    @property
    def states(self) -> int | None:
        """States that all searches visited, each solved problem counted once. None if the solver reports none."""
        states = [problem.states for problem in self._solved()]
        return None if None in states else sum(each for each in states if each is not None)

    @property
    def fallbacks(self) -> int:
        """How many of the solved problems a fallback solver decided."""
        return sum(problem.fallback for problem in self._solved())

    def _solved(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.without == problem.solved_for]

    @property
    def worst_gap(self) -> float:
        """The largest gap of any problem."""
        return max(problem.gap for problem in self.problems)


def run_auction(market: Market, solver: WinnerDetermination, time_limit_s: float) -> AuctionOutcome:
    """Determine the winners, then what each of them keeps.

    Bidders that won nothing need no solve, and bidders with equal bids share one. The full market gets half of the
    time, the other problems share the rest in equal parts. The solver may also spend on them what the full market left.
    If the full market exceeds the solver's licence, no app wins and the status is LICENCE.

    Args:
        market: Free machines and bids.
        solver: Any adapter of the winner-determination port.
        time_limit_s: Seconds for all problems together.
    """
    full = solver.solve(market, time_limit_s / 2)
    alike = first_alike(market.bids, full.wins)
    solved = solver.without(market, sorted(set(alike.values())), time_limit_s / 2)
    shares = dict.fromkeys(sorted(bid.app_id for bid in market.bids), 1.0)
    problems = [_problem(full, without=None, solved_for=None)]
    for app_id, representative in sorted(alike.items()):
        without = _renamed(solved[representative], app_id, representative)
        shares[app_id] = kept_share(market, full, without, app_id)
        problems.append(_problem(without, without=app_id, solved_for=representative))
    return AuctionOutcome(
        wins=dict(sorted(full.wins.items())), shares=shares, problems=tuple(problems), solver=solver.name
    )


def first_alike(bids: Iterable[Bid], wins: Mapping[str, Win]) -> dict[str, str]:
    """By winner: the first winner, by app id, with an equal bid. Its problem represents all of them."""
    # Compare values first: hashing all gangs of all rows takes longer than many an auction.
    first: dict[tuple[float, ...], list[Bid]] = {}
    alike = {}
    for bid in sorted((bid for bid in bids if bid.app_id in wins), key=lambda bid: bid.app_id):
        rivals = first.setdefault((bid.empty_value, *(row.value for row in bid.rows)), [])
        same = next((rival.app_id for rival in rivals if rival.rows == bid.rows), bid.app_id)
        if same == bid.app_id:
            rivals.append(bid)
        alike[bid.app_id] = same
    return alike


def _renamed(solution: Solution, app_id: str, representative: str) -> Solution:
    """The market without `representative`, read as the one without `app_id`: the two swap their parts."""
    if app_id == representative:
        return solution
    wins = {representative if winner == app_id else winner: win for winner, win in solution.wins.items()}
    return replace(solution, wins=wins)


def _problem(solution: Solution, *, without: str | None, solved_for: str | None) -> Problem:
    return Problem(
        without=without,
        solved_for=solved_for,
        status=solution.status,
        gap=solution.gap,
        log_objective=solution.log_objective,
        positive=solution.positive,
        states=solution.states,
        fallback=solution.fallback,
    )
