"""Run rounds: wait for a reason, ask the apps, decide, grant; each step is written before the next one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from rm_plugin.arbiter.auction import AuctionOutcome
from rm_plugin.arbiter.core import Arbiter
from rm_plugin.arbiter.round_values import AskBids, AskReports, Decision, RoundSnapshot, SolveAuction, Wait
from rm_plugin.arbiter.rounds import Answer, Question, RoundResult, play_round
from rm_plugin.policies.demands import usable_left
from rm_plugin.policies.port import ExplainingPolicy, Explanation, Figure, MeasuredPolicy, Policy
from rm_plugin.service.changes import Change, Changes
from rm_plugin.service.checked_reports import CheckedReports
from rm_plugin.service.claims import NOT_GRANTED, WITHIN_APP, Cuts, checked_bid, is_declared_anew
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.hosted_apps import HostedApps
from rm_plugin.service.last_reports import LastReports
from rm_plugin.service.market_folder import MarketFolder
from rm_plugin.service.policy_memory import MemoryRecorder
from rm_plugin.service.session import Session
from rm_plugin.service.store import StoreError
from rm_plugin.solvers.port import SolveStatus
from themis.bids import AppReport, Bid, Market, PlacedGang
from themis.clock import Clock
from themis.cluster import Allocation
from themis.config.rm_settings import RmSettings
from themis.leases import LeaseChange
from themis.wire import themis_pb2 as pb
from themis.wire.values import offer_to_message

LOG = logging.getLogger("themis.rounds")

RETRY_FIRST_S, MAX_RETRY_S = 1.0, 30.0
"""Seconds until the next round after one that failed or lacked answers: first, then doubled up to the most."""

LOOKS = 10
"""A pause in which no answer came is seen in this many looks, so that one long stall of the loop does not make one."""

MAX_WAITS = 50
"""Apps of which the record of a round says what they wait for."""
MAX_CUTS = 5
"""Cuts of an app's claims that the record of a round names."""

A = TypeVar("A")
Notify = Callable[[list[LeaseChange]], None]


class Auctions(Protocol):
    """Port for running auctions; the live service uses `Auctioneer`."""

    async def run(self, market: Market) -> AuctionOutcome | None:
        """Run an auction. Returns None if it has no outcome: the round then continues without winners."""
        ...


class RoundRunner:
    """Runs one round at a time. `trigger` asks for one; reasons within `coalesce_s` make one round.

    Code that changes what a round relies on, such as the machines, must hold `between_rounds`.
    """

    def __init__(
        self,
        *,
        settings: RmSettings,
        arbiter: Arbiter,
        policy: Policy,
        entries: AppEntries,
        hosted: HostedApps,
        changes: Changes,
        auctioneer: Auctions,
        clock: Clock,
        notify: Notify,
        grantable_gpus: Callable[[AppEntry], int | None],
        heartbeat_s: Callable[[], float],
        before_round: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._arbiter = arbiter
        self._policy = policy
        self._entries = entries
        self._hosted = hosted
        self._changes = changes
        self._auctioneer = auctioneer
        self._markets = MarketFolder(settings.state_dir / "markets", settings.auction.keep_markets)
        self._clock = clock
        self._notify = notify
        self._before_round = before_round
        self._reasons: list[str] = []
        self._wake = asyncio.Event()
        # The version of the free GPUs at the start of the last round.
        self._seen_free = 0
        self._unanswered = False
        self._waits: Mapping[str, Wait] = {}
        self._reports: dict[str, AppReport] = {}
        """The reports of the present round, after the checks against what is known."""
        self._retry_at_s: float | None = None
        self._retry_after_s = RETRY_FIRST_S
        self._memory = MemoryRecorder()
        self._checked = CheckedReports(
            entries, settings.auction.bundle_rule, lambda: arbiter.gpus_available, grantable_gpus
        )
        self._heartbeat_s = heartbeat_s
        self._last_reports = LastReports(settings.am_expiry_s, lambda app_id: grantable_gpus(entries.get(app_id)))
        self.rounds = 0
        self.between_rounds = asyncio.Lock()

    def explanation(self, app_id: str) -> Explanation:
        """Return why an app has its GPUs, by its policy. Empty if the policy gives no explanation."""
        memory = self._arbiter.policy_memory
        if memory is None or not isinstance(self._policy, ExplainingPolicy):
            return ()
        return self._policy.explain(memory, app_id)

    def figures(self) -> tuple[Figure, ...]:
        """Return the figures that the policy publishes after the newest round. Empty if it publishes none."""
        memory = self._arbiter.policy_memory
        if memory is None or not isinstance(self._policy, MeasuredPolicy):
            return ()
        return self._policy.figures(memory)

    def trigger(self, reason: str) -> None:
        """Ask for a round, as GPUs came free or an app could use some."""
        if reason not in self._reasons:
            self._reasons.append(reason)
        self._wake.set()

    def note_demand(self, app_id: str, *, changed: bool) -> None:
        """Ask for a round if GPUs are free, and an app's unmet demand or the free GPUs changed since the last one."""
        if changed:
            self.note_news(app_id)
        table = self._arbiter.table
        if table.has_free_gpus and (changed or table.free_version != self._seen_free):
            self.trigger("demand")

    def note_news(self, app_id: str) -> None:
        """Let the next round ask an app, though it reported not long ago."""
        self._last_reports.note_news(app_id)

    def lease_ends_moved(self) -> None:
        """Compute again when the next round for ending leases is due."""
        self._wake.set()

    async def run(self) -> None:
        """Run rounds for ever. A round that failed at any step is followed by one for the same reasons."""
        while True:
            reasons = await self._next_reasons()
            try:
                async with self.between_rounds:
                    await self._play(reasons)
            except StoreError as error:
                LOG.warning("a round waits for the store: %s", error)
                await self._changes.usable()
            except Exception:
                # A defect in one round must not end the service.
                LOG.exception("a round failed")
                await asyncio.sleep(self._next_retry_s())
            else:
                self._plan_retry()
                continue
            for reason in reasons:
                self.trigger(reason)

    def _plan_retry(self) -> None:
        """Plan another round if answers were missing and GPUs are free: the silent apps may want them."""
        if self._unanswered and self._arbiter.table.has_free_gpus:
            self._retry_at_s = self._clock.now_s() + self._next_retry_s()
        else:
            self._retry_at_s, self._retry_after_s = None, RETRY_FIRST_S

    def _next_retry_s(self) -> float:
        after_s = self._retry_after_s
        self._retry_after_s = min(MAX_RETRY_S, 2 * after_s)
        return after_s

    # ---- waiting ----

    async def _next_reasons(self) -> list[str]:
        while not self._reasons:
            self._wake.clear()
            due_s, reason = self._next_due()
            if due_s <= self._clock.now_s():
                self.trigger(reason)
                break
            try:
                async with asyncio.timeout(None if due_s == math.inf else due_s - self._clock.now_s()):
                    await self._wake.wait()
            except TimeoutError:
                self.trigger(reason)
        await asyncio.sleep(self._settings.coalesce_s)
        reasons, self._reasons = self._reasons, []
        return reasons

    def _next_due(self) -> tuple[float, str]:
        """Return when the next round is due without a new reason, and its reason; inf if none is."""
        lease_round_s = self._arbiter.next_lease_round_s()
        due = [(math.inf, "")]
        if lease_round_s is not None:
            due.append((lease_round_s, "lease end"))
        if self._retry_at_s is not None:
            due.append((self._retry_at_s, "answers missing"))
        return min(due)

    # ---- one round ----

    async def _play(self, reasons: list[str]) -> None:
        self._unanswered = False
        self._retry_at_s = None
        self._before_round()
        snapshot = await self._changes.make(lambda change: self._begin(change, reasons))
        if not _is_played(snapshot):
            return
        self.rounds = snapshot.round_id
        try:
            result, decide_s = await self._answer_all(snapshot)
            granted = await self._changes.make(lambda change: self._apply(change, result, decide_s))
            outcome = "granted" if any(granted.grants().values()) else "nothing granted"
        except asyncio.CancelledError:
            # The service stops: a start later closes the round where this cannot be written.
            with contextlib.suppress(Exception):
                await self._changes.make(lambda change: self._end(change, snapshot, "abandoned"))
            raise
        except Exception:
            await self._changes.make_surely(lambda change: self._end(change, snapshot, "abandoned"))
            raise
        await self._changes.make_surely(lambda change: self._end(change, snapshot, outcome))

    def _begin(self, change: Change, reasons: list[str]) -> RoundSnapshot:
        snapshot, prolonged = self._arbiter.begin_round(change.now_s)
        change.leases(prolonged)
        change.then(lambda: self._notify(prolonged))
        change.then(self._see_demand)
        if _is_played(snapshot):
            self._record_start(change, snapshot, reasons)
        return snapshot

    def _see_demand(self) -> None:
        self._seen_free = self._arbiter.table.free_version

    async def _answer_all(self, snapshot: RoundSnapshot) -> tuple[RoundResult, float]:
        """Play the round. Returns the result, and the seconds that the policy itself took."""
        # The questions are few: reports, then for an auction bids and the solve.
        round_ = play_round(snapshot, self._policy)
        question, decide_s = next(round_), 0.0
        while True:
            answer = await self._answer(question, snapshot)
            sent_s = self._clock.now_s()
            try:
                question = round_.send(answer)
            except StopIteration as end:
                result: RoundResult = end.value
                return result, decide_s + self._clock.now_s() - sent_s
            decide_s += self._clock.now_s() - sent_s

    async def _answer(self, question: Question, snapshot: RoundSnapshot) -> Answer:
        if isinstance(question, AskReports):
            return await self._ask_reports(question, snapshot)
        if isinstance(question, AskBids):
            return await self._ask_bids(question, snapshot)
        return await self._solve(question, snapshot)

    async def _ask_reports(self, question: AskReports, snapshot: RoundSnapshot) -> dict[str, AppReport]:
        pause_s = self._settings.report_deadline_s
        recent = self._last_reports.recent(snapshot, question.app_ids, self._heartbeat_s(), self._policy.rho_of)
        asked = [app_id for app_id in question.app_ids if app_id not in recent]
        max_s = self._settings.answer_time_s(pause_s, len(asked))
        message = pb.AskRho(
            round_id=snapshot.round_id,
            now_s=snapshot.now_s,
            deadline_s=self._clock.now_s() + max_s,
            active_apps=len(snapshot.apps),
        )

        def ask(session: Session) -> asyncio.Future[AppReport]:
            # `RmMessage` copies the question.
            message.contention = snapshot.contentions.of(session.app_id)
            session.send(pb.RmMessage(ask_rho=message))
            return session.expect_report(snapshot.round_id)

        def ask_host(app_ids: Sequence[str]) -> Awaitable[dict[str, AppReport]]:
            return self._hosted.reports(message, snapshot.contentions.by_app(app_ids), pause_s=pause_s, max_s=max_s)

        claims = await self._gather(asked, ask, ask_host, pause_s, max_s, snapshot.round_id)
        cut_reports = self._checked.check(snapshot, claims)
        reports = {app_id: report for app_id, (report, _) in cut_reports.items()}
        self._last_reports.take(snapshot, reports)
        kept = self._last_reports.of_late(snapshot, [app_id for app_id in asked if app_id not in reports])
        self._reports = reports | recent | kept
        detail: dict[str, object] = {
            "round_id": snapshot.round_id,
            "rho": {app_id: report.rho for app_id, report in self._reports.items()},
            "absent": sorted({app.app_id for app in snapshot.apps} - reports.keys() - recent.keys()),
            "demand_gpus": {app_id: report.demand_gpus for app_id, report in self._reports.items()},
        }
        if kept:
            detail["kept"] = sorted(kept)
        if recent:
            detail["not_asked"] = sorted(recent)
        detail |= self._cut_detail({app_id: cuts for app_id, (_, cuts) in cut_reports.items() if cuts})
        await self._changes.make(lambda change: self._note_reports(change, reports, detail))
        return self._reports

    def _note_reports(self, change: Change, reports: Mapping[str, AppReport], detail: Mapping[str, object]) -> None:
        change.event("round_reported", detail=detail)
        for app_id, report in reports.items():
            entry = self._entries.get(app_id)
            left_gpu_s, is_guess = report.work_left_gpu_s, entry.heartbeat.provisional
            if left_gpu_s <= 0.0:
                continue
            used_gpu_s, was_guess = self._checked.used_gpu_s(app_id), entry.claim_guessed
            if is_declared_anew(entry.claimed_gpu_s, used_gpu_s, left_gpu_s, was_guess=was_guess, is_guess=is_guess):
                change.put(entry, claimed_gpu_s=used_gpu_s + left_gpu_s, claim_guessed=is_guess)
        change.then(lambda: self._arbiter.heard_of(reports))

    def _cut_detail(self, cuts: Mapping[str, Cuts]) -> dict[str, object]:
        """Count and log what was cut from claims, and return the part of an event that says so."""
        for app_id, notes in cuts.items():
            if all(note.endswith((WITHIN_APP, NOT_GRANTED)) for note in notes):
                # Of an honest app.
                continue
            entry = self._entries.get(app_id)
            entry.cut_claims += len(notes)
            LOG.log(
                logging.WARNING if entry.cut_claims == len(notes) else logging.DEBUG,
                "%s: not believed: %s",
                app_id,
                notes[0],
            )
        return {"not_believed": {app_id: notes[:MAX_CUTS] for app_id, notes in cuts.items()}} if cuts else {}

    async def _ask_bids(self, question: AskBids, snapshot: RoundSnapshot) -> dict[str, Bid]:
        await self._record("round_offered", {"round_id": snapshot.round_id, "apps": list(question.app_ids)})
        pause_s = self._settings.bid_deadline_s
        max_s = self._settings.answer_time_s(pause_s, len(question.app_ids))
        offer = offer_to_message(snapshot.common_offer(self._clock.now_s() + max_s))

        def ask(session: Session) -> asyncio.Future[Bid]:
            # `RmMessage` copies the offer.
            offer.contention = snapshot.contentions.of(session.app_id)
            session.send(pb.RmMessage(offer=offer))
            return session.expect_bid(snapshot.round_id)

        def ask_host(app_ids: Sequence[str]) -> Awaitable[dict[str, Bid]]:
            return self._hosted.bids(offer, snapshot.contentions.by_app(app_ids), pause_s=pause_s, max_s=max_s)

        claims = await self._gather(question.app_ids, ask, ask_host, pause_s, max_s, snapshot.round_id)
        cut_bids = {
            app_id: checked_bid(claim, self._reports[app_id], self._checked.facts_of(snapshot, app_id))
            for app_id, claim in claims.items()
            if app_id in self._reports
        }
        bids = {app_id: bid for app_id, (bid, _) in cut_bids.items()}
        detail = _bids_detail(snapshot, question, bids, self._prepare_ms(bids))
        detail |= self._cut_detail({app_id: cuts for app_id, (_, cuts) in cut_bids.items() if cuts})
        await self._record("round_bids", detail)
        return bids

    async def _solve(self, question: SolveAuction, snapshot: RoundSnapshot) -> AuctionOutcome | None:
        started_s = self._clock.now_s()
        outcome = await self._auctioneer.run(question.market) if question.market.bids else None
        solve_ms = 1e3 * (self._clock.now_s() - started_s)
        detail: dict[str, object] = {
            "round_id": snapshot.round_id,
            "solve_ms": solve_ms if question.market.bids else 0.0,
            "bidders": len(question.market.bids),
            "status": "no bids" if not question.market.bids else "no outcome",
            "market": await self._keep_market(snapshot.round_id, question.market),
            # As text: many readers of JSON take a whole number for a float, and this one has 64 bits.
            "seed": str(snapshot.seed),
        }
        if outcome is not None:
            if outcome.status is SolveStatus.LICENCE:
                LOG.warning("round %d is past the licence of the solver %s", snapshot.round_id, outcome.solver)
            detail |= {
                "status": outcome.status.value,
                "gap": outcome.worst_gap,
                "proportional_fair": {app: _machines(win.gangs) for app, win in outcome.wins.items()},
                "payments": dict(outcome.shares),
            }
        await self._record("round_auctioned", detail)
        return outcome

    async def _keep_market(self, round_id: int, market: Market) -> str:
        """Write the market and return the name of its file. A failed write costs the record, not the round."""
        if not market.bids:
            return ""
        try:
            return await asyncio.to_thread(self._markets.keep, round_id, market)
        except OSError as error:
            LOG.warning("the market of round %d is not kept: %s", round_id, error)
            return ""

    def _apply(self, change: Change, result: RoundResult, decide_s: float) -> Decision:
        """Grant the decision, except for apps and machines that are gone since the round began."""
        decision = self._arbiter.what_stands(result.decision)
        detail: dict[str, object] = {
            "round_id": result.snapshot.round_id,
            "auction": {app: _machines(gangs) for app, gangs in decision.auction.items()},
            "leftovers": {app: _machines(gangs) for app, gangs in decision.leftovers.items()},
            # Of the decision as made: the policy could not know what happened later.
            "usable_left": usable_left(result.snapshot.machines, result.decision),
            "refused": dict(result.refused),
            "decide_ms": 1e3 * decide_s,
        }
        remembered, memory_written = self._memory.record(result.snapshot.round_id, decision.memory)
        detail |= remembered
        if decision.waits:
            detail["waits"] = msgspec.to_builtins(_first_waits(decision.waits))
        granted = self._arbiter.settle(result, now_s=change.now_s)
        change.event("round_granted", detail=detail)
        change.leases(granted)
        change.then(memory_written)
        change.then(lambda: self._notify(granted))
        change.then(lambda: self._note_waits(decision.waits))
        if decision is not result.decision:
            # GPUs that the round could not grant are free for others now.
            change.then(lambda: self.trigger("gpus free"))
        return decision

    def _note_waits(self, waits: Mapping[str, Wait]) -> None:
        before, self._waits = self._waits, waits
        for app_id in before.keys() | waits.keys():
            entry = self._entries.find(app_id)
            if entry is not None:
                entry.wait = waits.get(app_id)

    # ---- helpers ----

    async def _gather(
        self,
        app_ids: Sequence[str],
        ask: Callable[[Session], asyncio.Future[A]],
        ask_host: Callable[[Sequence[str]], Awaitable[dict[str, A]]],
        pause_s: float,
        max_s: float,
        round_id: int,
    ) -> dict[str, A]:
        """Ask the apps that are not ending and have a session or are hosted; return the answers in time (`answered`).

        The answers are in the order of the apps, however they came.
        """
        entries = [entry for entry in map(self._entries.get, app_ids) if not entry.kill_reason]
        hosted = [entry.app_id for entry in entries if entry.app_id in self._hosted]
        sessions = {entry.app_id: entry.session for entry in entries if entry.session}
        asking = asyncio.ensure_future(ask_host(hosted)) if hosted else None
        waiting = {app_id: ask(session) for app_id, session in sessions.items()}
        await answered(waiting.values(), pause_s=pause_s, max_s=max_s)
        answers = {} if asking is None else await asking
        for session in sessions.values():
            session.forget(round_id)
        answers |= {app: future.result() for app, future in waiting.items() if future.done() and not future.cancelled()}
        self._unanswered |= len(answers) < len(entries)
        return {app_id: answers[app_id] for app_id in app_ids if app_id in answers}

    def _prepare_ms(self, bids: Mapping[str, Bid]) -> dict[str, float]:
        sessions = {app_id: self._entries.get(app_id).session for app_id in bids}
        return {app_id: session.bid_prepare_ms for app_id, session in sessions.items() if session is not None}

    async def _record(self, kind: str, detail: dict[str, object]) -> None:
        """Write one step of a round."""
        await self._changes.make(lambda change: change.event(kind, detail=detail))

    def _record_start(self, change: Change, snapshot: RoundSnapshot, reasons: list[str]) -> None:
        change.event(
            "round_started",
            detail={
                "round_id": snapshot.round_id,
                "reasons": reasons,
                "free": snapshot.free.by_machine(),
                "renewable": {app.app_id: app.renewable.by_machine() for app in snapshot.apps if app.renewable},
                "active": [app.app_id for app in snapshot.apps],
            },
        )

    def _end(self, change: Change, snapshot: RoundSnapshot, outcome: str) -> None:
        duration_ms = 1e3 * (change.now_s - snapshot.now_s)
        detail = {"round_id": snapshot.round_id, "duration_ms": duration_ms, "outcome": outcome}
        change.event("round_ended", detail=detail)


async def answered(waiting: Collection[asyncio.Future[Any]], *, pause_s: float, max_s: float) -> None:
    """Wait until all futures are done, or no other one was for `pause_s` seconds, or `max_s` seconds have passed.

    The first answer may take `max_s`, because on a busy machine thousands of app masters first have to be asked. So a
    round waits for thousands of answers as long as they keep coming in, but only `pause_s` for one app master that
    hangs. A pause does not begin while this process itself stands still: answers have arrived then, but are unread.
    """
    loop = asyncio.get_running_loop()
    asked = left = len(waiting)
    all_done, end_s = asyncio.Event(), loop.time() + max_s

    def note(_future: asyncio.Future[Any]) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    for future in waiting:
        future.add_done_callback(note)
    quiet = 0
    while left and quiet < LOOKS and loop.time() < end_s:
        before = left
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s / LOOKS):
                await all_done.wait()
        quiet = 0 if left < before or left == asked else quiet + 1


def _is_played(snapshot: RoundSnapshot) -> bool:
    """Whether GPUs are on offer and at least one app can be asked."""
    return bool(snapshot.free) and not all(app.silent for app in snapshot.apps)


def _bids_detail(
    snapshot: RoundSnapshot, question: AskBids, bids: Mapping[str, Bid], prepare_ms: Mapping[str, float]
) -> dict[str, object]:
    shown = {
        app_id: {
            "rows": len(bid.rows),
            "rows_dropped": bid.rows_dropped,
            "empty_value": bid.empty_value,
            "best_value": max((row.value for row in bid.rows), default=bid.empty_value),
            "prepare_ms": prepare_ms.get(app_id, 0.0),
        }
        for app_id, bid in bids.items()
    }
    absent = {app_id: "no bid by the deadline" for app_id in question.app_ids if app_id not in bids}
    return {"round_id": snapshot.round_id, "bids": shown, "absent": absent}


def _machines(gangs: tuple[PlacedGang, ...]) -> dict[str, int]:
    return Allocation.sum_of(gang.gpus for gang in gangs).by_machine()


def _first_waits(waits: Mapping[str, Wait]) -> dict[str, Wait]:
    """The waits that end first: the record of a round must not grow with the number of apps."""

    def key(app_id: str) -> tuple[float, str]:
        until_s = waits[app_id].until_s
        return math.inf if until_s is None else until_s, app_id

    return {app_id: waits[app_id] for app_id in sorted(waits, key=key)[:MAX_WAITS]}
