"""Mechanisms with planted defects: what each property of the auditor must catch."""

import math

from msgspec.structs import replace

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.arbiter.round_values import Decision
from rm_plugin.policies.themis import ThemisPolicy
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.port import Solution, SolveStatus, each_alone
from themis.cluster import Allocation


class Mutant:
    """Brute force with its answer changed by `change(market, solution, calls before)`."""

    name = "mutant"

    def __init__(self, change):
        self.change = change
        self.calls = 0

    def solve(self, market, time_limit_s):
        solution = self.change(market, BruteForceSolver().solve(market, time_limit_s), self.calls)
        self.calls += 1
        return solution

    def without(self, market, app_ids, time_limit_s):
        return each_alone(self, market, app_ids, time_limit_s)


class RemembersTheFirst(Mutant):
    """No app wins in a market with more bidders than the first one that it solved."""

    def __init__(self):
        super().__init__(self.compare)
        self.bidders = None

    def compare(self, market, solution, calls):
        if self.bidders is None:
            self.bidders = len(market.bids)
        return solution if len(market.bids) <= self.bidders else with_wins(market, {})


class Hasty(Mutant):
    """Right with time; with less than a second its answer is changed."""

    def solve(self, market, time_limit_s):
        solution = BruteForceSolver().solve(market, time_limit_s)
        return self.change(market, solution, 0) if time_limit_s < 1.0 else solution


def gives_up_and_is_sure(market, solution, calls):
    """No app wins, and the status claims that this is nearly optimal."""
    return replace(with_wins(market, {}), status=SolveStatus.TIME_LIMIT, gap=1e-9)


def gives_up_without_a_gap(market, solution, calls):
    return replace(with_wins(market, {}), status=SolveStatus.TIME_LIMIT)


def in_the_first_slot(market, solution, calls):
    """Gangs within a slot are put in the first of the machine, as if all slots of a machine were alike."""
    wins = {
        app: replace(win, gangs=tuple(gang if gang.slot is None else replace(gang, slot=0) for gang in win.gangs))
        for app, win in solution.wins.items()
    }
    return replace(solution, wins=wins)


class WrongWithoutWinners(Mutant):
    """Solves the market correctly; without a winner no other app gains, so that no app pays."""

    def __init__(self):
        super().__init__(lambda market, solution, calls: solution)

    def without(self, market, app_ids, time_limit_s):
        wins = BruteForceSolver().solve(market, time_limit_s).wins
        return {
            app_id: with_wins(market.without(app_id), {app: win for app, win in wins.items() if app != app_id})
            for app_id in app_ids
        }


def with_wins(market, wins):
    """A solution that states its rows honestly, whether they are the best or not."""
    values = [bid.rows[wins[bid.app_id].row].value if bid.app_id in wins else bid.empty_value for bid in market.bids]
    logs = [math.log(value) for value in values if value > 0]
    return Solution(status=SolveStatus.OPTIMAL, gap=0.0, log_objective=math.fsum(logs), positive=len(logs), wins=wins)


def first_winner_forgotten(market, solution, calls):
    return with_wins(market, dict(list(solution.wins.items())[1:]))


def last_in_line_forgotten(market, solution, calls):
    last = market.bids[-1].app_id if market.bids else ""
    return with_wins(market, {app: win for app, win in solution.wins.items() if app != last})


def gives_up_on_many_rows(market, solution, calls):
    return with_wins(market, {}) if sum(len(bid.rows) for bid in market.bids) > 6 else solution


def objective_misstated(market, solution, calls):
    return replace(solution, log_objective=solution.log_objective + 0.5)


def all_on_one_machine(market, solution, calls):
    """Every gang of one machine is moved onto the first one."""
    if not market.machines:
        return solution
    first = market.machines[0].machine_id
    wins = {
        app: replace(win, gangs=tuple(moved(gang, first) for gang in win.gangs)) for app, win in solution.wins.items()
    }
    return replace(solution, wins=wins)


def moved(gang, machine_id):
    return replace(gang, gpus=type(gang.gpus).of({machine_id: gang.gpus.gpus})) if not gang.pinned else gang


def units_forgotten(market, solution, calls):
    """Gangs are placed GPU by GPU, whatever the GPUs of one task are."""
    bids = tuple(replace(bid, rows=tuple(in_single_gpus(row) for row in bid.rows)) for bid in market.bids)
    return BruteForceSolver().solve(replace(market, bids=bids), 10.0)


def in_single_gpus(row):
    return replace(row, gangs=tuple(replace(gang, unit_gpus=1) for gang in row.gangs))


def pinned_elsewhere(market, solution, calls):
    wins = {
        app: replace(win, gangs=tuple(replace(gang, pinned=False) for gang in win.gangs))
        for app, win in solution.wins.items()
    }
    return replace(solution, wins=wins)


def scarce_values_first(market, solution, calls):
    """Not scale invariant: bidders that value little are served as if they had not bid."""
    wins = {
        app: win
        for app, win in solution.wins.items()
        if next(bid for bid in market.bids if bid.app_id == app).rows[win.row].value > 0.5
    }
    return with_wins(market, wins)


def auction_with_shares(change):
    """The auction with its shares changed by `change(app, share, won)`."""

    def auction(market, solver, time_limit_s):
        outcome = run_auction(market, solver, time_limit_s)
        shares = {app: change(app, share, app in outcome.wins) for app, share in outcome.shares.items()}
        return replace(outcome, shares=shares)

    return auction


def auction_without_a_problem(market, solver, time_limit_s):
    outcome = run_auction(market, solver, time_limit_s)
    return replace(outcome, problems=outcome.problems[:1])


class PolicyMutant:
    """The policy `themis` with its decision changed."""

    name = "mutant"

    def __init__(self, change):
        self.change = change

    def decide(self, snapshot):
        decision = ThemisPolicy().decide(snapshot)
        return self.change(decision) if isinstance(decision, Decision) else decision


def given_twice(decision):
    return replace(decision, leftovers={**decision.leftovers, **decision.auction})


def nothing_left_over(decision):
    claims = decision.unserved
    return replace(decision, leftovers={}, unserved=claims)


def leftovers_in_one_gang(decision):
    """All that an app gets as one gang, too large for any of its jobs."""
    leftovers = {app: (together(gangs),) for app, gangs in decision.leftovers.items()}
    return replace(decision, leftovers=leftovers)


def together(gangs):
    return replace(gangs[0], gpus=sum((gang.gpus for gang in gangs), Allocation()), slot=None)


def leftovers_gpu_by_gpu(decision):
    """Every GPU as a gang of its own, more gangs than there are jobs."""
    leftovers = {app: tuple(single_gpus(gangs)) for app, gangs in decision.leftovers.items()}
    return replace(decision, leftovers=leftovers)


def single_gpus(gangs):
    for gang in gangs:
        for machine, count in gang.gpus:
            yield from [replace(gang, gpus=Allocation.of({machine: 1}))] * count


def leftovers_less_one_gpu(decision):
    """One GPU is missing from every gang of more, whether tasks are whole then or not."""
    leftovers = {app: tuple(map(less_one_gpu, gangs)) for app, gangs in decision.leftovers.items()}
    return replace(decision, leftovers=leftovers)


def less_one_gpu(gang):
    machine, count = gang.gpus.counts[0]
    counts = {**gang.gpus.by_machine(), machine: count - 1}
    return replace(gang, gpus=Allocation.of(counts)) if gang.gpus.gpus > 1 else gang


def kept_beyond_what_was_won(decision):
    return replace(decision, auction={app: gangs * 2 for app, gangs in decision.auction.items()})
