"""A ResourceManager whose start fails or that loses its lock ends no app; one that is ordered to stop does."""

import asyncio

import pytest
from service_cases import CLUSTER
from shared_folder_cases import MemoryFolder

from rm_plugin.engines.folder_lock import LockLostError
from rm_plugin.service import server as server_module
from themis.config.rm_settings import RmSettings


class Engine:
    """An engine that is there at once."""

    def __init__(self):
        self.closed = False

    async def shared_folder(self):
        return None

    async def open(self):
        return CLUSTER

    async def close(self):
        self.closed = True


@pytest.fixture
def stopped(monkeypatch):
    """How a server was stopped whose start does what `during_start` says."""
    stops = []

    class Server:
        during_start = staticmethod(lambda stop: None)

        def __init__(self, *_parts, stop, lock):
            self.order = stop

        async def start(self):
            Server.during_start(self.order)

        async def stop(self, *, keep_apps):
            stops.append(keep_apps)

    monkeypatch.setattr(server_module, "Server", Server)
    return Server, stops


def serve(folder, engine=None):
    settings = RmSettings.model_validate({"cluster": "unused", "state_dir": folder})
    engine = engine or Engine()
    try:
        return asyncio.run(asyncio.wait_for(server_module._serve(settings, engine), 20))
    finally:
        assert engine.closed


@pytest.fixture(autouse=True)
def stores(monkeypatch):
    """Each store that was opened; all must be closed in the end."""
    opened = []

    class Store(server_module.SqliteStore):
        def __init__(self, path):
            super().__init__(path)
            self.closed = False
            opened.append(self)

        def close(self):
            super().close()
            self.closed = True

    monkeypatch.setattr(server_module, "SqliteStore", Store)
    yield
    assert opened
    assert all(store.closed for store in opened)


def test_start_that_fails_leaves_apps_running(tmp_path, stopped):
    server, stops = stopped

    def fail(_order):
        raise OSError("no space left on device")

    server.during_start = staticmethod(fail)
    with pytest.raises(OSError, match="no space"):
        serve(tmp_path)
    assert stops == [True]


@pytest.mark.parametrize("keep_apps", [False, True])
def test_order_to_stop_decides_over_the_apps(tmp_path, stopped, keep_apps):
    server, stops = stopped
    server.during_start = staticmethod(lambda order: order.give(keep_apps=keep_apps))
    assert serve(tmp_path) == 0
    assert stops == [keep_apps]


def test_resource_manager_that_loses_its_lock_leaves_apps_running(tmp_path, stopped, monkeypatch):
    _, stops = stopped

    async def lost(_lock):
        raise LockLostError("another ResourceManager has the lock")

    class EngineWithFolder(Engine):
        async def shared_folder(self):
            return MemoryFolder()

    monkeypatch.setattr(server_module.FolderLock, "keep", lost)
    assert serve(tmp_path, EngineWithFolder()) == 1
    assert stops == [True]
