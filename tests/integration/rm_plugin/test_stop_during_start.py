"""A ResourceManager whose start waits stops at SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from live_rm import settings

from rm_plugin.engines.engine import LocalEngine
from rm_plugin.service import server
from rm_plugin.service.app_masters import AppMasters
from themis.cluster import Cluster
from themis.config.cluster_file import load_cluster
from themis.config.rm_settings import RmSettings


class EngineThatIsAway(LocalEngine):
    """Its machines can never be read."""

    async def open(self) -> Cluster:
        await asyncio.Event().wait()
        raise AssertionError


async def recover_forever(_app_masters: AppMasters) -> None:
    await asyncio.Event().wait()


def exit_code_after_sigterm(configured: RmSettings, engine: LocalEngine) -> int:
    async def scenario() -> int:
        serving = asyncio.ensure_future(server._serve(configured, engine))
        await asyncio.sleep(1)
        assert not serving.done()
        os.kill(os.getpid(), signal.SIGTERM)
        return await asyncio.wait_for(serving, 10)

    return asyncio.run(scenario())


def test_a_start_that_waits_for_the_engine_ends_at_sigterm(tmp_path: Path) -> None:
    configured = settings(tmp_path)
    assert exit_code_after_sigterm(configured, EngineThatIsAway(load_cluster(configured.cluster))) == 0


def test_a_recovery_that_waits_ends_at_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AppMasters, "recover", recover_forever)
    configured = settings(tmp_path)
    assert exit_code_after_sigterm(configured, LocalEngine(load_cluster(configured.cluster))) == 0
    assert not (tmp_path / "address").exists()
