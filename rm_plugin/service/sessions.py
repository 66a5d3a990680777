"""The sessions of app masters: who may open one, and what each of their messages changes."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.engines.port import EngineAttempts, HeldLock
from rm_plugin.service.app_masters import AppMasters
from rm_plugin.service.changes import Change, Changes
from rm_plugin.service.code_store import CodeStore
from rm_plugin.service.entries import BYTES_PER_S, MESSAGES_PER_S, AppEntries, AppEntry
from rm_plugin.service.live_cluster import LiveCluster
from rm_plugin.service.message_checks import (
    check_greeting,
    check_message,
    check_reference,
    check_registration,
    read_detail,
)
from rm_plugin.service.own_page import OwnPages
from rm_plugin.service.round_runner import RoundRunner
from rm_plugin.service.session import Session
from themis.attempt_proof import is_session_metadata, proves, rm_proof
from themis.clock import Clock
from themis.config.rm_settings import RmSettings
from themis.errors import InputError, UnreachableError
from themis.lifecycle import APP_LIFECYCLE, AppState
from themis.wire import themis_pb2 as pb
from themis.wire.values import ROUND_ANSWERS, app_to_message, bid_from_message, report_from_message

LOG = logging.getLogger("themis.rm")

_KEPT = ("release", "job_event", "finish", "rest")
"""Messages that the store keeps; app masters resend all but the last until they are acknowledged."""


class Sessions:
    """Opens, reads and ends the sessions of all app masters; `ArbiterService` carries them over gRPC.

    Args:
        settings: Settings of leases, which the answer to a registration has.
        arbiter: Holds the leases.
        entries: The apps.
        changes: Writes every change before it takes effect.
        live_cluster: Ends leases that apps give back.
        app_masters: Knows the attempts of each app, and ends apps.
        codes: The code of apps, for app masters that lack it.
        clock: The present time.
        lock: Confirms that no other ResourceManager has taken over, before an attempt is refused.
        rounds: Returns the round runner, which is made after this object.
    """

    def __init__(
        self,
        *,
        settings: RmSettings,
        arbiter: Arbiter,
        entries: AppEntries,
        changes: Changes,
        live_cluster: LiveCluster,
        app_masters: AppMasters,
        codes: CodeStore,
        clock: Clock,
        lock: HeldLock,
        rounds: Callable[[], RoundRunner],
    ) -> None:
        self.own_pages = OwnPages()
        self._settings = settings
        self._arbiter = arbiter
        self._entries = entries
        self._changes = changes
        self._live_cluster = live_cluster
        self._app_masters = app_masters
        self._codes = codes
        self._clock = clock
        self._lock = lock
        self._rounds = rounds

    def sender_of(self, metadata: Mapping[str, str | bytes]) -> str:
        """Return the app whose attempt opens a session with this metadata; empty if it shows none."""
        app_id = str(metadata.get("themis-app", ""))
        entry = self._entries.find(app_id)
        return app_id if entry is not None and is_session_metadata(metadata, entry.token_sha256) else ""

    async def greet(self, message: pb.Greeting) -> pb.Proof:
        """Return the proof that this is the ResourceManager of an attempt (`attempt_proof`).

        Raises:
            InputError: The attempt is unknown or over.
            UnreachableError: Another ResourceManager has taken over.
        """
        try:
            entry = self._app_of_session(message.app_id)
            check_greeting(message, entry)
        except InputError:
            # As in `register`.
            await self._lock.confirm()
            raise
        return pb.Proof(proof=rm_proof(entry.token_sha256, entry.app_id, message.nonce))

    def _app_of_session(self, app_id: str) -> AppEntry:
        """Return an app by its id. A stranger may ask, so an error names no other app, and none is searched for."""
        entry = self._entries.find(check_reference(app_id))
        if entry is None:
            raise InputError("unknown app", value=app_id)
        return entry

    async def register(self, message: pb.Register, peer: str = "") -> tuple[AppEntry, Session]:
        """Open the session of an attempt, once the registration is written.

        Args:
            message: The registration.
            peer: The peer's address as gRPC gives it; the app's page must be on the same host. Empty for calls within
                the process.

        Raises:
            InputError: `check_registration` refuses the attempt.
            UnreachableError: It is unknown whether this attempt was started: the engine does not answer, or another
                ResourceManager has taken over. Or the app opens sessions too often.
        """
        try:
            return await self._register(message, peer)
        except InputError:
            # A refusal ends the attempt, which may be one of the next ResourceManager.
            await self._lock.confirm()
            raise

    async def _register(self, message: pb.Register, peer: str) -> tuple[AppEntry, Session]:
        entry = self._app_of_session(message.app_id)
        attempts = EngineAttempts(newest=entry.attempt)
        is_proven = proves(message.token, entry.token_sha256)
        if is_proven and not entry.registrations.take(1, self._clock.now_s()):
            raise UnreachableError("too many sessions", value=entry.app_id, remedy="open one a second at most")
        if is_proven and message.attempt > entry.attempt:
            attempts = await self._app_masters.launches.attempts(entry)
        check_registration(message, entry, attempts.newest)
        if message.page_url and peer:
            # Without the path, which is a secret of the app's user.
            host = message.page_url.partition("://")[2].partition("/")[0][:200]
            message.page_url = await self.own_pages.find(message.page_url, peer)
            if not message.page_url:
                LOG.warning("%s: its page is not on its host and is ignored: %r", entry.app_id, host)
        session = Session(entry.app_id, message.attempt)
        code = b"" if message.has_code else await self._codes.content(entry.spec.program.code)
        try:
            await self._changes.make_surely(lambda change: self._open(change, entry, session, message, code, attempts))
        except asyncio.CancelledError:
            # The stream broke during the write: its messages would have no reader.
            session.close()
            self.disconnected(entry, session)
            raise
        return entry, session

    def _open(
        self,
        change: Change,
        entry: AppEntry,
        session: Session,
        message: pb.Register,
        code: bytes,
        attempts: EngineAttempts,
    ) -> None:
        check_registration(message, entry, max(attempts.newest, entry.attempt))
        if message.attempt > entry.attempt:
            self._app_masters.note_next_attempt(change, entry, message, attempts.taken)
        change.then(lambda: self._take_session(entry, session))
        self._live_cluster.release_unheld(change, entry.app_id, set(message.held_lease_ids))
        state = entry.state
        if state is not AppState.RUNNING:
            state = APP_LIFECYCLE.check(state, AppState.RUNNING, entry.app_id)
        change.put(
            entry,
            state=state,
            pid=message.pid,
            page_url=message.page_url,
            engine_id=message.engine_id,
            registered_attempt=message.attempt,
            registered_pid=message.pid,
        )
        change.event("am_registered", app_id=entry.app_id, detail={"attempt": message.attempt, "pid": message.pid})
        change.then(lambda: self._greet(entry, session, code))

    def _take_session(self, entry: AppEntry, session: Session) -> None:
        if entry.session is not None:
            entry.session.close()
        entry.session = None if session.closed else session
        entry.last_seen_s = entry.idle_since_s = self._clock.now_s()
        self._arbiter.set_silent(entry.app_id, session.closed or bool(entry.leave_reason))
        # The report of a former attempt does not count for this one.
        self._rounds().note_news(entry.app_id)

    def _greet(self, entry: AppEntry, session: Session, code: bytes) -> None:
        self._app_masters.registered(entry.app_id)
        session.send(pb.RmMessage(registered=self._welcome(entry, code)))
        if entry.leave_reason:
            self._app_masters.ask_to_leave(entry)
        self._rounds().trigger("app arrived")

    def excess(self, entry: AppEntry, message: pb.AmMessage) -> str:
        """Return why an app's master sends too much, in words; empty if it does not.

        The budgets are the app's, not its session's: a new session gets no new ones.
        """
        now_s = self._clock.now_s()
        if not entry.messages.take(1, now_s):
            return f"too many messages: {entry.app_id} may send {MESSAGES_PER_S:g} each second"
        if not entry.message_bytes.take(message.ByteSize(), now_s):
            return f"too large messages: {entry.app_id} may send {BYTES_PER_S / 2**20:g} MB each second"
        return ""

    async def receive(self, entry: AppEntry, session: Session, message: pb.AmMessage) -> None:
        """Process one message of a session. An invalid message is refused and has no other effect.

        A message that the store keeps is acknowledged only once it is written, and an answer to a round not at all.
        """
        if session.attempt == entry.attempt:
            # What is left of a former attempt must not hide the silence of this one.
            entry.last_seen_s = self._clock.now_s()
        body = message.WhichOneof("body")
        try:
            check_message(message, entry, session.attempt, self._arbiter.cluster, self._clock.now_s())
            if body in _KEPT:
                await self._changes.make_surely(lambda change: self._keep(change, entry, session, message))
            else:
                self._take(entry, session, message)
        except (InputError, ValueError) as error:
            entry.refused_messages += 1
            self._entries.refused_messages += 1
            LOG.warning("%s: refused a %s: %.1000s", entry.app_id, body, error)
        if body not in ROUND_ANSWERS:
            session.send(pb.RmMessage(acknowledge=self._acknowledge(entry, message.id)))

    def _take(self, entry: AppEntry, session: Session, message: pb.AmMessage) -> None:
        """Process a message that is of use only now; app masters do not resend it."""
        body = message.WhichOneof("body")
        if body == "rho":
            session.take_report(report_from_message(message.rho, entry.app_id))
        elif body == "bid":
            session.bid_prepare_ms = message.bid.prepare_ms
            session.take_bid(bid_from_message(message.bid, entry.app_id))
        elif body == "heartbeat" and entry.is_active:
            self.take_heartbeat(entry, message.heartbeat)
            self._live_cluster.note_grants(entry)

    def take_heartbeat(self, entry: AppEntry, heartbeat: pb.Heartbeat) -> None:
        """Note what an app master, or the agent host, says of an app now."""
        before_gpus = entry.heartbeat.unmet_gpus
        self._entries.take_heartbeat(entry, heartbeat)
        self._rounds().note_demand(entry.app_id, changed=heartbeat.unmet_gpus != before_gpus)

    def _keep(self, change: Change, entry: AppEntry, session: Session, message: pb.AmMessage) -> None:
        """Process a message that app masters resend until it is acknowledged, so it may come twice."""
        number = (session.attempt, message.id)
        if number <= entry.last_message:
            return
        body = message.WhichOneof("body")
        if body == "release":
            self._live_cluster.release(change, entry.app_id, message.release)
            # It may hold again what it held at its last report, but it could not use this GPU.
            change.then(lambda: self._rounds().note_news(entry.app_id))
        elif body == "job_event":
            event = message.job_event
            detail = read_detail(event)
            change.event(event.kind, app_id=entry.app_id, detail=detail, time_s=event.time_s or None)
        elif body == "rest":
            self._app_masters.rest(change, entry, message.rest.view)
        elif entry.is_active:
            self._keep_finish(change, entry, message.finish)
        change.set(entry, last_message=number)

    def _keep_finish(self, change: Change, entry: AppEntry, finish: pb.Finish) -> None:
        state = AppState.KILLED if entry.kill_reason else AppState(finish.state)
        # An engine may have ended the app master meanwhile, which then says that it was killed.
        if entry.pause_reason and state in (AppState.PAUSED, AppState.KILLED) and not entry.kill_reason:
            self._app_masters.lifecycle.pause(change, entry)
            return
        self._app_masters.lifecycle.end(change, entry, state, entry.kill_reason or finish.diagnostics, finish)

    def disconnected(self, entry: AppEntry, session: Session) -> None:
        """Note that a session's stream broke; the app master may come back until `am_expiry_s` has passed."""
        if entry.session is session:
            entry.session = None
            if not entry.ended:
                self._arbiter.set_silent(entry.app_id, True)

    def _welcome(self, entry: AppEntry, code: bytes) -> pb.Registered:
        lease = self._settings.lease
        now_s = self._clock.now_s()
        registered = pb.Registered(
            spec=app_to_message(entry.spec),
            submitted_at_s=entry.arrived_at_s,
            now_s=now_s,
            checkpoint_lead_s=lease.checkpoint_lead_s,
            grace_s=lease.grace_s,
            heartbeat_s=self._app_masters.heartbeat_s(),
            leases=self._live_cluster.lease_update(entry.app_id),
            active_apps=self._arbiter.active_count,
            contention=self._arbiter.contention(entry.app_id, now_s),
            app_id=entry.app_id,
            task_log_mb=self._settings.task_log_mb,
            code=code,
        )
        registered.MergeFrom(self._live_cluster.registered())
        return registered

    def _acknowledge(self, entry: AppEntry, message_id: int) -> pb.Acknowledge:
        now_s = self._clock.now_s()
        return pb.Acknowledge(
            of_id=message_id,
            now_s=now_s,
            contention=self._arbiter.contention(entry.app_id, now_s) if entry.is_active else math.nan,
            active_apps=self._arbiter.active_count,
            heartbeat_s=self._app_masters.heartbeat_s(),
        )
