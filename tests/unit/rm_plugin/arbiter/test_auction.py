"""The auction and its payments on markets solved by hand, and with solvers that run out of time."""

import math
from types import SimpleNamespace

import pytest

from rm_plugin.arbiter.auction import AuctionOutcome, Problem, run_auction
from rm_plugin.arbiter.payments import kept_share
from rm_plugin.solvers import port
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.port import Solution, SolveStatus, Win, each_alone
from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level
from themis.errors import InvariantError


def market(gpus, bids, empty_bundle=EmptyBundle.FINITE):
    machine = FreeMachine(machine_id="m0", rack_id="r0", free_slots=(gpus,))
    return Market(
        machines=(machine,),
        bids=tuple(
            Bid(
                app_id=app_id,
                round_id=0,
                empty_value=empty,
                rows=tuple(
                    BidRow(value=value, gangs=(GangRequest(count, Level.CLUSTER),)) for count, value in rows.items()
                ),
            )
            for app_id, (empty, rows) in bids.items()
        ),
        empty_bundle=empty_bundle,
    )


def test_a_winner_keeps_the_share_that_its_win_costs_the_others():
    """4 GPUs. Together each gets 2; alone b would have 4 (0.9 instead of 0.6) and a 4 (0.8 instead of 0.4)."""
    both = market(4, {"a": (0.2, {2: 0.4, 4: 0.8}), "b": (0.2, {2: 0.6, 4: 0.9})})
    outcome = run_auction(both, HighsSolver(), 10.0)
    assert {app_id: win.row for app_id, win in outcome.wins.items()} == {"a": 0, "b": 0}
    assert outcome.shares == pytest.approx({"a": 0.6 / 0.9, "b": 0.4 / 0.8})
    assert [problem.without for problem in outcome.problems] == [None, "a", "b"]
    assert (outcome.optimal, outcome.worst_gap, outcome.solver) == (True, 0.0, "highs")


def test_a_loser_keeps_all_and_needs_no_solve():
    outcome = run_auction(market(1, {"a": (0.2, {1: 0.8}), "b": (0.2, {1: 0.4})}), HighsSolver(), 10.0)
    assert set(outcome.wins) == {"a"}
    assert outcome.shares == pytest.approx({"a": 0.5, "b": 1.0})
    assert [problem.without for problem in outcome.problems] == [None, "a"]


def test_bidders_with_one_bid_share_one_solve():
    alike = (0.2, {1: 0.8})
    outcome = run_auction(market(2, dict.fromkeys("abc", alike)), HighsSolver(), 10.0)
    assert set(outcome.wins) == {"a", "b"}
    assert {problem.without: problem.solved_for for problem in outcome.problems} == {None: None, "a": "a", "b": "a"}
    assert outcome.shares == pytest.approx({"a": 0.25, "b": 0.25, "c": 1.0})


def test_bidders_with_equal_values_for_other_rows_do_not_share_a_solve():
    """One GPU each on m0 and m1: a wants m0, b and c want m1. Only b affects another bidder: c has 0.5, not 0.9."""
    machines = tuple(FreeMachine(machine_id=name, rack_id="r0", free_slots=(1,)) for name in ("m0", "m1"))
    bids = tuple(
        Bid(
            app_id=app_id,
            round_id=0,
            empty_value=0.5,
            rows=(BidRow(value=value, pinned=Allocation.of({machine_id: 1})),),
        )
        for app_id, machine_id, value in (("a", "m0", 1.0), ("b", "m1", 1.0), ("c", "m1", 0.9))
    )
    outcome = run_auction(Market(machines=machines, bids=bids), HighsSolver(), 10.0)
    assert set(outcome.wins) == {"a", "b"}
    assert {problem.without: problem.solved_for for problem in outcome.problems} == {None: None, "a": "a", "b": "b"}
    assert outcome.shares == pytest.approx({"a": 1.0, "b": 0.5 / 0.9, "c": 1.0})


def test_lexicographic_shares_are_over_the_finite_part():
    """1 GPU beside d's: a displaces b, which then has nothing; d is the finite part, and a costs it half."""
    bids = {"a": (0.0, {1: 0.9}), "b": (0.0, {1: 0.5}), "d": (0.4, {1: 0.8})}
    outcome = run_auction(market(1, bids, EmptyBundle.LEXICOGRAPHIC), HighsSolver(), 10.0)
    assert set(outcome.wins) == {"a"}
    assert outcome.shares["a"] == 1.0  # d has nothing more without a, as b takes the GPU: the finite part is unhurt
    two = run_auction(market(2, bids, EmptyBundle.LEXICOGRAPHIC), HighsSolver(), 10.0)
    assert set(two.wins) == {"a", "b"}
    assert two.shares["a"] == pytest.approx(0.4 / 0.8)


def _solution(rows, status=SolveStatus.OPTIMAL):
    wins = {app_id: Win(row=row, gangs=()) for app_id, row in rows.items()}
    return Solution(status=status, gap=0.0, log_objective=0.0, positive=2, wins=wins)


BOTH = market(4, {"a": (0.2, {2: 0.4}), "b": (0.2, {2: 0.6})})


def test_values_of_zero_do_not_hide_what_a_win_costs_the_finite_part():
    """Without a, b has something and d has 0.8 instead of 0.4: b was not part of the product, so only d counts."""
    bids = {"a": (0.0, {1: 0.9}), "b": (0.0, {1: 0.5}), "d": (0.4, {1: 0.8})}
    three = market(2, bids, EmptyBundle.LEXICOGRAPHIC)
    assert kept_share(three, _solution({"a": 0}), _solution({"b": 0, "d": 0}), "a") == pytest.approx(0.4 / 0.8)


def test_bidders_that_trade_places_at_zero_count_with_their_values():
    """The finite part is as large without a: c's 0.5 in the full market stands against b's 0.6."""
    bids = {"a": (0.0, {1: 0.9}), "b": (0.0, {2: 0.6}), "c": (0.0, {1: 0.5})}
    three = market(2, bids, EmptyBundle.LEXICOGRAPHIC)
    assert kept_share(three, _solution({"a": 0, "c": 0}), _solution({"b": 0}), "a") == pytest.approx(0.5 / 0.6)


def test_an_answer_worse_than_the_full_one_is_cut_where_time_ran_out():
    without = _solution({}, SolveStatus.TIME_LIMIT)
    assert kept_share(BOTH, _solution({"a": 0, "b": 0}), without, "a") == 1.0


def test_an_optimal_answer_below_the_full_optimum_is_a_defect():
    with pytest.raises(InvariantError, match="passes 1"):
        kept_share(BOTH, _solution({"a": 0, "b": 0}), _solution({}), "a")


@pytest.mark.parametrize(("won", "share"), [({"a": 0, "b": 0}, 0.6 / 0.9), ({"a": 0}, 1.0), ({"a": 1}, 1.0)])
@pytest.mark.parametrize("empty_bundle", EmptyBundle)
def test_no_payment_if_a_choice_without_the_winner_is_better(won, share, empty_bundle):
    """Without a, b has 0.9: with a's 0.2 more than 0.4 or 0.8 for a and 0.2 for b, less than 0.4 and 0.6."""
    both = market(4, {"a": (0.2, {2: 0.4, 4: 0.8}), "b": (0.2, {2: 0.6, 4: 0.9})}, empty_bundle)
    full = _worth(both, won)
    without = _worth(both.without("a"), {"b": 1})
    assert kept_share(both, full, without, "a") == pytest.approx(share)


def test_no_payment_if_a_choice_without_the_winner_serves_more_bidders():
    """Nothing is worth 0 to both b and c: without a both have something, beside a none has."""
    given = market(4, {"a": (0.2, {4: 0.8}), "b": (0.0, {2: 0.1}), "c": (0.0, {2: 0.1})}, EmptyBundle.LEXICOGRAPHIC)
    without = _worth(given.without("a"), {"b": 0, "c": 0})
    assert kept_share(given, _worth(given, {"a": 0}), without, "a") == 1.0
    assert without.log_objective < _worth(given, {"a": 0}).log_objective


def _worth(given, rows):
    """Rows by winner as a solver that ran out of time answers them."""
    values = [bid.rows[rows[bid.app_id]].value if bid.app_id in rows else bid.empty_value for bid in given.bids]
    logs = [math.log(value) for value in values if value > 0]
    wins = {app_id: Win(row=row, gangs=()) for app_id, row in rows.items()}
    return Solution(
        status=SolveStatus.TIME_LIMIT, gap=1.0, log_objective=math.fsum(logs), positive=len(logs), wins=wins
    )


class _Impatient:
    """A solver that notes the time it is given, takes it all and never proves anything."""

    name = "impatient"

    def __init__(self):
        self.limits = []
        self.now_s = 0.0

    def solve(self, market, time_limit_s):
        self.limits.append(time_limit_s)
        self.now_s += time_limit_s
        found = HighsSolver().solve(market, 10.0)
        return Solution(
            status=SolveStatus.TIME_LIMIT,
            gap=0.25,
            log_objective=found.log_objective,
            positive=found.positive,
            wins=found.wins,
        )

    def without(self, market, app_ids, time_limit_s):
        return each_alone(self, market, app_ids, time_limit_s)


def test_the_record_says_so_when_time_ran_out_and_all_problems_share_the_time(monkeypatch):
    solver = _Impatient()
    monkeypatch.setattr(port, "time", SimpleNamespace(monotonic=lambda: solver.now_s))
    outcome = run_auction(BOTH, solver, 8.0)
    assert (outcome.optimal, outcome.worst_gap) == (False, 0.25)
    assert solver.limits == [4.0, 2.0, 2.0]
    assert all(0.0 <= share <= 1.0 for share in outcome.shares.values())


class _Unlicensed:
    """A solver whose licence limits the bidders. It records which bidder each market lacks."""

    name = "unlicensed"

    def __init__(self, bidders):
        self._bidders = bidders
        self.without_asked = []

    def solve(self, market, time_limit_s):
        if len(market.bids) <= self._bidders:
            return HighsSolver().solve(market, time_limit_s)
        return Solution(status=SolveStatus.LICENCE, gap=1.5, log_objective=-3.0, positive=2)

    def without(self, market, app_ids, time_limit_s):
        self.without_asked += app_ids
        return dict.fromkeys(app_ids, Solution(status=SolveStatus.LICENCE, gap=1.5, log_objective=-3.0, positive=1))


def test_gap_of_an_auction_is_that_of_its_worst_problem():
    problems = [
        Problem(without=None, solved_for=None, status=SolveStatus.OPTIMAL, gap=gap, log_objective=0.0, positive=1)
        for gap in (0.125, 0.5, 0.25)
    ]
    assert AuctionOutcome(wins={}, shares={}, problems=tuple(problems)).worst_gap == 0.5


def test_a_market_past_the_licence_is_an_auction_without_winners():
    solver = _Unlicensed(bidders=1)
    outcome = run_auction(BOTH, solver, 8.0)
    assert (outcome.status, outcome.optimal, outcome.worst_gap) == (SolveStatus.LICENCE, False, 1.5)
    assert (dict(outcome.wins), outcome.shares) == ({}, {"a": 1.0, "b": 1.0})
    assert ([problem.without for problem in outcome.problems], solver.without_asked) == ([None], [])


def test_winners_beyond_the_licence_keep_all_and_are_recorded():
    outcome = run_auction(BOTH, _Unlicensed(bidders=2), 8.0)
    assert set(outcome.wins) == {"a", "b"}
    assert (outcome.status, outcome.shares) == (SolveStatus.LICENCE, {"a": 1.0, "b": 1.0})


def test_states_and_fallbacks_count_each_solved_problem_once():
    def problem(without, solved_for, states, fallback):
        return Problem(
            without=without, solved_for=solved_for, status=SolveStatus.OPTIMAL, gap=0.0, log_objective=0.0, positive=2,
            states=states, fallback=fallback,
        )  # fmt: skip

    full, first, alike = problem(None, None, 5, False), problem("a", "a", 3, True), problem("b", "a", 3, True)
    outcome = AuctionOutcome(wins={}, shares={}, problems=(full, first, alike))
    assert (outcome.states, outcome.fallbacks) == (8, 1)
    silent = AuctionOutcome(wins={}, shares={}, problems=(full, problem("a", "a", None, False)))
    assert (silent.states, silent.fallbacks) == (None, 0)
