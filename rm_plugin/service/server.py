"""Build a ResourceManager from its settings, and run it until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import uuid
from collections import defaultdict
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TypeVar

import grpc

from rm_plugin.arbiter.core import Arbiter, LeasePolicy
from rm_plugin.arbiter.ended_apps import EndedApp
from rm_plugin.arbiter.lease_table import LeaseTable
from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.engines.engine import Engine, LocalEngine, open_engine
from rm_plugin.engines.folder_lock import FolderLock, LockHolder, LockLostError
from rm_plugin.engines.port import AmExit, HeldLock, NoLock
from rm_plugin.engines.shared_folder import SharedFolder
from rm_plugin.policies.port import Policy, traits_of
from rm_plugin.policies.registry import make_policy
from rm_plugin.service.admin_service import AdminService
from rm_plugin.service.auctioneer import Auctioneer
from rm_plugin.service.authentication import Authentication, LocalTokens
from rm_plugin.service.certificates import load_tls
from rm_plugin.service.client_service import ClientService
from rm_plugin.service.entries import AppEntries
from rm_plugin.service.hooks import HOOKS, Delivery
from rm_plugin.service.identities import USER_TOKENS, UserToken
from rm_plugin.service.live_cluster import DRAINED
from rm_plugin.service.log_summary import LogSummary, report_unreadable
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.nodes import NodeWatch
from rm_plugin.service.recorder import Recorder
from rm_plugin.service.restoring import (
    is_finite,
    lasting_leases,
    restored_entries,
    restored_memory,
    restored_value,
    restored_waits,
    warn_of_refused,
)
from rm_plugin.service.round_runner import RoundRunner
from rm_plugin.service.session_service import ArbiterService
from rm_plugin.service.shared_log import SharedLog
from rm_plugin.service.shared_store import SharedStore
from rm_plugin.service.store import StateStore, StoreError
from rm_plugin.service.store_sqlite import SqliteStore
from rm_plugin.service.web.rm_page import RmPage
from rm_plugin.service.web.standby_page import StandbyPage
from themis.clock import Clock, ClockMark, WallClock
from themis.cluster import Cluster
from themis.config.queues_file import load_queues
from themis.config.rm_settings import RmSettings
from themis.errors import InputError, ThemisError
from themis.files import keep_private, lets_others_pass, make_private
from themis.garbage import few_collections
from themis.identity import TOKEN_VARIABLE
from themis.lifecycle import APP_LIFECYCLE
from themis.queues import ONE_QUEUE
from themis.sessions import adopting_orphans
from themis.web.local_peer import is_loopback_name
from themis.wire import themis_pb2_grpc as rpc

LOG = logging.getLogger("themis.rm")

T = TypeVar("T")

_APPS_SHOWN = 10
"""Ids in the log line of a stop."""

_ALLOCATIONS = 50_000
"""How rarely the garbage collector runs: with thousands of apps a look at all objects takes a tenth of a second."""

_MESSAGE_BYTES = 16 * 1024 * 1024
_OPTIONS = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    # Of a connection that says nothing, and of all of them: a caller without a token must not take all file handles.
    ("grpc.server_handshake_timeout_ms", 20_000),
    # Without a call. App masters have one, and other clients connect again when they call.
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.max_concurrent_streams", 1_000),
    ("grpc.http2.bdp_probe", 0),
    # App masters that know a standby ping every ten seconds (`themis.addresses.keepalive_options`).
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
]


def run(settings: RmSettings, engine: Engine | None = None, *, standby: bool = False) -> int:
    """Run a ResourceManager until SIGTERM or SIGINT. Returns the exit code.

    Args:
        settings: All settings.
        engine: Not yet opened; by default the one that the settings name.
        standby: Wait while another ResourceManager runs, and take over when that one ends.
    """
    keep_private()
    # App masters and tasks inherit the environment, and must not act as the operator.
    os.environ.pop(TOKEN_VARIABLE, None)
    _check_listeners(settings)
    # Before anything waits for an engine.
    load_tls(settings.tls)
    # Earlier versions created these readable for all users. The folder itself may hold files of others.
    for name in ("rm.sqlite", "rm.sqlite-wal", "rm.sqlite-shm", "address", "apps", "markets", "archive", "code"):
        # App masters that run on as their submitters need the way into the folder of apps.
        if not lets_others_pass(settings.state_dir / name):
            make_private(settings.state_dir / name)
    # The launcher of app masters on this machine ends their orphans.
    ends_orphans = engine is None and settings.engine == "local"
    if engine is None:
        engine = open_engine(settings)
    make_policy(settings.policy)
    if settings.queues is not None:
        load_queues(settings.queues)
    with few_collections(_ALLOCATIONS), adopting_orphans() if ends_orphans else contextlib.nullcontext():
        return asyncio.run(_serve(settings, engine, standby=standby))


def _check_listeners(settings: RmSettings) -> None:
    """Raise InputError if others than this machine's users could reach the service, unless `insecure` allows it."""
    if settings.exposure:
        LOG.warning("insecure: %s", settings.exposure)
    if settings.insecure or (settings.tls.enabled and not settings.anonymous):
        return
    for key, address in (("listen", settings.listen), ("page", settings.page)):
        host = address.rpartition(":")[0].strip("[]")
        if address and not is_loopback_name(host):
            remedy = "set `tls` (`themis rm init`), listen at 127.0.0.1, or set `insecure: true` in a trusted network"
            what = "everybody could do everything" if settings.anonymous else "tokens would travel without encryption"
            raise InputError(f"{key}: beyond this machine, {what}", value=address, remedy=remedy)


async def _serve(settings: RmSettings, engine: Engine, *, standby: bool = False) -> int:
    stop = StopOrder()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.give)
    # A service manager knows the process, but not where it listens.
    loop.add_signal_handler(signal.SIGUSR1, partial(stop.give, keep_apps=True))
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(engine.close)
        folder = await _unless_stopped(engine.shared_folder(), stop)
        lock = None if folder is None else FolderLock(folder, LockHolder.this_process(settings.state_dir))
        if lock is not None:
            opened.push_async_callback(_released, lock)
            await _unless_stopped(_locked(lock, settings, standby=standby), stop)
            losing = asyncio.ensure_future(_stop_if_lost(lock, stop))
            opened.callback(losing.cancel)
        if stop.given.is_set():
            return stop.exit_code
        store = await asyncio.to_thread(_open_store, settings, folder, lock)
        opened.callback(store.close)

        await _serve_from(store, settings, engine, stop, lock or NoLock())
    return stop.exit_code


async def _serve_from(store: StateStore, settings: RmSettings, engine: Engine, stop: StopOrder, lock: HeldLock) -> None:
    clock = clock_of(store)
    cluster = await _unless_stopped(engine.open(), stop)
    if cluster is None:
        return
    server = Server(settings, cluster, store, clock, engine, stop=stop, lock=lock)
    try:
        await _unless_stopped(server.start(), stop)
        await stop.given.wait()
    finally:
        # No order means that the start failed, for example on a full disk. Apps of a former process then run on.
        await server.stop(keep_apps=stop.keep_apps or not stop.given.is_set())


def _open_store(settings: RmSettings, folder: SharedFolder | None, lock: FolderLock | None) -> SqliteStore:
    path = settings.state_dir / "rm.sqlite"
    if not settings.standby.enabled or folder is None or lock is None:
        return SqliteStore(path)

    def check_lock() -> None:
        if not lock.is_fresh():
            raise StoreError("the lock of the shared folder was not renewed for too long", value=folder.place)

    return SharedStore(path, SharedLog(folder), check_lock)


async def _locked(lock: FolderLock, settings: RmSettings, *, standby: bool) -> None:
    """Take the lock. While another ResourceManager has it, a standby shows a page that says so."""
    page = StandbyPage()

    def waits_for(holder: str) -> None:
        if standby:
            LOG.info("standby of %s", holder)
            page.holder = holder

    if standby and settings.page:
        tls = load_tls(settings.tls)
        await page.start(settings.page, None if tls is None else tls.context)
    try:
        await lock.acquire(wait=standby, on_wait=waits_for)
    finally:
        await page.stop()


async def _released(lock: FolderLock) -> None:
    try:
        await lock.give_back()
    except ThemisError as error:
        LOG.warning("the lock of the shared folder is not released, and will expire: %s", error)


class StopOrder:
    """The order to stop. `given` is set by the first order; later orders change nothing."""

    def __init__(self) -> None:
        self.given = asyncio.Event()
        self.keep_apps = False
        self.exit_code = 0

    def give(self, *, keep_apps: bool = False, exit_code: int = 0) -> None:
        """Stop; with `keep_apps` app masters and tasks run on, for the next start."""
        if not self.given.is_set():
            self.keep_apps, self.exit_code = keep_apps, exit_code
            self.given.set()


async def _stop_if_lost(lock: FolderLock, stop: StopOrder) -> None:
    """Stop once another ResourceManager has the lock. The apps run on, because they are its apps now."""
    try:
        await lock.keep()
    except LockLostError as error:
        LOG.error("%s: this ResourceManager stops, and leaves its apps running", error)
        stop.give(keep_apps=True, exit_code=1)


async def _unless_stopped(work: Coroutine[None, None, T], stop: StopOrder) -> T | None:
    """Return the result of `work`, or None if the order to stop comes first: the work may wait for an engine."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.given.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return None
    finally:
        stopping.cancel()


class Server:
    """A ResourceManager with its services on one loop; for tests, several fit in one process.

    Args:
        settings: All settings.
        cluster: The machines that the engine has now.
        store: The state of an earlier run, or an empty store.
        clock: The wall clock, see `clock_of`.
        engine: The opened engine; by default processes of this machine.
        stop: Takes the order to stop of an operator's command.
        lock: Keeps other ResourceManagers from the engine.
    """

    def __init__(
        self,
        settings: RmSettings,
        cluster: Cluster,
        store: StateStore,
        clock: Clock,
        engine: Engine | None = None,
        stop: StopOrder | None = None,
        lock: HeldLock | None = None,
    ) -> None:
        self._lock = lock or NoLock()
        self._settings = settings
        self._store = store
        self._clock = clock
        self._background: list[asyncio.Task[None]] = []
        self._page: RmPage | None = None
        run_id = _run_id(store)
        self._auctioneer = Auctioneer(settings.auction.solver, settings.auction.time_limit_s)
        recorder = Recorder(store, clock)
        folders = (settings.files_dir / "apps").glob("app-*")
        self._entries = restored_entries(store, settings.state_dir / "refusals.key", folders)
        engine = engine or LocalEngine(cluster)
        policy = make_policy(settings.policy)
        kept_cluster = with_kept(cluster, recorder.kept_cluster())
        report_unreadable(recorder.summary)
        arbiter = _arbiter(settings, kept_cluster, store, clock, self._entries, policy, recorder.summary)
        kept = recorder.batch()
        kept.cluster(arbiter.cluster)
        recorder.write_now(kept)

        def machines_of(app_id: str) -> set[str]:
            return {lease.gpu.machine_id for lease in arbiter.table.of_app(app_id)}

        self.manager = ResourceManager(
            settings=settings,
            arbiter=arbiter,
            entries=self._entries,
            recorder=recorder,
            launcher=engine.launcher(run_id, self._am_exited, machines_of, self._lock),
            clock=clock,
            fetch_logs=engine.fetch_logs,
            check_owner=engine.check_owner,
            lock=self._lock,
        )
        self.manager.live_cluster.drained = restored_value(store, DRAINED, frozenset[str], frozenset())
        identities = self.manager.identities
        identities.tokens = restored_value(store, USER_TOKENS, dict[str, UserToken], {})
        self.manager.hooks.restore(restored_value(store, HOOKS, list[Delivery], []))
        connections = self.manager.connections
        options = [*_OPTIONS, ("grpc.max_allowed_incoming_connections", connections.most)]
        authentication = Authentication(identities, connections.note_user)
        self._server = grpc.aio.server(options=options, interceptors=[authentication])
        self._tls = load_tls(settings.tls)
        self.manager.certificate_expires_at_s = 0.0 if self._tls is None else self._tls.expires_at_s
        self._local_tokens = LocalTokens(identities, "" if self._tls is None else self._tls.authorities)
        self._stop_order = stop or StopOrder()
        self._nodes = NodeWatch(self.manager, engine.inventory(), engine.poll_s)
        self.manager.rounds = RoundRunner(
            settings=settings,
            arbiter=arbiter,
            policy=policy,
            entries=self._entries,
            hosted=self.manager.hosted,
            changes=self.manager.changes,
            auctioneer=self._auctioneer,
            clock=clock,
            notify=self.manager.notify,
            before_round=self.manager.live_cluster.before_round,
            grantable_gpus=self.manager.live_cluster.grantable_gpus,
            heartbeat_s=self.manager.app_masters.heartbeat_s,
        )

    async def start(self) -> str:
        """Listen, recover and begin to run rounds. Returns the address, and writes it to the file `address`."""
        rpc.add_ArbiterServiceServicer_to_server(ArbiterService(self.manager), self._server)
        rpc.add_ClientServiceServicer_to_server(ClientService(self.manager, self._settings.policy), self._server)
        admin = AdminService(self.manager, self._nodes, self._stop_order.give, lambda: self._lock.standbys)
        rpc.add_AdminServiceServicer_to_server(admin, self._server)
        address = self.manager.app_masters.launches.rm_address = self._listen()
        if self._tls is not None:
            first = (*self._settings.standby.addresses, address)[0]
            self.manager.app_masters.launches.rm_environment = self._tls.trust(first).environment()
        port = int(address.rpartition(":")[2])
        await self._local_tokens.start(port)
        _abandon_open_round(self.manager.recorder)
        self._record_start(recovered=bool(list(self._entries)))
        await self._server.start()
        _write_address(self._settings.state_dir / "address", address)
        LOG.info("listening on %s, state in %s", address, self._settings.state_dir.absolute())
        if self._tls is not None:
            self._tls.report(address)
        if self._settings.starts_at_grant:
            self.manager.hosted.start()
        run_on = await self.manager.app_masters.recover()
        if apps := len(list(self._entries.active())):
            LOG.info("apps of an earlier run: %d run on, %d start again", run_on, apps - run_on)
        await self._nodes.look()
        if self._settings.page:
            self._page = RmPage(self.manager, self._settings.policy)
            context = None if self._tls is None else self._tls.context
            self.manager.page_url = await self._page.start(self._settings.page, context)
            LOG.info("the page is at %s", self.manager.page_url)
        manager = self.manager
        manager.hooks.start()
        for work in (
            manager.rounds.run(),
            manager.app_masters.watch_over(),
            self._nodes.run(),
            manager.retention.run(),
            manager.connections.run(port),
        ):
            self._background.append(asyncio.get_running_loop().create_task(work))
        return address

    async def stop(self, *, keep_apps: bool = False) -> None:
        """End the apps of this run unless `keep_apps`, the sessions and the loops."""
        if apps := [entry.app_id for entry in self._entries.active()]:
            what = "run on; the next start takes them up" if keep_apps else "are stopped; the next start resumes them"
            shown = ", ".join(apps[:_APPS_SHOWN]) + (", .." if len(apps) > _APPS_SHOWN else "")
            LOG.info("stopping; these apps %s: %s", what, shown)
        else:
            LOG.info("stopping; no app is active")
        for task in self._background:
            task.cancel()
        # The apps must be ended even if one of the loops failed.
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._page is not None:
            await self._page.stop()
        await self.manager.hooks.close()
        await self.manager.app_masters.close(keep_apps=keep_apps)
        await self._server.stop(grace=0.5)
        await self._local_tokens.stop()
        await self.manager.changes.close()
        self.manager.sessions.own_pages.close()
        self.manager.estimates.close()
        self._auctioneer.close()
        with contextlib.suppress(FileNotFoundError):
            (self._settings.state_dir / "address").unlink()

    def _listen(self) -> str:
        """Bind to a port and return the address.

        A port that the system chose is kept over restarts, so that app masters can reconnect.
        """
        host, _, port = self._settings.listen.rpartition(":")
        former_port = (self._store.meta("address") or "").rpartition(":")[2]
        former = f"{host}:{former_port}" if port == "0" and former_port else None
        for wanted in filter(None, (former, self._settings.listen)):
            try:
                if self._tls is None:
                    bound = self._server.add_insecure_port(wanted)
                else:
                    bound = self._server.add_secure_port(wanted, self._tls.credentials())
            except RuntimeError:
                continue
            address = f"{self._settings.advertise or host}:{bound}"
            with self._store.transaction() as transaction:
                transaction.put_meta("address", address)
            return address
        raise InputError("cannot listen", value=self._settings.listen, remedy="is another one running there?")

    async def _am_exited(self, exit_: AmExit) -> None:
        await self.manager.app_masters.am_exited(exit_)

    def _record_start(self, *, recovered: bool) -> None:
        cluster = self.manager.arbiter.cluster
        detail: dict[str, object] = {
            "cluster": cluster.name,
            "gpus": cluster.gpus,
            "machines": len(cluster.machines),
            "policy": self._settings.policy,
            "lease_s": self._settings.lease.duration_s,
            "time_scale": self._settings.time_scale,
            "seed": self._settings.seed,
            "recovered": recovered,
        }
        if not traits_of(make_policy(self._settings.policy)).work_conserving:
            detail["work_conserving"] = False
        self.manager.recorder.record("rm_started", detail=detail)


def clock_of(store: StateStore) -> WallClock:
    """Return the clock of a ResourceManager with this store. It never runs behind a time in the store.

    While apps are active, it follows the machine's monotonic clock. So a change of the wall clock ends no lease and
    adds no GPU time (docs/decisions/0054).
    """
    try:
        mark = ClockMark.from_text(store.meta("clock") or "")
    except ValueError:
        # The store is damaged or of an earlier version.
        known = [time_s or 0.0 for app in store.apps() for time_s in (app.submitted_at_s, app.finished_at_s)]
        known += [lease.granted_at_s for lease in store.leases(held_only=False)]
        mark = ClockMark(time_s=max(known, default=0.0))
    clock = WallClock(mark, follow=any(not APP_LIFECYCLE.is_final(state) for state in store.counts(archived=False)))
    if abs(clock.ahead_s) > 1.0:
        LOG.warning("the wall clock was set: times are %.1f s ahead of it until a start with no app", clock.ahead_s)
    return clock


def _arbiter(
    settings: RmSettings,
    cluster: Cluster,
    store: StateStore,
    clock: Clock,
    entries: AppEntries,
    policy: Policy,
    summary: LogSummary,
) -> Arbiter:
    """Restore the arbiter from the store and the summary of its log. An empty store gives a new arbiter."""
    warn_of_refused(entries, settings.policy)
    running = lasting_leases(store, cluster, entries, clock.now_s())
    origin = store.meta("grid_origin_s")
    if origin is None or not is_finite(origin):
        origin = repr(clock.now_s())
        with store.transaction() as transaction:
            transaction.put_meta("grid_origin_s", origin)
    arbiter = Arbiter(
        cluster,
        LeasePolicy(
            duration_s=settings.lease.duration_s,
            ends=settings.lease.ends,
            checkpoint_lead_s=settings.lease.checkpoint_lead_s,
            grace_s=settings.lease.grace_s,
        ),
        RoundSettings(
            f=settings.auction.f,
            empty_bundle=settings.auction.empty_bundle,
            rounding=settings.auction.rounding,
            payments=settings.auction.payments,
            bidders=settings.auction.bidders,
            values=settings.auction.values,
            leftovers=settings.auction.leftovers,
            tenant_of=settings.tenant_of,
            tenant_weights=settings.tenant_weights,
            placer=settings.placer,
            cap_demand=settings.cap_demand,
            profiling_runs=settings.profiling_runs,
            alpha=settings.alpha,
            late_order=settings.late_order,
            preemption_margin=settings.preemption_margin,
            queues=ONE_QUEUE if settings.queues is None else load_queues(settings.queues),
        ),
        seed=settings.seed,
        grid_origin_s=float(origin),
        table=LeaseTable(cluster, running, next_lease_id=max(store.last_lease_id(), summary.last_lease) + 1),
        next_round_id=summary.last_round + 1,
        memory=restored_memory(summary.memory, policy, summary.memory_policy),
    )
    # Another policy decides anew why an app waits.
    waits = restored_waits(summary.waits) if summary.memory_policy in ("", policy.name) else {}
    prolonged: defaultdict[str, list[int]] = defaultdict(list)
    for lease_id, app_id in summary.prolonged.items():
        prolonged[app_id].append(lease_id)
    # By arrival, since the arbiter's time does not run back.
    for entry in sorted(entries.active(), key=lambda entry: entry.arrived_at_s):
        if not entry.is_admitted:
            continue
        entry.wait = waits.get(entry.app_id)
        arbiter.add_app(
            entry.app_id,
            now_s=entry.arrived_at_s,
            attained_gpu_s=summary.attained_gpu_s.get(entry.app_id, 0.0),
            owner=entry.owner,
            resources=entry.spec.resources,
            waiting=prolonged.get(entry.app_id, ()),
        )
        arbiter.set_silent(entry.app_id, True)
    away = [entry for entry in entries if not entry.is_admitted]
    arbiter.note_paused(entry.app_id for entry in away if not entry.ended)
    arbiter.note_ended(EndedApp(entry.app_id, entry.owner, entry.arrived_at_s, entry.gpu_time_s) for entry in away)
    return arbiter


def with_kept(cluster: Cluster, kept: Cluster | None) -> Cluster:
    """Return the present machines and the former ones: running apps may have leases on a missing machine."""
    if kept is None:
        return cluster
    known = {machine.machine_id for machine in kept.machines}
    # Known machines keep their former GPUs, which may be leased. `NodeWatch` applies later changes.
    machines = kept.machines + tuple(machine for machine in cluster.machines if machine.machine_id not in known)
    return Cluster(name=cluster.name, machines=machines, devices={**kept.devices, **cluster.devices})


def _abandon_open_round(recorder: Recorder) -> None:
    """Close the round that a killed ResourceManager left open. It granted all that it decided, or nothing."""
    for round_id in sorted(recorder.summary.open_rounds):
        recorder.record("round_ended", detail={"round_id": round_id, "duration_ms": 0.0, "outcome": "abandoned"})


def _run_id(store: StateStore) -> str:
    """Return the mark of this ResourceManager's app masters and tasks. It stays the same over restarts.

    A driver may set it with THEMIS_RUN_ID. The variable is removed from our own environment: child processes of the
    service inherit that, and must not be killed as leftover tasks.
    """
    given = os.environ.pop("THEMIS_RUN_ID", None)
    run_id = store.meta("run_id") or given or uuid.uuid4().hex
    with store.transaction() as transaction:
        transaction.put_meta("run_id", run_id)
    return run_id


def _write_address(path: Path, address: str) -> None:
    # A program that waits for the file must never read half of it.
    partial = path.with_suffix(".partial")
    partial.write_text(address + "\n", encoding="utf-8")
    partial.replace(path)
