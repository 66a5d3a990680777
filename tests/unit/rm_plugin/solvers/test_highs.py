"""HiGHS and the solver registry on markets worked out by hand."""

import math

import pytest

from rm_plugin.solvers.port import SolveStatus
from rm_plugin.solvers.registry import SOLVERS, solver
from themis.bids import Bid, BidRow, FreeMachine, Gang, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level
from themis.errors import InputError, UnknownNameError


def machine(machine_id, *slots, rack="r0"):
    return FreeMachine(machine_id=machine_id, rack_id=rack, free_slots=slots)


def bid(app_id, empty, *rows):
    return Bid(app_id=app_id, round_id=0, empty_value=empty, rows=tuple(rows))


def row(value, *gangs, **pinned):
    return BidRow(value=value, gangs=gangs, pinned=Allocation.of(pinned))


def gang(gpus, within, count=1, unit=1):
    return Gang(gpus, within, count, unit)


@pytest.fixture(params=sorted(SOLVERS))
def any_solver(request):
    return solver(request.param)


def solve(any_solver, machines, *bids, lexicographic=False):
    empty = EmptyBundle.LEXICOGRAPHIC if lexicographic else EmptyBundle.FINITE
    return any_solver.solve(Market(machines=tuple(machines), bids=bids, empty_bundle=empty), 10.0)


def rows_won(solution):
    return {app_id: win.row for app_id, win in solution.wins.items()}


def test_product_of_values_is_maximised(any_solver):
    machines = [machine("m0", 4)]
    one, all_four = gang(2, Level.MACHINE), gang(4, Level.MACHINE)
    solution = solve(
        any_solver,
        machines,
        bid("a", 0.2, row(0.4, one), row(0.9, all_four)),
        bid("b", 0.2, row(0.5, one), row(0.8, all_four)),
    )
    assert rows_won(solution) == {"a": 0, "b": 0}
    assert solution.log_objective == pytest.approx(math.log(0.4 * 0.5))
    assert (solution.status, solution.gap, solution.positive) == (SolveStatus.OPTIMAL, 0.0, 2)


def test_rows_worth_no_more_than_nothing_are_never_won(any_solver):
    worse = row(0.3, gang(1, Level.CLUSTER))
    same = row(0.4, gang(1, Level.CLUSTER))
    solution = solve(any_solver, [machine("m0", 2)], bid("a", 0.4, worse, same))
    assert solution.wins == {}
    assert solution.log_objective == pytest.approx(math.log(0.4))


def test_a_gang_of_one_machine_does_not_fit_scattered_gpus(any_solver):
    machines = [machine(f"m{index}", 1) for index in range(4)]
    near, far = row(0.9, gang(4, Level.MACHINE)), row(0.5, gang(4, Level.CLUSTER))
    assert rows_won(solve(any_solver, machines, bid("a", 0.1, near, far))) == {"a": 1}


def test_a_slot_gang_needs_one_slot(any_solver):
    in_slot, on_machine = row(0.9, gang(3, Level.SLOT)), row(0.5, gang(3, Level.MACHINE))
    solution = solve(any_solver, [machine("m0", 2, 2)], bid("a", 0.1, in_slot, on_machine))
    assert rows_won(solution) == {"a": 1}
    solution = solve(any_solver, [machine("m0", 2, 3)], bid("a", 0.1, in_slot, on_machine))
    assert rows_won(solution) == {"a": 0}
    assert (solution.wins["a"].gangs[0].level, solution.wins["a"].gangs[0].slot) == (Level.SLOT, 1)


def test_a_rack_gang_needs_one_rack(any_solver):
    machines = [machine("m0", 2, rack="r0"), machine("m1", 2, rack="r1"), machine("m2", 1, rack="r1")]
    in_rack = bid("a", 0.1, row(0.9, gang(4, Level.RACK)), row(0.5, gang(4, Level.CLUSTER)))
    assert rows_won(solve(any_solver, machines, in_rack)) == {"a": 1}
    three = bid("a", 0.1, row(0.9, gang(3, Level.RACK)))
    assert solve(any_solver, machines, three).wins["a"].gangs[0].gpus.by_machine() == {"m1": 2, "m2": 1}


def test_units_lie_whole_on_machines(any_solver):
    machines = [machine("m0", 3), machine("m1", 3)]
    pairs = bid("a", 0.1, row(0.9, gang(6, Level.CLUSTER, unit=2)), row(0.5, gang(4, Level.CLUSTER, unit=2)))
    solution = solve(any_solver, machines, pairs)
    assert rows_won(solution) == {"a": 1}
    assert solution.wins["a"].gangs[0].gpus.by_machine() == {"m0": 2, "m1": 2}


def test_pinned_gpus_come_off_their_machine_and_stand_last(any_solver):
    machines = [machine("m0", 2), machine("m1", 2)]
    renews = bid("a", 0.1, row(0.9, gang(2, Level.MACHINE), m0=2))
    solution = solve(any_solver, machines, renews, bid("b", 0.1, row(0.2, gang(1, Level.CLUSTER))))
    assert rows_won(solution) == {"a": 0}
    placed, pinned = solution.wins["a"].gangs
    assert (placed.gpus.by_machine(), placed.pinned) == ({"m1": 2}, False)
    assert (pinned.gpus.by_machine(), pinned.pinned, pinned.level) == ({"m0": 2}, True, Level.MACHINE)


def test_pinned_gpus_of_a_machine_that_is_not_free_cannot_be_won(any_solver):
    assert solve(any_solver, [machine("m0", 2)], bid("a", 0.1, row(0.9, m7=1))).wins == {}


def test_lexicographic_serves_the_most_bidders_first(any_solver):
    single = row(0.01, gang(1, Level.CLUSTER))
    greedy = row(100.0, gang(2, Level.CLUSTER))
    bids = [bid("a", 0.0, greedy), bid("b", 0.0, single), bid("c", 0.0, single), bid("d", 0.5)]
    solution = solve(any_solver, [machine("m0", 2)], *bids, lexicographic=True)
    assert rows_won(solution) == {"b": 0, "c": 0}
    assert solution.positive == 3
    assert solution.log_objective == pytest.approx(math.log(0.01 * 0.01 * 0.5))


def test_an_empty_bundle_of_no_worth_is_refused_in_a_finite_market(any_solver):
    with pytest.raises(InputError, match="more than 0"):
        solve(any_solver, [machine("m0", 2)], bid("a", 0.0, row(0.5, gang(1, Level.CLUSTER))))


def test_two_bids_of_one_app_are_refused():
    twin = bid("a", 0.1, row(0.5, gang(1, Level.CLUSTER)))
    with pytest.raises(InputError, match="two bids of one app"):
        solve(solver("highs"), [machine("m0", 2)], twin, twin)


@pytest.mark.parametrize("bids", [(), (bid("a", 0.5),)], ids=["no bidder", "no row"])
def test_markets_with_nothing_to_choose_have_no_wins(any_solver, bids):
    solution = solve(any_solver, [machine("m0", 2)], *bids)
    assert solution.wins == {}
    assert solution.status is SolveStatus.OPTIMAL
    assert solution.log_objective == pytest.approx(sum(math.log(each.empty_value) for each in bids))


def test_no_free_machine_means_no_win(any_solver):
    assert solve(any_solver, [], bid("a", 0.1, row(0.5, gang(1, Level.CLUSTER)))).wins == {}


def test_values_a_hair_apart_are_told_apart():
    """HiGHS's default tolerance of 1e-6 would not see this."""
    for factor in (1 + 3e-8, 1 - 3e-8):
        single = gang(1, Level.CLUSTER)
        bids = bid("a", 0.5, row(0.7, single)), bid("b", 0.5, row(0.7 * factor, single))
        assert set(solve(solver("highs"), [machine("m0", 1)], *bids).wins) == {"b" if factor > 1 else "a"}


def test_among_bidders_with_the_same_bid_the_earlier_id_gets_more():
    rows = row(0.5, gang(1, Level.CLUSTER)), row(0.9, gang(2, Level.CLUSTER))
    solution = solve(solver("highs"), [machine("m0", 3)], *(bid(app, 0.1, *rows) for app in "cba"))
    assert rows_won(solution) == {"a": 0, "b": 0, "c": 0}
    solution = solve(solver("highs"), [machine("m0", 4)], *(bid(app, 0.1, *rows) for app in "cba"))
    assert rows_won(solution) == {"a": 1, "b": 0, "c": 0}


def test_a_solve_without_time_says_so_with_its_gap():
    bids = [
        bid(f"a{index}", 0.1 + index / 100, *(row(0.2 + n / 9, gang(n, Level.MACHINE)) for n in range(2, 5)))
        for index in range(6)
    ]
    machines = [machine(f"m{index}", 3, 2) for index in range(4)]
    for lexicographic in (False, True):
        poor = [bid("poor", 0.0, row(0.3, gang(3, Level.MACHINE)))] if lexicographic else []
        solution = solve_within(0.0, machines, [*bids, *poor], lexicographic=lexicographic)
        assert solution.status is SolveStatus.TIME_LIMIT
        best = solve_within(60.0, machines, [*bids, *poor], lexicographic=lexicographic)
        assert math.isfinite(solution.gap)
        assert solution.gap > 0
        if not lexicographic:
            assert best.log_objective <= solution.log_objective + solution.gap + 1e-9


def solve_within(seconds, machines, bids, *, lexicographic):
    empty = EmptyBundle.LEXICOGRAPHIC if lexicographic else EmptyBundle.FINITE
    market = Market(machines=tuple(machines), bids=tuple(bids), empty_bundle=empty)
    return solver("highs").solve(market, seconds)


def test_an_unknown_solver_lists_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'highs'"):
        solver("higs")


def test_highs_is_not_led_astray_by_its_presolve():
    """HiGHS 1.15.1 with presolve calls row 1 of `a` optimal here, the worse one."""
    machines = [machine("m0", 1, 1, rack="r1"), machine("m1", 2, 3, rack="r1")]
    better = row(0.49, gang(2, Level.SLOT), gang(1, Level.RACK), m0=1)
    bids = bid("a", 0.0, better, row(0.23, m1=2)), bid("b", 0.0, row(0.22, m0=1))
    assert rows_won(solve(solver("highs"), machines, *bids, lexicographic=True)) == {"a": 0, "b": 0}


def test_a_row_may_have_several_gangs_of_one_unit():
    """Their units are one coefficient of the model, which must not be given twice."""
    machines = [machine("m0", 4, rack="r0"), machine("m1", 4, rack="r0"), machine("m2", 5, rack="r1")]
    both = row(0.9, gang(6, Level.RACK, unit=2), gang(4, Level.CLUSTER, unit=2))
    assert rows_won(solve(solver("highs"), machines, bid("a", 0.1, both))) == {"a": 0}
    three = row(0.9, gang(6, Level.RACK, unit=2), gang(8, Level.CLUSTER, unit=2))
    assert rows_won(solve(solver("highs"), machines, bid("a", 0.1, three))) == {}
