"""Measures on markets that can be reckoned by hand, and how bundles are valued."""

import pytest

from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.highs import HighsSolver
from themis.bids import Bid, BidRow, FreeMachine, GangDemand, GangRequest, Market, PlacedGang
from themis.choices import EmptyBundle, Rounding
from themis.cluster import Allocation, Level
from themis_lab.audit.case import Case, Mechanism
from themis_lab.audit.families import family
from themis_lab.audit.measures.envy import envy
from themis_lab.audit.measures.misreport import misreport
from themis_lab.audit.measures.payment import payment
from themis_lab.audit.misreports import misreports
from themis_lab.audit.rounding_odds import expected, kept_odds
from themis_lab.audit.sharing import simulate_world
from themis_lab.audit.tally import Tally
from themis_lab.audit.valuation import BidValuer
from themis_lab.audit.values import Sample

ONE_GPU = (FreeMachine(machine_id="m0", rack_id="r0", free_slots=(1,)),)
TRUE = Mechanism(make_solver=BruteForceSolver)


def wants_one(app_id, empty, value):
    rows = (BidRow(value=value, gangs=(GangRequest(1, Level.CLUSTER),)),)
    return Bid(app_id=app_id, round_id=0, empty_value=empty, rows=rows)


# b wins the GPU and keeps c = 0.5 / 0.8 of it. With 1.25 times its value a would win, and keep c = 0.5 / 0.9.
RIVALS = Market(machines=ONE_GPU, bids=(wants_one("a", 0.5, 0.8), wants_one("b", 0.5, 0.9)))


def samples(measure, market):
    return {(sample.measure, sample.what.split(":")[0]): sample.value for sample in measure(Case(market, TRUE))}


def test_overstating_pays_unless_whole_value_scales():
    lies = {found.lie.what: found.gains for found in misreports(Case(RIVALS, TRUE)) if found.app_id == "a"}
    gains = lies["all rows times 1.25"]
    share = 0.5 / 0.9
    assert gains["scaled"] == pytest.approx(share * 0.8 / 0.5 - 1.0)
    assert gains["scaled"] < 0.0
    assert gains["win"] == pytest.approx((0.5 + share * 0.3) / 0.5 - 1.0)
    # One gang is kept whole with probability c, else lost: the same expectation.
    assert gains["rounded"] == pytest.approx(gains["win"])
    assert lies["all rows times 1.1"]["win"] == 0.0
    assert samples(misreport, RIVALS)["misreport_factor_rounded", "a"] == pytest.approx(gains["rounded"])


def test_each_winner_has_a_payment_sample():
    (sample,) = payment(Case(RIVALS, TRUE))
    assert sample.value == pytest.approx(1.0 - 0.5 / 0.8)


def test_envy_uses_the_apps_own_rows():
    found = samples(envy, RIVALS)
    assert found["envy", "a envies b"] == pytest.approx(0.8 / 0.5 - 1.0)
    assert found["envy", "b envies no app"] == 0.0
    assert found["envy_but_one_gpu", "a"] == 0.0


def test_lexicographic_markets_are_not_compared():
    market = Market(
        machines=ONE_GPU,
        bids=(wants_one("a", 0.0, 0.8), wants_one("b", 0.5, 0.9)),
        empty_bundle=EmptyBundle.LEXICOGRAPHIC,
    )
    assert misreport(Case(market, TRUE)) == []
    assert envy(Case(Market(machines=(), bids=market.bids, empty_bundle=market.empty_bundle), TRUE)) == []


def test_bundle_value_is_its_best_row():
    machines = (
        FreeMachine(machine_id="m0", rack_id="r0", free_slots=(2, 2)),
        FreeMachine(machine_id="m1", rack_id="r0", free_slots=(4,)),
    )
    rows = (
        BidRow(value=0.9, gangs=(GangRequest(2, Level.SLOT),)),
        BidRow(value=0.7, gangs=(GangRequest(2, Level.MACHINE),)),
        BidRow(value=0.4, gangs=(GangRequest(2, Level.CLUSTER),)),
        BidRow(value=0.3, pinned=Allocation.of({"m1": 1})),
    )
    bid = Bid(app_id="a", round_id=0, empty_value=0.1, rows=rows)
    valuer = BidValuer(Case(Market(machines=machines, bids=(bid,)), TRUE))

    def worth(level=Level.MACHINE, slot=None, **gpus):
        return valuer.value(bid, [PlacedGang(gpus=Allocation.of(gpus), level=level, slot=slot)])

    assert worth(Level.SLOT, 1, m0=2) == 0.9
    # Which slots of m0 these lie in is not known; m1 has one slot only.
    assert worth(m0=2) == 0.7
    assert worth(m1=2) == 0.9
    assert worth(Level.RACK, m0=1, m1=1) == 0.4
    assert worth(m1=1) == 0.3
    assert worth(m0=1) == 0.1
    assert valuer.value(bid, []) == 0.1


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 2 / 3, 0.99, 1.0])
def test_expected_value_of_equal_gangs_is_the_share(share):
    gangs = [PlacedGang(gpus=Allocation.of({f"m{place}": 2}), level=Level.MACHINE) for place in range(3)]
    assert expected(kept_odds(gangs, share), lambda kept: 10.0 * len(kept)) == pytest.approx(30.0 * share, abs=1e-6)
    assert expected(kept_odds([], share), lambda kept: 7.0) == 7.0


def test_odds_cover_both_draws_of_a_rounding():
    """1.6 of 4 GPUs are one, by chance two; none can be used alone, so the gang is kept whole for 1 / 4 or 2 / 4."""
    gangs = (PlacedGang(gpus=Allocation.of({"m0": 4}), level=Level.MACHINE),)
    odds = kept_odds(gangs, 0.4, Rounding.BY_GPU)
    assert odds == pytest.approx({gangs: 0.4, (): 0.6}, abs=1e-6)
    # Two GPUs would do for the job: then only the one GPU of the other draw leaves a chance.
    demands = (GangDemand(job_id="j", min_gpus=2, max_gpus=4),)
    half = (PlacedGang(gpus=Allocation.of({"m0": 2}), level=Level.MACHINE),)
    assert kept_odds(gangs, 0.4, Rounding.BY_GPU, demands) == pytest.approx({gangs: 0.1, half: 0.6, (): 0.3}, abs=1e-6)


def test_homogeneous_bidders_all_win():
    for number in range(10):
        market = family("homogeneous").market(1, number)
        for bid in market.bids:
            one = bid.rows[0].value
            assert [row.value / one for row in bid.rows] == pytest.approx(range(1, len(bid.rows) + 1), rel=1e-6)
        assert set(Case(market, Mechanism(make_solver=HighsSolver)).outcome.wins) == {bid.app_id for bid in market.bids}


def test_tally_keeps_first_of_equal_worst_samples():
    tally = Tally()
    for number, value in enumerate([0.0, 0.5, 1e-9, 0.5, 0.1]):
        tally.add(Sample(measure="m", value=value, what=f"of {number}"), number, RIVALS)
    assert (tally.samples, tally.above_0, tally.median, tally.median_above_0) == (5, [0.1, 0.5, 0.5], 0.1, 0.5)
    assert (tally.p95, tally.worst.what, tally.worst_number) == (0.5, "of 1", 1)


def test_world_is_reproducible_and_all_apps_end():
    one, two = (simulate_world(1, 0, HighsSolver) for _ in range(2))
    assert one == two
    assert len(one.rho) == 10
    assert 0.0 < one.worst < 10.0
