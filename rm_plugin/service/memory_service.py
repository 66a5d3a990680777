"""A ResourceManager in memory, for tests of the service: its store, app masters and clock are the shipped adapters."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from rm_plugin.arbiter.auction import AuctionOutcome
from rm_plugin.arbiter.core import Arbiter, LeasePolicy
from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.engines.memory import MemoryAppLauncher
from rm_plugin.engines.port import AmExit
from rm_plugin.policies.registry import make_policy
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.recorder import Recorder
from rm_plugin.service.restoring import restored_entries
from rm_plugin.service.round_runner import RoundRunner
from rm_plugin.service.session import Session
from rm_plugin.service.store import StoreError, StoreTransaction
from rm_plugin.service.store_memory import MemoryStore
from themis.apps import AppSpec
from themis.bids import Market
from themis.clock import Clock, VirtualClock
from themis.cluster import Cluster, Machine
from themis.config.rm_settings import RmSettings
from themis.wire import themis_pb2 as pb


class FailingStore(MemoryStore):
    """A store that cannot be written while `trouble` says why. `hold` delays writes until `let_go`."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble = ""
        self._breaks: tuple[int, str] | None = None
        self._may_write = threading.Event()
        self._may_write.set()

    def hold(self) -> None:
        """Let writes wait from now on."""
        self._may_write.clear()

    def let_go(self) -> None:
        """Let waiting writes continue."""
        self._may_write.set()

    def break_after(self, writes: int, trouble: str) -> None:
        """Make the store fail with `trouble` after this many more writes."""
        self._breaks = writes, trouble

    @contextlib.contextmanager
    def transaction(self) -> Iterator[StoreTransaction]:
        """Open a transaction of the memory store. Raises StoreError at its end while the store is set to fail."""
        self._may_write.wait(10.0)
        with super().transaction() as transaction:
            yield transaction
            if self._breaks is not None:
                left, trouble = self._breaks
                self._breaks = None if left == 0 else (left - 1, trouble)
                if left == 0:
                    self.trouble = trouble
            if self.trouble:
                raise StoreError("the store cannot be written", value=self.trouble, remedy="repair it")


class NoAuction:
    """An auctioneer whose auctions have no outcome: rounds go on with leftovers only."""

    async def run(self, market: Market) -> AuctionOutcome | None:
        """Return None: no auction has an outcome."""
        return None


class MemoryService:
    """A manager with rounds, over one store that outlives it: `restarted` makes the next one.

    Args:
        folder: `state_dir`.
        gpus: Of the one machine.
        store: What a former one left; else a new one.
        clock: Else a virtual one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        gpus: int = 4,
        store: FailingStore | None = None,
        clock: Clock | None = None,
        **settings: object,
    ) -> None:
        values: dict[str, object] = {
            "cluster": Path("unused"),
            "state_dir": folder,
            "policy": "srtf",
            "app_masters": "at_submit",
            "coalesce_s": 0.0,
            "report_deadline_s": 0.2,
            "validate_state": True,
        }
        self.settings = RmSettings.model_validate(values | settings)
        self.store = store or FailingStore()
        self.clock = clock or VirtualClock(1_000.0)
        self.entries = restored_entries(self.store)
        machine = Machine(machine_id="m0", rack_id="r0", slots=(gpus,))
        self.arbiter = Arbiter(
            Cluster(name="here", machines=(machine,)), LeasePolicy(), RoundSettings(), seed=0, grid_origin_s=0.0
        )
        for entry in sorted(self.entries.active(), key=lambda entry: entry.arrived_at_s):
            if not entry.is_admitted:
                continue
            self.arbiter.add_app(
                entry.app_id, now_s=entry.arrived_at_s, owner=entry.owner, resources=entry.spec.resources
            )
        self.launcher = MemoryAppLauncher(self._am_exited)
        self.manager = ResourceManager(
            settings=self.settings,
            arbiter=self.arbiter,
            entries=self.entries,
            recorder=Recorder(self.store, self.clock),
            launcher=self.launcher,
            clock=self.clock,
        )
        self.rounds = self.manager.rounds = RoundRunner(
            settings=self.settings,
            arbiter=self.arbiter,
            policy=make_policy(self.settings.policy),
            entries=self.entries,
            hosted=self.manager.hosted,
            changes=self.manager.changes,
            auctioneer=NoAuction(),
            clock=self.clock,
            notify=self.manager.notify,
            before_round=self.manager.live_cluster.before_round,
            grantable_gpus=self.manager.live_cluster.grantable_gpus,
            heartbeat_s=self.manager.app_masters.heartbeat_s,
        )

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of all events, in order."""
        return [event.kind for event in self.store.events()]

    async def registered(self, spec: AppSpec) -> tuple[AppEntry, Session]:
        """Submit an app and register its app master."""
        entry = await self.manager.submit(spec)
        return await self.manager.sessions.register(
            pb.Register(
                app_id=entry.app_id,
                token=self.launcher.living[entry.app_id].launch.token,
                attempt=entry.attempt,
                pid=entry.pid,
            )
        )

    async def close(self) -> None:
        """End the service; the store and the apps stay."""
        self.store.let_go()
        await self.manager.app_masters.close(keep_apps=True)
        await self.manager.changes.close()

    async def _am_exited(self, exit_: AmExit) -> None:
        await self.manager.app_masters.am_exited(exit_)


@contextlib.asynccontextmanager
async def memory_service(folder: Path, **choices: object) -> AsyncIterator[MemoryService]:
    """Yield a service, and close it at the end."""
    service = MemoryService(folder, **choices)  # type: ignore[arg-type]
    try:
        yield service
    finally:
        await service.close()


async def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Return once the condition holds. Raises TimeoutError if it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - tests wait for any state, and no event announces its change
            await asyncio.sleep(0.005)
