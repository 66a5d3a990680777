"""A ResourceManager stops at signals although its start waits, and if another one takes its lock."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from live_rm import settings
from shared_folder_cases import MemoryFolder

from rm_plugin.engines import folder_lock
from rm_plugin.engines.engine import LocalEngine
from rm_plugin.engines.shared_folder import SharedFolder
from rm_plugin.service import server
from rm_plugin.service.app_masters import AppMasters
from themis.cluster import Cluster
from themis.config.cluster_file import load_cluster
from themis.config.rm_settings import RmSettings


class EngineThatIsAway(LocalEngine):
    """Its machines can never be read."""

    def __init__(self, cluster: Cluster, waits: Waits) -> None:
        super().__init__(cluster)
        self._waits = waits

    async def open(self) -> Cluster:
        await self._waits()
        raise AssertionError


class Waits:
    """A call that never returns."""

    def __init__(self) -> None:
        self.has_begun = False

    async def __call__(self, *_arguments: object) -> None:
        self.has_begun = True
        await asyncio.Event().wait()


async def until(condition: Callable[[], object], serving: asyncio.Future[int]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            assert not serving.done()
            await asyncio.sleep(0.01)


def exit_code_after(
    number: signal.Signals, configured: RmSettings, engine: LocalEngine, begun: Callable[[], object]
) -> int:
    async def scenario() -> int:
        serving = asyncio.ensure_future(server._serve(configured, engine))
        await until(begun, serving)
        os.kill(os.getpid(), number)
        return await asyncio.wait_for(serving, 60)

    return asyncio.run(scenario())


def test_a_start_that_waits_for_the_engine_ends_at_sigterm(tmp_path: Path) -> None:
    configured, waits = settings(tmp_path), Waits()
    engine = EngineThatIsAway(load_cluster(configured.cluster), waits)
    assert exit_code_after(signal.SIGTERM, configured, engine, lambda: waits.has_begun) == 0


def test_a_recovery_that_waits_ends_at_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured, waits = settings(tmp_path), Waits()
    monkeypatch.setattr(AppMasters, "recover", waits)
    engine = LocalEngine(load_cluster(configured.cluster))
    assert exit_code_after(signal.SIGTERM, configured, engine, lambda: waits.has_begun) == 0
    assert not (tmp_path / "address").exists()


class EngineWithLock(LocalEngine):
    """Has a shared folder in memory."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.folder = MemoryFolder()

    async def shared_folder(self) -> SharedFolder | None:
        return self.folder


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each stop, whether the apps run on."""
    noted: list[bool] = []
    close = AppMasters.close

    async def note(self: AppMasters, *, keep_apps: bool = False) -> None:
        noted.append(keep_apps)
        await close(self, keep_apps=keep_apps)

    monkeypatch.setattr(AppMasters, "close", note)
    return noted


def test_the_signal_of_the_systemd_unit_stops_and_keeps_the_apps_wherever_it_listens(
    tmp_path: Path, kept: list[bool]
) -> None:
    unit = (Path(__file__).parents[3] / "conf/themis-rm.service").read_text(encoding="utf-8")
    (name,) = re.findall(r"^KillSignal=(\w+)$", unit, re.MULTILINE)
    assert "ExecStop=" not in unit
    configured = settings(tmp_path)
    engine = LocalEngine(load_cluster(configured.cluster))
    assert exit_code_after(signal.Signals[name], configured, engine, (tmp_path / "address").exists) == 0
    assert kept == [True]


def test_a_resource_manager_that_lost_its_lock_stops_and_keeps_its_apps(
    tmp_path: Path, kept: list[bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    configured = settings(tmp_path)
    engine = EngineWithLock(load_cluster(configured.cluster))
    monkeypatch.setattr(folder_lock, "RENEW_S", 0.2)

    async def scenario() -> int:
        serving = asyncio.ensure_future(server._serve(configured, engine))
        await until((tmp_path / "address").exists, serving)
        engine.folder.create("lock-00000002", b"{}")
        return await asyncio.wait_for(serving, 60)

    assert asyncio.run(scenario()) == 1
    assert kept == [True]
    assert "another ResourceManager has taken the lock" in caplog.text
