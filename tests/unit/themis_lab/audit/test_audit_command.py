"""`themis audit`: exit codes, the shape of what it prints, and that the same call prints the same."""

import json
import math

import pytest
from msgspec.structs import replace
from mutants import Mutant, all_on_one_machine, auction_with_shares

from rm_plugin.arbiter.market_document import market_document
from rm_plugin.arbiter.market_file import parse_market
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.port import SolveStatus
from themis_cli.main import main
from themis_lab.audit import fuzzing
from themis_lab.audit.case import Case, Mechanism
from themis_lab.audit.families import FAMILIES, family
from themis_lab.audit.fuzzing import FuzzPlan, FuzzResult, fuzz
from themis_lab.audit.properties import optimality
from themis_lab.audit.properties.registry import PROPERTIES
from themis_lab.audit.report import document, text

QUICK = ("audit", "--markets", "4", "--family", "tiny", "--family", "single-bidder")


def printed(capsys, *arguments):
    code = main(arguments)
    return code, capsys.readouterr()


def test_small_audit_prints_known_json_without_violations(capsys):
    code, out = printed(capsys, *QUICK, "--json", "--worlds", "1")
    report = json.loads(out.out)
    assert code == 0
    assert set(report) == {
        "seed", "markets", "markets_planned", "ended", "families", "unsolved", "unreferenced", "properties",
        "violations", "measures", "sharing_incentive",
    }  # fmt: skip
    assert report["families"] == {"tiny": 2, "single-bidder": 2}
    assert set(report["properties"]) == set(PROPERTIES)
    assert report["properties"]["feasible"] == {"checked": 4, "violations": 0}
    assert report["violations"] == []
    gain = report["measures"]["misreport_factor_rounded"]["drawn"]
    assert set(gain) == {
        "samples", "above_0", "median", "median_above_0", "p95", "worst", "worst_what", "worst_market", "market"
    }  # fmt: skip
    parse_market(gain["market"])
    assert report["sharing_incentive"]["apps"] == 10
    assert 0.0 <= report["sharing_incentive"]["share_above_1"] <= 1.0


def test_equal_calls_print_equal_bytes(capsys):
    one, two = (printed(capsys, *QUICK, "--json", "--seed", "5")[1].out for _ in range(2))
    assert one == two
    assert printed(capsys, *QUICK, "--json", "--seed", "6")[1].out != one


def test_markets_of_a_family_do_not_depend_on_other_families():
    assert family("tiny").market(1, 3) == family("tiny").market(1, 3)
    assert family("tiny").market(1, 3) != family("tiny").market(2, 3)


def test_only_selected_properties_are_checked(capsys):
    code, out = printed(capsys, *QUICK, "--property", "order", "--property", "payment", "--json")
    report = json.loads(out.out)
    assert code == 0
    assert set(report["properties"]) == {"order"}
    assert set(report["measures"]) == {"payment"}
    assert report["sharing_incentive"] is None


def test_output_without_json_is_tables(capsys):
    _, out = printed(capsys, *QUICK)
    assert "4 of 4 markets of 2 families, seed 1; ended: all" in out.out
    assert "feasible" in out.out
    assert "misreport_row_win" in out.out
    assert "audit: 4 of 4 markets, 0 violations" in out.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--family", "tinny"), "did you mean 'tiny'?"),
        (("--property", "pareta"), "did you mean 'pareto'?"),
        (("--solver", "hihgs"), "did you mean 'highs'?"),
        (("--markets", "-1"), "--markets must be 0 or more"),
        (("--worlds", "-1"), "--worlds must be 0 or more"),
        (("--budget-s", "0"), "--budget-s must be more than 0"),
        (("--budget-s", "nan"), "--budget-s must be more than 0"),
        (("--show", "tiny"), "write FAMILY:NUMBER"),
        (("--show", "tinny:1"), "did you mean 'tiny'?"),
    ],
)
def test_bad_input_exits_with_2_and_names_it(capsys, arguments, expected):
    code, out = printed(capsys, *QUICK, *arguments)
    assert code == 2
    assert expected in out.err


def test_show_prints_one_market(capsys):
    code, out = printed(capsys, "audit", "--seed", "4", "--show", "pinned:2")
    assert code == 0
    assert json.loads(out.out) == market_document(family("pinned").market(4, 2))


def test_audit_ends_when_budget_is_spent(capsys):
    code, out = printed(capsys, *QUICK, "--budget-s", "1e-9", "--json")
    assert code == 0
    assert (json.loads(out.out)["ended"], json.loads(out.out)["markets"]) == ("time", 0)


def test_ctrl_c_reports_results_so_far(capsys, monkeypatch):
    def interrupted(case):
        raise KeyboardInterrupt

    monkeypatch.setitem(fuzzing.PROPERTIES, "scale", interrupted)
    code, out = printed(capsys, *QUICK, "--json")
    assert code == 3
    assert (json.loads(out.out)["ended"], json.loads(out.out)["markets"]) == ("interrupted", 1)


class OutOfTime(BruteForceSolver):
    """Proves nothing for markets with at least this many bidders."""

    def __init__(self, least_bidders):
        self.least_bidders = least_bidders

    def solve(self, market, time_limit_s):
        solution = super().solve(market, time_limit_s)
        late = len(market.bids) >= self.least_bidders
        return replace(solution, status=SolveStatus.TIME_LIMIT) if late else solution


def plan_of(mechanism, **changes):
    settings = {"families": [family("tiny")], "markets": 6, "seed": 1, "mechanism": mechanism, "measures": ()}
    return FuzzPlan(**{**settings, **changes})


def hunted(plan):
    return fuzz(plan, FuzzResult(), keep_going=lambda: True, on_market=lambda found: None)


def test_shrunk_market_still_shows_the_violation():
    mechanism = Mechanism(make_solver=lambda: Mutant(all_on_one_machine))
    plan = plan_of(mechanism, properties=("feasible",))
    found = hunted(plan)
    assert found.broken["feasible"] > 0
    for finding, shown in zip(found.findings, document(plan, found)["violations"], strict=True):
        assert len(finding.market.bids) == 1
        assert PROPERTIES["feasible"](Case(parse_market(shown["market"]), mechanism))
    assert "VIOLATION of feasible in tiny:" in text(plan, found)


def test_ctrl_c_while_shrinking_keeps_smallest_market(monkeypatch):
    tried = []

    def feasible_until_interrupted(case):
        tried.append(case.market)
        if len(tried) == 4:
            raise KeyboardInterrupt
        return ["planted"]

    monkeypatch.setitem(fuzzing.PROPERTIES, "feasible", feasible_until_interrupted)
    found = hunted(plan_of(Mechanism(make_solver=BruteForceSolver), properties=("feasible",)))
    (finding,) = found.findings
    assert (found.ended, found.broken["feasible"], len(tried)) == ("interrupted", 1, 4)
    assert finding.market == tried[2] != tried[0]


def test_ctrl_c_before_shrinking_keeps_original_market(monkeypatch):
    tried = []

    def interrupted_at_once(case):
        tried.append(case.market)
        if len(tried) == 2:
            raise KeyboardInterrupt
        return ["planted"]

    monkeypatch.setitem(fuzzing.PROPERTIES, "feasible", interrupted_at_once)
    found = hunted(plan_of(Mechanism(make_solver=BruteForceSolver), properties=("feasible",)))
    assert [(finding.what, finding.market) for finding in found.findings] == [("planted", tried[0])]


def test_shrinking_ends_with_the_budget(monkeypatch):
    tried = []
    monkeypatch.setitem(fuzzing.PROPERTIES, "feasible", lambda case: tried.append(case.market) or ["planted"])
    plan = plan_of(Mechanism(make_solver=BruteForceSolver), properties=("feasible",))
    found = fuzz(plan, FuzzResult(), keep_going=lambda: len(tried) < 3, on_market=lambda found: None)
    (finding,) = found.findings
    assert (found.ended, len(tried)) == ("time", 3)
    assert finding.market == tried[-1]


def test_problems_unsolved_by_reference_count_as_unreferenced(monkeypatch):
    plan = plan_of(Mechanism(make_solver=BruteForceSolver), properties=("optimality",), markets=1)
    assert not hunted(plan).unreferenced.total()
    monkeypatch.setattr(optimality, "_reference", lambda case: OutOfTime(least_bidders=0))
    found = hunted(plan)
    assert (found.unreferenced["tiny"], found.checked["optimality"]) == (3, 0)
    assert document(plan, found)["unreferenced"] == {"tiny": 3}
    assert "problems not compared by optimality, the reference out of time: {'tiny': 3}" in text(plan, found)
    monkeypatch.setattr(optimality, "_reference", lambda case: OutOfTime(least_bidders=3))
    found = hunted(plan)
    assert (found.unreferenced["tiny"], found.checked["optimality"], found.broken.total()) == (1, 1, 0)


def test_violation_exits_with_1(capsys, monkeypatch):
    monkeypatch.setitem(fuzzing.PROPERTIES, "scale", lambda case: ["planted"])
    code, out = printed(capsys, *QUICK)
    assert code == 1
    assert "planted" in out.out


def test_exception_counts_as_violation_and_audit_continues():
    def raises(market, solver, time_limit_s):
        if len(market.bids) > 1:
            raise ZeroDivisionError("planted")
        return auction_with_shares(lambda app, c, won: c)(market, solver, time_limit_s)

    found = hunted(plan_of(Mechanism(make_solver=BruteForceSolver, auction=raises)))
    assert found.drawn["tiny"] == 6
    assert found.broken == {"answers": 6}
    assert {finding.what for finding in found.findings} == {"raises ZeroDivisionError: planted"}
    assert all(len(finding.market.bids) == 2 for finding in found.findings)


def test_raising_measure_is_reported(monkeypatch):
    monkeypatch.setitem(fuzzing.MEASURES, "envy", lambda case: [][1])
    plan = plan_of(Mechanism(make_solver=BruteForceSolver), properties=(), measures=("envy",))
    found = hunted(plan)
    assert found.broken["envy"] == 6
    assert document(plan, found)["properties"]["envy"]["violations"] == 6


def test_further_violations_are_only_counted():
    mechanism = Mechanism(make_solver=BruteForceSolver, auction=auction_with_shares(lambda app, c, won: math.nan))
    found = hunted(plan_of(mechanism, properties=("payments",), markets=fuzzing.MAX_SHRUNK + 3))
    assert found.broken["payments"] == fuzzing.MAX_SHRUNK + 3
    assert len(found.findings) == fuzzing.MAX_SHRUNK
    assert "and 3 more" in text(plan_of(mechanism, properties=("payments",)), found)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_markets_of_every_family_survive_a_round_trip(name):
    market = family(name).market(1, 0)
    read = parse_market(json.loads(json.dumps(market_document(market))))
    assert read.machines == market.machines
    assert [(bid.app_id, bid.empty_value, bid.rows) for bid in read.bids] == [
        (bid.app_id, bid.empty_value, bid.rows) for bid in market.bids
    ]
