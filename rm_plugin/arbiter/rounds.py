"""A round from its snapshot to its decision, as a generator: it yields what it asks for and is sent the answers.

The same generator runs in the live service and in the simulator; only who answers differs. Each question is asked
once, each answer is checked here, and an answer that is missing or invalid costs its app its part, never the round.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping
from typing import Any, cast

from msgspec import field

from rm_plugin.arbiter.auction import AuctionOutcome
from rm_plugin.arbiter.quotas import bids_within_quotas, within_quotas
from rm_plugin.arbiter.round_values import AskBids, AskReports, Decision, RoundSnapshot, SolveAuction
from rm_plugin.policies.port import Policy
from themis.bids import AppReport, Bid, RhoOf
from themis.choices import EmptyBundle
from themis.values import Value

Question = AskReports | AskBids | SolveAuction
Answer = Mapping[str, AppReport] | Mapping[str, Bid] | AuctionOutcome | None


class RoundResult(Value, frozen=True, kw_only=True):
    """How a round ended: the snapshot with every answer in it, the decision, and refused answers with the reason."""

    snapshot: RoundSnapshot
    decision: Decision
    refused: Mapping[str, str] = field(default_factory=dict)


def play_round(
    snapshot: RoundSnapshot, policy: Policy, rho_of: RhoOf = RhoOf.EVERY_APP
) -> Generator[Question, Answer, RoundResult]:
    """Run a round under a policy. Send each question's answer; the result is the generator's return value.

    The answer to AskReports and AskBids is a mapping by app of what came in time. The answer to SolveAuction is the
    outcome. None counts as an auction without winners.

    Example: a policy without an auction asks one question, and decides on its answer.

        round_ = play_round(snapshot, policy)
        question = next(round_)               # AskReports(("a", "b"))
        round_.send({"a": report})            # b did not answer in time; raises StopIteration(RoundResult(..))

    Args:
        snapshot: The round as it begins.
        policy: Decides it.
        rho_of: The apps that report rho: at least those whose rho the policy uses. The service asks every app, because
            its pages and events show rho. A simulated run that is neither recorded nor watched asks for
            `policy.rho_of` only: otherwise 900 waiting and running apps take 1.4 times the CPU time. The decisions are
            the same, which `tools/compare_runs.py` checks.
    """
    asked = tuple([app.app_id for app in snapshot.apps if not app.silent])
    answers = cast("Mapping[str, AppReport]", (yield AskReports(asked, rho_of)))
    reports, refused = check_reports(snapshot, asked, answers, rho_of)
    snapshot = snapshot.having(reports=within_quotas(snapshot, reports))
    while True:
        step = policy.decide(snapshot)
        if isinstance(step, Decision):
            return RoundResult(snapshot=snapshot, decision=step, refused=refused)
        answer: Any = yield step
        if isinstance(step, AskBids):
            bids, bad = check_bids(snapshot, step.app_ids, cast("Mapping[str, Bid]", answer))
            snapshot, refused = snapshot.having(bids=bids_within_quotas(snapshot, bids)), refused | bad
        else:
            no_winners = AuctionOutcome(wins={}, shares=dict.fromkeys(snapshot.bids or {}, 1.0))
            snapshot = snapshot.having(outcome=answer or no_winners)


def check_reports(
    snapshot: RoundSnapshot,
    asked: tuple[str, ...],
    reports: Mapping[str, AppReport],
    rho_of: RhoOf = RhoOf.EVERY_APP,
) -> tuple[dict[str, AppReport], dict[str, str]]:
    """Split reports into valid ones and refused ones with the reason; those of apps that were not asked are dropped."""
    machines = snapshot.cluster.rack_of
    valid: dict[str, AppReport] = {}
    refused: dict[str, str] = {}
    for app_id in asked:
        report = reports.get(app_id)
        if report is None:
            continue
        problem = _problem_of_report(report, app_id, snapshot.round_id, machines, rho_of)
        if problem:
            refused[app_id] = problem
        else:
            valid[app_id] = report
    return valid, refused


def _problem_of_report(report: AppReport, app_id: str, round_id: int, machines: Collection[str], rho_of: RhoOf) -> str:
    if report.app_id != app_id or report.round_id != round_id:
        return f"the report is app {report.app_id}'s for round {report.round_id}"
    if math.isnan(report.rho) and rho_of.asks(report.demands):
        return "the report has no rho"
    # Placement looks up the racks of the GPUs that a job holds; most jobs with demands hold none.
    for demand in report.demands:
        if demand.held.counts and not all(machine in machines for machine, _ in demand.held.counts):
            return "a job is said to be on a machine that the cluster does not have"
    return ""


def check_bids(
    snapshot: RoundSnapshot, asked: tuple[str, ...], bids: Mapping[str, Bid]
) -> tuple[dict[str, Bid], dict[str, str]]:
    """Split bids into valid ones and refused ones with the reason; bids of apps that were not asked are dropped."""
    free = snapshot.free.by_machine()
    valid: dict[str, Bid] = {}
    refused: dict[str, str] = {}
    for app_id in sorted(set(asked) & set(bids)):
        problem = _problem_of(bids[app_id], app_id, snapshot, free)
        if problem:
            refused[app_id] = problem
        else:
            valid[app_id] = bids[app_id]
    return valid, refused


def _problem_of(bid: Bid, app_id: str, snapshot: RoundSnapshot, free: Mapping[str, int]) -> str:
    if bid.app_id != app_id:
        return f"the bid names app {bid.app_id}"
    if bid.round_id != snapshot.round_id:
        return f"the bid is for round {bid.round_id}"
    if bid.empty_value <= 0 and snapshot.settings.empty_bundle is EmptyBundle.FINITE:
        return "the empty bundle must have a positive value"
    for row in bid.rows:
        for machine, count in row.pinned.counts:
            if count > free.get(machine, 0):
                return "a row pins GPUs that were not offered"
    return ""
