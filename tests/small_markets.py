"""Markets in a few words, for tests of solvers and auctions."""

from rm_plugin.solvers.exact.market_arrays import read_market
from rm_plugin.solvers.exact.prepared_market import PreparedMarket
from rm_plugin.solvers.exact.row_placement import RowPlacer
from rm_plugin.solvers.port import SolveStatus
from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation


def machine(machine_id, *slots, rack="r0"):
    return FreeMachine(machine_id=machine_id, rack_id=rack, free_slots=slots)


def bid(app_id, empty, *rows):
    return Bid(app_id=app_id, round_id=0, empty_value=empty, rows=tuple(rows))


def row(value, *gangs, **pinned):
    return BidRow(value=value, gangs=gangs, pinned=Allocation.of(pinned))


def gang(gpus, within, count=1, unit=1):
    return GangRequest(gpus, within, count, unit)


def market(machines, *bids, lexicographic=False):
    empty = EmptyBundle.LEXICOGRAPHIC if lexicographic else EmptyBundle.FINITE
    return Market(machines=tuple(machines), bids=bids, empty_bundle=empty)


def rows_won(solution):
    return {app_id: win.row for app_id, win in solution.wins.items()}


def covers(found, best):
    """The status has a gap, and the optimum is within it."""
    assert (found.status is SolveStatus.TIME_LIMIT) == (found.gap > 0.0)
    assert found.positive <= best.positive
    if found.positive == best.positive:
        assert found.log_objective - 1e-9 <= best.log_objective <= found.log_objective + found.gap + 1e-9


def prepared(given):
    """A market as the search takes it, whatever presolve would say."""
    arrays = read_market(given)
    return PreparedMarket(arrays, RowPlacer(arrays))
