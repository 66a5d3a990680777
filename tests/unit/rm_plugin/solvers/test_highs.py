"""The settings with which HiGHS is right."""

from small_markets import bid, gang, machine, market, row, rows_won

from rm_plugin.solvers.highs import HighsSolver
from themis.cluster import Level


def test_highs_is_not_led_astray_by_its_presolve():
    """HiGHS 1.15.1 with presolve calls row 1 of `a` optimal here, the worse one."""
    machines = [machine("m0", 1, 1, rack="r1"), machine("m1", 2, 3, rack="r1")]
    better = row(0.49, gang(2, Level.SLOT), gang(1, Level.RACK), m0=1)
    bids = bid("a", 0.0, better, row(0.23, m1=2)), bid("b", 0.0, row(0.22, m0=1))
    assert rows_won(HighsSolver().solve(market(machines, *bids, lexicographic=True), 10.0)) == {"a": 0, "b": 0}
