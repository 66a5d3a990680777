"""Parts end their threads when they are closed, and wait for no call that does not return."""

import asyncio
import threading
from pathlib import Path

import pytest
from shared_folder_cases import MemoryFolder

from rm_plugin.engines import folder_lock, yarn
from rm_plugin.engines.folder_lock import FolderLock, LockHolder
from rm_plugin.engines.yarn import YarnEngine, node_devices
from rm_plugin.engines.yarn_inventory import YarnInventory
from rm_plugin.engines.yarn_launcher import AmTemplate, YarnAppLauncher
from themis.config.rm_settings import RmSettings, YarnSettings
from themis.docker_host import DockerHost
from themis.errors import UnreachableError
from themis.queues import AppOwner

TEMPLATE = AmTemplate(python="py", environment={}, templates={}, resources=(), storage_of=str)


class Client:
    """Of YARN or Docker. A call does not return before `back` is set.

    `others` are threads of other tests, which may not close their parts.
    """

    def __init__(self):
        self.back, self.closed = threading.Event(), False
        self.others = set(threading.enumerate())

    def answer(self, *_, **__):
        self.back.wait()
        return ()

    reports = nodes = queues = answer

    def close(self):
        self.closed = True


@pytest.fixture
def client():
    one = Client()
    yield one
    one.back.set()


def threads_of(client):
    prefixes = ("yarn", "node-managers", "hdfs-logs", "lock", "docker")
    threads = set(threading.enumerate()) - client.others
    return [thread for thread in threads if thread.name.startswith(prefixes)]


async def none_left(client):
    while threads_of(client):
        await asyncio.sleep(0.001)


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario(), 20))


def engine_of(client):
    engine = YarnEngine(RmSettings(engine="yarn"), None)
    engine._client = client
    engine._inventory = YarnInventory(client, node_devices(YarnSettings(emulated=True), None))
    engine._launcher = YarnAppLauncher(
        client, "run7", on_exit, template=TEMPLATE, settings=YarnSettings(poll_s=0.01), node_addresses=lambda *_: ()
    )
    return engine


async def on_exit(_end):
    pass


def test_closed_engine_of_yarn_has_no_threads(client, caplog):
    """Applications that run on are followed no more, so no call fails for want of threads."""

    async def scenario():
        client.back.set()
        engine = engine_of(client)
        assert not await engine._launcher.adopt("app-1", 1, 1)
        engine._launcher._follow("app-2", 1, "application_17_0001")
        await engine.inventory().read()
        assert threads_of(client)
        await engine.close()
        assert client.closed
        await none_left(client)
        await asyncio.sleep(0.05)
        assert not caplog.records

    run(scenario)


def test_engine_of_yarn_is_closed_while_no_call_returns(client, monkeypatch):
    monkeypatch.setattr(yarn, "_CLOSE_S", 0.05)

    async def scenario():
        engine = engine_of(client)
        owner = AppOwner(user="ada", queue="research")
        calls = [engine._launcher.attempts("app-1", 1), engine.inventory().read()]
        calls += [engine.check_owner(owner) for _ in range(yarn._QUEUE_CALLS)]
        tasks = [asyncio.ensure_future(call) for call in calls]
        while len(threads_of(client)) < len(tasks):
            await asyncio.sleep(0.001)
        await engine.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        client.back.set()
        await none_left(client)

    run(scenario)


def test_stop_does_not_wait_for_a_shared_folder_that_hangs(client, monkeypatch):
    monkeypatch.setattr(folder_lock, "GIVE_BACK_S", 0.05)

    async def scenario():
        lock = FolderLock(MemoryFolder(), LockHolder.this_process(Path("/here")))
        await lock.acquire()
        monkeypatch.setattr(lock, "renew", client.answer)
        renewal = asyncio.ensure_future(lock._threads.run(lock.renew))
        await asyncio.sleep(0.01)
        with pytest.raises(UnreachableError, match="does not answer"):
            await lock.give_back()
        renewal.cancel()
        client.back.set()
        await none_left(client)

    run(scenario)


def test_closed_docker_host_has_no_threads(client):
    async def scenario():
        host = DockerHost(client)
        await host.threads.run(len, "call")
        assert threads_of(client)
        host.close()
        assert client.closed
        await none_left(client)

    run(scenario)
