"""While YARN or its NodeManagers do not answer, the other parts of the ResourceManager have threads."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from shared_folder_cases import MemoryFolder
from taken_threads import all_common_threads_taken

from rm_plugin.engines import yarn, yarn_launcher
from rm_plugin.engines.folder_lock import FolderLock, LockHolder
from rm_plugin.engines.port import AmLaunch
from rm_plugin.engines.yarn import YarnEngine, node_devices
from rm_plugin.engines.yarn_inventory import YarnInventory
from rm_plugin.engines.yarn_launcher import AmTemplate, YarnAppLauncher
from themis.config.rm_settings import RmSettings, YarnSettings
from themis.hadoop.node_managers import NodesReply
from themis.queues import AppOwner

TEMPLATE = AmTemplate(python="py", environment={}, templates={}, resources=(), storage_of=str)
ORDER = AmLaunch(app_id="app-1", attempt=1, environment={}, working_dir=Path("/here"))


class AbsentYarn:
    """Answers no call until `back` is set."""

    def __init__(self):
        self.asked, self.back = threading.Event(), threading.Event()

    def answer(self, *_, **__):
        self.asked.set()
        self.back.wait()
        return ()

    submit = reports = kill = nodes = queues = answer


@pytest.fixture
def absent(monkeypatch):
    one = AbsentYarn()
    monkeypatch.setattr(yarn_launcher, "living_containers", lambda *_: NodesReply(living=one.answer()))
    monkeypatch.setattr(yarn_launcher, "submission_tokens", lambda **_: b"")
    monkeypatch.setattr(yarn_launcher, "current_user", lambda: "themis")
    monkeypatch.setattr(yarn, "fetch_archive", one.answer)
    yield one
    one.back.set()


async def on_exit(_end):
    pass


def launcher(absent):
    return YarnAppLauncher(
        absent, "run7", on_exit, template=TEMPLATE, settings=YarnSettings(), node_addresses=lambda *_: ("n1:8042",)
    )


def engine(absent):
    one = YarnEngine(RmSettings(engine="yarn"), None)
    one._client = absent
    one._inventory = YarnInventory(absent, node_devices(YarnSettings(emulated=True), None))
    return one


CALLS = {
    "a launch": lambda absent: launcher(absent).launch(ORDER),
    "an adoption": lambda absent: launcher(absent).adopt("app-1", 1, 1),
    "a kill": lambda absent: launcher(absent).kill("app-1"),
    "its attempts": lambda absent: launcher(absent).attempts("app-1", 1),
    "a drain": lambda absent: launcher(absent)._drained(
        yarn_launcher._Followed(app_id="app-1", attempt=1, yarn_app_id="application_17_0001")
    ),
    "the nodes": lambda absent: engine(absent).inventory().read(),
    "the queues": lambda absent: engine(absent).check_owner(AppOwner(user="ada", queue="research")),
    "logs on HDFS": lambda absent: engine(absent).fetch_logs("app-1", "", Path("/here")),
}


def with_one_thread(scenario, absent):
    """Run with a single thread for all that has none of its own."""

    async def whole():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        try:
            await asyncio.wait_for(scenario(), 60)
        finally:
            absent.back.set()

    asyncio.run(whole())


@pytest.mark.parametrize("call", CALLS)
def test_calls_that_wait_for_hadoop_hold_up_nothing_else(absent, call):
    async def scenario():
        waits = asyncio.ensure_future(CALLS[call](absent))
        while not absent.asked.is_set():
            await asyncio.sleep(0.001)
        assert await asyncio.wait_for(asyncio.to_thread(str, 1), 30) == "1"
        waits.cancel()
        absent.back.set()
        await asyncio.gather(waits, return_exceptions=True)

    with_one_thread(scenario, absent)


def test_submissions_that_wait_for_yarn_do_not_hold_up_the_question_for_its_nodes(absent):
    async def scenario():
        one = launcher(absent)
        launches = [asyncio.ensure_future(one.launch(ORDER)) for _ in range(2 * yarn_launcher._CALLS)]
        while not absent.asked.is_set():
            await asyncio.sleep(0.001)
        nodes = AbsentYarn()
        nodes.back.set()
        assert (await asyncio.wait_for(engine(nodes).inventory().read(), 30)).nodes == ()
        for each in launches:
            each.cancel()
        absent.back.set()
        await asyncio.gather(*launches, return_exceptions=True)

    with_one_thread(scenario, absent)


def test_other_parts_do_not_hold_up_the_lock(tmp_path):
    lock = FolderLock(MemoryFolder(), LockHolder.this_process(tmp_path), sleep=lambda _seconds: asyncio.sleep(0.01))

    async def scenario():
        async with all_common_threads_taken():
            await lock.acquire()
            lock._renewed_s -= 60.0
            await lock.confirm()
            assert lock.is_fresh()
            lock._renewed_s -= 60.0
            renewing = asyncio.ensure_future(lock.keep())
            while not lock.is_fresh():
                await asyncio.sleep(0.001)
            renewing.cancel()
            await lock.give_back()

    asyncio.run(scenario())
