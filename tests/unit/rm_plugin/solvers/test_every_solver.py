"""Every registered solver on markets solved by hand: what the port promises."""

import math
from itertools import permutations

import pytest
from msgspec.structs import replace
from small_markets import bid, gang, machine, market, row, rows_won

from rm_plugin.solvers.bidders import bidders_of
from rm_plugin.solvers.highs import run_highs
from rm_plugin.solvers.mip import solve_by
from rm_plugin.solvers.port import SMALLEST_GAP, SolveStatus
from rm_plugin.solvers.registry import SOLVERS, solver
from themis.cluster import Allocation, Level
from themis.errors import InputError, UnknownNameError

# Brute force is the yardstick of small tests: it neither checks its input twice nor looks at a clock.
FOR_USERS = sorted(set(SOLVERS) - {"brute_force"})
MIXED_INTEGER = ("gurobi", "highs")


@pytest.fixture(params=sorted(SOLVERS))
def any_solver(request):
    return solver(request.param)


def solve(solver_, machines, *bids, lexicographic=False, time_limit_s=10.0):
    return solver_.solve(market(machines, *bids, lexicographic=lexicographic), time_limit_s)


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


def test_pinned_gpus_reduce_their_machine_and_are_listed_last(any_solver):
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


@pytest.mark.parametrize("name", FOR_USERS)
def test_two_bids_of_one_app_are_refused(name):
    twin = bid("a", 0.1, row(0.5, gang(1, Level.CLUSTER)))
    with pytest.raises(InputError, match="two bids of one app"):
        solve(solver(name), [machine("m0", 2)], twin, twin)


@pytest.mark.parametrize("bids", [(), (bid("a", 0.5),)], ids=["no bidder", "no row"])
def test_markets_with_nothing_to_choose_have_no_wins(any_solver, bids):
    solution = solve(any_solver, [machine("m0", 2)], *bids)
    assert solution.wins == {}
    assert solution.status is SolveStatus.OPTIMAL
    assert solution.log_objective == pytest.approx(sum(math.log(each.empty_value) for each in bids))


def test_no_free_machine_means_no_win(any_solver):
    assert solve(any_solver, [], bid("a", 0.1, row(0.5, gang(1, Level.CLUSTER)))).wins == {}


def test_nearly_equal_values_are_distinguished(any_solver):
    """The usual tolerance of 1e-6 would not see this."""
    for factor in (1 + 3e-8, 1 - 3e-8):
        single = gang(1, Level.CLUSTER)
        bids = bid("a", 0.5, row(0.7, single)), bid("b", 0.5, row(0.7 * factor, single))
        assert set(solve(any_solver, [machine("m0", 1)], *bids).wins) == {"b" if factor > 1 else "a"}


@pytest.mark.parametrize("name", MIXED_INTEGER)
def test_among_bidders_with_the_same_bid_the_earlier_id_gets_more(name):
    rows = row(0.5, gang(1, Level.CLUSTER)), row(0.9, gang(2, Level.CLUSTER))
    solution = solve(solver(name), [machine("m0", 3)], *(bid(app, 0.1, *rows) for app in "cba"))
    assert rows_won(solution) == {"a": 0, "b": 0, "c": 0}
    solution = solve(solver(name), [machine("m0", 4)], *(bid(app, 0.1, *rows) for app in "cba"))
    assert rows_won(solution) == {"a": 1, "b": 0, "c": 0}


def test_of_equally_free_machines_the_smaller_id_gets_the_gang(any_solver):
    machines = [machine(name, 2) for name in ("m1", "m10", "m0")]
    solution = solve(any_solver, machines, bid("a", 0.1, row(0.9, gang(2, Level.SLOT))))
    assert [each.gpus.by_machine() for each in solution.wins["a"].gangs] == [{"m0": 2}]


@pytest.mark.parametrize("name", MIXED_INTEGER)
def test_a_solve_without_time_says_so_with_its_gap(name):
    bids = [
        bid(f"a{index}", 0.1 + index / 100, *(row(0.2 + n / 9, gang(n, Level.MACHINE)) for n in range(2, 5)))
        for index in range(6)
    ]
    machines = [machine(f"m{index}", 3, 2) for index in range(4)]
    for lexicographic in (False, True):
        poor = [bid("poor", 0.0, row(0.3, gang(3, Level.MACHINE)))] if lexicographic else []
        solution = solve(solver(name), machines, *bids, *poor, lexicographic=lexicographic, time_limit_s=0.0)
        assert solution.status is SolveStatus.TIME_LIMIT
        best = solve(solver(name), machines, *bids, *poor, lexicographic=lexicographic, time_limit_s=60.0)
        assert math.isfinite(solution.gap)
        assert solution.gap > 0
        if not lexicographic:
            assert best.log_objective <= solution.log_objective + solution.gap + 1e-9


def test_the_optimum_found_without_a_proof_has_a_gap():
    """A solver whose time was up may hold the best choice, and a bound that says no more than that."""

    def out_of_time(model, gains, time_limit_s, at_least=None):
        answer = run_highs(model, gains, 60.0, at_least)
        return replace(answer, status=SolveStatus.TIME_LIMIT)

    bids = [bid("a", 0.1, row(0.2, gang(2, Level.MACHINE)))]
    one = market([machine("m0", 2)], *bids)
    solution = solve_by(out_of_time, one, bidders_of, 60.0)
    assert solution.status is SolveStatus.TIME_LIMIT
    assert solution.gap == SMALLEST_GAP


def test_an_unknown_solver_lists_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'highs'"):
        solver("higs")


def test_a_row_may_have_several_gangs_of_one_unit(any_solver):
    """Their units are one coefficient of the model, which must not be given twice."""
    machines = [machine("m0", 4, rack="r0"), machine("m1", 4, rack="r0"), machine("m2", 5, rack="r1")]
    both = row(0.9, gang(6, Level.RACK, unit=2), gang(4, Level.CLUSTER, unit=2))
    assert rows_won(solve(any_solver, machines, bid("a", 0.1, both))) == {"a": 0}
    three = row(0.9, gang(6, Level.RACK, unit=2), gang(8, Level.CLUSTER, unit=2))
    assert rows_won(solve(any_solver, machines, bid("a", 0.1, three))) == {}


@pytest.mark.parametrize("name", MIXED_INTEGER)
def test_the_order_of_rows_does_not_make_bidders_unlike(name):
    small, large = row(0.5, gang(1, Level.CLUSTER)), row(0.9, gang(2, Level.CLUSTER))
    bids = bid("a", 0.1, small, large), bid("b", 0.1, large, small), bid("c", 0.1, small, large)
    solution = solve(solver(name), [machine("m0", 4)], *bids)
    assert rows_won(solution) == {"a": 1, "b": 1, "c": 0}
    assert solution.log_objective == pytest.approx(math.log(0.9 * 0.5 * 0.5))


@pytest.mark.parametrize("name", FOR_USERS)
def test_equal_rows_prefer_fewest_pinned_parts(name):
    """Wherever it stands in the bid: the seed decides on whole parts, so their number decides on what is kept."""
    apart = row(1.0, m0=2, m1=2)
    together = replace(apart, pinned_gangs=(apart.pinned,))
    alone = replace(apart, pinned_gangs=tuple(Allocation.of({name: 1}) for name in ("m0", "m0", "m1", "m1")))
    rival = bid("b", 0.1, row(0.55, m0=1))
    machines = [machine("m0", 2), machine("m1", 2)]
    for rows in permutations([apart, together, alone]):
        # With a gang anywhere the market is none of tables, which another search solves.
        for others in ((), (row(0.12, gang(1, Level.CLUSTER)),)):
            solution = solve(solver(name), machines, bid("a", 0.1, *rows, *others), rival)
            assert [gang.gpus for gang in solution.wins["a"].gangs] == [apart.pinned]


@pytest.mark.parametrize("name", FOR_USERS)
def test_equally_many_parts_prefer_smaller_ones(name):
    whole = row(1.0, m0=2, m1=2)
    parts = [[{"m0": 2}, {"m1": 2}], [{"m0": 1}, {"m0": 1, "m1": 2}], [{"m0": 1, "m1": 1}, {"m0": 1, "m1": 1}]]
    rows = [replace(whole, pinned_gangs=tuple(map(Allocation.of, each))) for each in parts]
    for turned in permutations(rows):
        solution = solve(solver(name), [machine("m0", 2), machine("m1", 2)], bid("a", 0.1, *turned))
        assert [gang.gpus.by_machine() for gang in solution.wins["a"].gangs] == [{"m0": 1}, {"m0": 1, "m1": 2}]
