"""Each property of the auditor holds for the code as it is, and catches the defects that are planted for it."""

import math

import mutants
import pytest
from msgspec.structs import replace
from mutants import Mutant, PolicyMutant, RemembersTheFirst, auction_with_shares

from rm_plugin.arbiter import rounding
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.solvers import ladder
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.exact import resources
from rm_plugin.solvers.exact.market_arrays import Rows
from rm_plugin.solvers.exact.problem_result import ProblemResult
from rm_plugin.solvers.ladder import exact_ladder
from rm_plugin.solvers.port import SolveStatus
from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market, PlacedGang
from themis.choices import Rounding
from themis.cluster import Allocation, Level
from themis_lab.audit.case import Case, Mechanism
from themis_lab.audit.families import FAMILIES, family
from themis_lab.audit.properties import grants, time_limited
from themis_lab.audit.properties.registry import PROPERTIES
from themis_lab.audit.round_cases import snapshot_of

MARKETS = [(name, number) for name in ("tiny", "mixed", "pinned", "identical") for number in range(5)]
TRUE = Mechanism(make_solver=BruteForceSolver)


def solving(change):
    return Mechanism(make_solver=lambda: Mutant(change))


def alternating():
    """Two kinds of solvers in turn: the same call twice does not give the same."""
    made = []

    def make():
        made.append(None)
        return Mutant(mutants.first_winner_forgotten) if len(made) % 2 else BruteForceSolver()

    return Mechanism(make_solver=make)


PLANTED = {
    "a worse choice": (solving(mutants.first_winner_forgotten), {"optimality", "pareto"}),
    "worse choices without a winner": (Mechanism(make_solver=mutants.WrongWithoutWinners), {"optimality"}),
    "a misstated objective": (solving(mutants.objective_misstated), {"optimality"}),
    "GPUs given twice": (solving(mutants.all_on_one_machine), {"feasible"}),
    "pinned GPUs as any others": (solving(mutants.pinned_elsewhere), {"feasible"}),
    "the last in line goes without": (solving(mutants.last_in_line_forgotten), {"order", "optimality"}),
    "a memory of other markets": (Mechanism(make_solver=RemembersTheFirst), {"determinism"}),
    "another answer each time": (alternating(), {"determinism"}),
    "fewer wins with more rows": (solving(mutants.gives_up_on_many_rows), {"monotone"}),
    "values that are not relative": (solving(mutants.scarce_values_first), {"scale"}),
    "a problem that is not solved": (replace(TRUE, auction=mutants.auction_without_a_problem), {"answers", "payments"}),
    "shares past 1": (replace(TRUE, auction=auction_with_shares(lambda app, c, won: c * 1.5)), {"payments"}),
    "losers pay": (replace(TRUE, auction=auction_with_shares(lambda app, c, won: c if won else 0.9)), {"payments"}),
    "shares too small": (replace(TRUE, auction=auction_with_shares(lambda app, c, won: c * 0.5)), {"payments"}),
    "shares that are no numbers": (
        replace(TRUE, auction=auction_with_shares(lambda app, c, won: math.nan)),
        {"payments"},
    ),
    "a hurry that is too sure": (
        Mechanism(make_solver=lambda: mutants.Hasty(mutants.gives_up_and_is_sure)),
        {"hurried"},
    ),
    "a hurry without a gap": (
        Mechanism(make_solver=lambda: mutants.Hasty(mutants.gives_up_without_a_gap)),
        {"hurried"},
    ),
    "a hurry that gives GPUs twice": (
        Mechanism(make_solver=lambda: mutants.Hasty(mutants.all_on_one_machine)),
        {"hurried"},
    ),
    "no payments": (replace(TRUE, share=lambda market, full, without, app: 1.0), {"truthful"}),
    "leftovers that were won": (replace(TRUE, policy=PolicyMutant(mutants.given_twice)), {"grants"}),
    "leftovers that stay idle": (replace(TRUE, policy=PolicyMutant(mutants.nothing_left_over)), {"grants"}),
    "more kept than won": (replace(TRUE, policy=PolicyMutant(mutants.kept_beyond_what_was_won)), {"grants"}),
}


def broken(mechanism, names=tuple(PROPERTIES)):
    """The properties that do not hold in some market under a mechanism."""
    found = set()
    for name, number in MARKETS:
        for each in names:
            case = Case(family(name).market(1, number), mechanism, seed=number)
            if each not in found and PROPERTIES[each](case):
                found.add(each)
    return found


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_caught(defect):
    mechanism, caught_by = PLANTED[defect]
    assert broken(mechanism, caught_by) == caught_by


def machines(*gpus):
    return tuple(
        FreeMachine(machine_id=f"m{place}", rack_id="r0", free_slots=(free,)) for place, free in enumerate(gpus)
    )


def wants(app_id, values, unit=1):
    """A bid of a value for one gang of GPUs anywhere."""
    rows = tuple(
        BidRow(value=value, gangs=(GangRequest(gpus, Level.CLUSTER, 1, unit),)) for gpus, value in values.items()
    )
    return Bid(app_id=app_id, round_id=0, empty_value=0.1, rows=rows)


def reported(mechanism, name):
    """All that a property says of the markets under a mechanism."""
    cases = (Case(family(drawn).market(1, number), mechanism, seed=number) for drawn, number in MARKETS)
    return "\n".join(problem for case in cases for problem in PROPERTIES[name](case) or ())


@pytest.mark.parametrize(
    "change", [mutants.leftovers_in_one_gang, mutants.leftovers_gpu_by_gpu, mutants.leftovers_less_one_gpu]
)
def test_unusable_leftovers_are_reported(change):
    assert "its jobs cannot use that" in reported(replace(TRUE, policy=PolicyMutant(change)), "grants")


def test_leftovers_for_app_without_jobs_are_reported(monkeypatch):
    def without_jobs(case, rounding):
        snapshot = snapshot_of(case, rounding)
        return replace(snapshot, reports={app: replace(report, demands=()) for app, report in snapshot.reports.items()})

    def one_gpu_for_nobody(decision):
        gang = PlacedGang(gpus=Allocation.of({"m0": 1}), level=Level.MACHINE)
        return replace(decision, leftovers={"bystander-0": (gang,)})

    monkeypatch.setattr(grants, "snapshot_of", without_jobs)
    case = Case(Market(machines=machines(1), bids=()), replace(TRUE, policy=PolicyMutant(one_gpu_for_nobody)))
    assert "its jobs cannot use that" in PROPERTIES["grants"](case)[0]


def test_unusable_part_of_a_gang_is_reported(monkeypatch):
    """a keeps 0.8 of 6 GPUs; what its jobs can use is drawn by the seed."""
    market = Market(machines=machines(7), bids=(wants("a", {6: 1.0}), wants("b", {1: 0.8, 7: 1.0})))
    cases = [Case(market, TRUE, seed=seed) for seed in range(20)]
    assert not any(PROPERTIES["grants"](case) for case in cases)
    cut = rounding._cut
    monkeypatch.setattr(rounding, "_cut", lambda gang, gpus, demand: cut(gang, gpus, replace(demand, max_gpus=100)))
    findings = {problem for case in cases for problem in PROPERTIES["grants"](case)}
    assert any("of a gang, none of its jobs can run on that" in finding for finding in findings)


@pytest.mark.parametrize("rule", [Rounding.PROBABILISTIC, Rounding.BY_GPU])
def test_rounding_that_keeps_nothing_is_reported(monkeypatch, rule):
    monkeypatch.setitem(rounding._KEEP, rule, lambda ranked, share, rng, demands: ())
    assert f"{rule}: a0 keeps 0.0 " in reported(TRUE, "grants")


@pytest.mark.parametrize("rule", Rounding)
def test_rounding_that_keeps_loosest_gangs_is_reported(monkeypatch, rule):
    """a wins a gang on one machine and one over two, and keeps 0.56 of them: b would win 0.18 in place of 0.1."""
    both = BidRow(value=1.0, gangs=(GangRequest(2, Level.MACHINE), GangRequest(4, Level.CLUSTER)))
    bid = Bid(app_id="a", round_id=0, empty_value=0.1, rows=(both,))
    case = Case(Market(machines=machines(3, 3), bids=(bid, wants("b", {1: 0.18}))), TRUE)
    assert PROPERTIES["grants"](case) == []
    true = rounding._KEEP[rule]
    monkeypatch.setitem(rounding._KEEP, rule, lambda ranked, *rest: true(ranked[::-1], *rest))
    finding = f"{rule}: a may keep a gang that lies farther apart than one that it gives up"
    assert finding in PROPERTIES["grants"](case)


@pytest.mark.parametrize(
    ("seed_of", "finding"),
    [
        (lambda seed, *names: child_seed(seed, *names[:1]), "and a twin keep as many gangs as each other"),
        (lambda seed, *names: child_seed(0, *names), "keeps as many gangs whatever the seed"),
    ],
    ids=["one for all apps", "the same each round"],
)
def test_dependent_random_draws_are_reported(monkeypatch, seed_of, finding):
    assert finding not in reported(TRUE, "grants")
    monkeypatch.setattr(rounding, "child_seed", seed_of)
    assert finding in reported(TRUE, "grants")


def test_pareto_improvement_is_reported():
    market = Market(machines=machines(2), bids=(wants("a", {1: 0.5}), wants("b", {1: 0.5})))
    (finding,) = PROPERTIES["pareto"](Case(market, solving(mutants.first_winner_forgotten)))
    assert "is better for a and worse for no app" in finding


def test_tasks_that_span_machines_are_found():
    market = Market(machines=machines(3, 3), bids=(wants("a", {6: 0.5}, unit=2),))
    assert PROPERTIES["feasible"](Case(market, TRUE)) == []
    assert PROPERTIES["feasible"](Case(market, solving(mutants.units_forgotten)))


def test_every_property_has_a_planted_defect():
    assert set().union(*(caught_by for _, caught_by in PLANTED.values())) == set(PROPERTIES)


@pytest.mark.parametrize("make_solver", [BruteForceSolver, exact_ladder])
def test_unmodified_code_violates_no_property(make_solver):
    assert broken(Mechanism(make_solver=make_solver)) == set()


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - {"agents", "testbed", "large"}))
def test_properties_hold_in_every_family(name):
    mechanism = Mechanism(make_solver=exact_ladder)
    for number in range(2):
        case = Case(family(name).market(3, number), mechanism, seed=number)
        for each, check in PROPERTIES.items():
            assert not check(case), (each, number)


def test_properties_do_not_apply_to_unsolved_problems():
    def out_of_time(market, solution, calls):
        return replace(mutants.with_wins(market, {}), status=SolveStatus.TIME_LIMIT, gap=100.0)

    case = Case(family("tiny").market(1, 0), solving(out_of_time))
    silent = {name for name, check in PROPERTIES.items() if check(case) is None}
    assert silent == {"hurried", "pareto", "order", "determinism", "monotone", "scale", "truthful"}
    assert not any(check(case) for check in PROPERTIES.values())


def test_understated_gap_is_reported():
    def too_sure(market, solution, calls):
        return replace(mutants.with_wins(market, {}), status=SolveStatus.TIME_LIMIT, gap=1e-6)

    assert broken(solving(too_sure), {"optimality"}) == {"optimality"}


def test_order_accepts_either_of_two_equal_rows():
    gpu, pair = GangRequest(1, Level.CLUSTER, 2), GangRequest(2, Level.CLUSTER, 1, 2)
    rows = (BidRow(value=0.5, gangs=(gpu, pair)), BidRow(value=0.5, gangs=(pair, GangRequest(1, Level.SLOT, 2))))
    market = Market(
        machines=(FreeMachine(machine_id="m0", rack_id="r0", free_slots=(4,)),),
        bids=(Bid(app_id="a", round_id=0, empty_value=0.1, rows=rows),),
    )
    for seed in range(5):
        assert PROPERTIES["order"](Case(market, Mechanism(make_solver=exact_ladder), seed=seed)) == []


def test_rows_regrouped_finds_dependence_on_row_position(monkeypatch):
    """Rows that differ only in which pinned GPUs belong together, as they once were: the first of the bid won."""
    monkeypatch.setattr(Rows, "with_fewest_parts_first", lambda rows, bids: rows)
    cases = (
        Case(family("regrouped").market(1, number), Mechanism(make_solver=exact_ladder), seed=number)
        for number in range(12)
    )
    assert any(PROPERTIES["order"](case) for case in cases)


def found_in_unlike_slots(mechanism, name, markets=12):
    cases = (Case(family("unlike-slots").market(1, number), mechanism, seed=number) for number in range(markets))
    return [finding for case in cases for finding in PROPERTIES[name](case) or ()]


def test_unlike_slots_finds_gangs_in_too_small_slots():
    """Where slots are alike it is no matter in which of them a gang is said to lie, as long as one has room."""
    assert found_in_unlike_slots(solving(mutants.in_the_first_slot), "feasible")


def test_unlike_slots_finds_limit_that_ignores_slot_sizes(monkeypatch):
    """Parts inside slots, counted as if each slot of a machine had the room of its first: too few in some machines."""
    true = resources._parts_in_slots

    def alike(machines, kinds):
        return [
            replace(limit, capacity=sum(m.free_slots[0] // limit.name[1] * len(m.free_slots) for m in machines))
            for limit in true(machines, kinds)
        ]

    monkeypatch.setattr(resources, "_parts_in_slots", alike)
    assert found_in_unlike_slots(Mechanism(make_solver=exact_ladder), "optimality")


def test_time_limited_finds_shares_below_empty_value():
    """Also that the time-limited auction is the mechanism's own."""
    poorer = replace(TRUE, auction=auction_with_shares(lambda app, c, won: c * 0.01))
    assert any("keeps" in finding for finding in found_in_unlike_slots(poorer, "hurried"))


def test_time_limited_ignores_unproven_optima():
    """Without a bidder that loses when there is time its market is solved once more, here without a proof."""

    def unproven_without(market, solution, calls):
        return replace(solution, status=SolveStatus.TIME_LIMIT, gap=1.0) if len(market.bids) < 4 else solution

    case = Case(family("unlike-slots").market(1, 0), solving(unproven_without))
    assert len(case.market.bids) == 4
    assert time_limited._solved(case, case.market.bids[0].app_id) is None


def test_time_limited_finds_understated_gaps(monkeypatch):
    """A solver without time claims that no bidder can gain anything."""
    monkeypatch.setattr(ladder, "no_winners", lambda arrays, skip: ProblemResult(skip=skip, row_of={}, gap=1e-9))
    assert found_in_unlike_slots(Mechanism(make_solver=exact_ladder), "hurried")
