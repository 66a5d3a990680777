"""Containers of YARN by fakes of its clients: asks, grants, ends, and everything that can come in between."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from am.runtimes import yarn_source
from am.runtimes.port import ExitReason, NoRoomError, SeatRequest
from am.runtimes.remote.source import ContainerWish
from am.runtimes.yarn_source import YarnLimits, YarnSource
from themis.cluster import GpuId
from themis.errors import UnreachableError
from themis.hadoop.errors import AttemptGoneError, ContainerStateError, ResourceAskError, YarnError
from themis.hadoop.values import (
    AllocateReply,
    AskRefusal,
    Container,
    ContainerEnd,
    ExitCode,
    NodeReport,
    NodeState,
    ProcessLaunch,
    Registration,
)

LIMITS = YarnLimits(heartbeat_s=0.01, pin_timeout_s=600.0, memory_mb=700)
"""No test lasts as long as an ask may: what fails at all with them fails at once."""
SHORT = replace(LIMITS, pin_timeout_s=0.3)


class FakeYarn:
    """Both clients at once: grants what is asked unless its host is among the `full`, ends what is stopped."""

    def __init__(self, *, full=(), previous=(), stubborn=(), refusal=None, knows=False):
        self.full, self.stubborn, self.refusal, self.knows = set(full), set(stubborn), refusal, knows
        self.asked, self.withdrawn, self.released, self.started, self.stopped = {}, [], [], [], []
        self.news = []
        self.trouble = []
        self.running = {container.container_id for container in previous}

    def ask(self, ask):
        self.asked[ask.allocation_request_id] = ask

    def withdraw(self, number):
        self.withdrawn.append(number)
        return self.asked.pop(number, None) is not None

    def release(self, container):
        self.released.append(container.container_id)
        self.end(container.container_id, ExitCode.ABORTED)

    def allocate(self, progress):
        if self.trouble:
            raise self.trouble.pop(0)
        granted = [ask for ask in self.asked.values() if ask.host not in self.full]
        for ask in granted:
            del self.asked[ask.allocation_request_id]
        news, self.news = self.news, []
        ended = tuple(item for item in news if isinstance(item, ContainerEnd))
        refused = tuple(item for item in news if isinstance(item, AskRefusal))
        nodes = tuple(item for item in news if isinstance(item, NodeReport))
        recovered = tuple(item for item in news if isinstance(item, Container))
        return AllocateReply(
            granted=tuple(container(ask) for ask in granted),
            ended=ended,
            refused=refused,
            nodes=nodes,
            recovered=recovered,
        )

    def start(self, one, launch):
        if self.refusal is not None and one.host == "h":
            raise self.refusal
        self.started.append(one.container_id)
        self.running.add(one.container_id)

    def has(self, one):
        if isinstance(self.knows, Exception):
            raise self.knows
        return self.knows

    def stop(self, one):
        self.stopped.append(one.container_id)
        if one.host in self.stubborn:
            raise UnreachableError("its node is unreachable")
        self.end(one.container_id, 143)

    def end(self, container_id, code, diagnostics=""):
        self.running.discard(container_id)
        self.news.append(ContainerEnd(container_id=container_id, exit_code=code, diagnostics=diagnostics))


def container(ask=None, container_id="", host="h"):
    host = ask.host if ask else host
    number = ask.allocation_request_id if ask else 0
    return Container(
        container_id=container_id or f"c{number}", host=host, node_id=f"{host}:1", gpus=1, memory_mb=1, vcores=1,
        allocation_request_id=number, raw=None,
    )  # fmt: skip


def wish(seat_id, host="h", gpus=1, **request):
    held = tuple(GpuId(host, index) for index in range(gpus))
    return ContainerWish(
        seat_id=seat_id, request=SeatRequest(job_id="j", task_index=0, gpus=held, **request), environment={}
    )


def run(yarn, scenario, previous=(), largest=(0, 0, 0), limits=LIMITS):
    max_gpus, max_memory_mb, max_vcores = largest
    registration = Registration(
        previous=tuple(previous), max_gpus=max_gpus, max_memory_mb=max_memory_mb, max_vcores=max_vcores
    )

    async def whole():
        source = YarnSource(
            yarn, yarn, lambda wish: ProcessLaunch(commands=(wish.seat_id,)), limits,
            registration=registration, progress=lambda: 0.5,
        )  # fmt: skip
        try:
            return await scenario(source)
        finally:
            await source.close()

    return asyncio.run(asyncio.wait_for(whole(), 60))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def test_ask_has_machine_and_size_of_task():
    yarn = FakeYarn(full=["h", "g"])
    seen = []

    async def scenario(source):
        asking = asyncio.ensure_future(
            asyncio.gather(
                source.acquire(wish("a", gpus=2, memory_mb=900, vcores=3)), source.acquire(wish("b", host="g"))
            )
        )
        await until(lambda: len(yarn.asked) == 2)
        seen.extend((ask.host, ask.gpus, ask.memory_mb, ask.vcores) for ask in yarn.asked.values())
        yarn.full.clear()
        await asking

    run(yarn, scenario)
    assert seen == [("h", 2, 900, 3), ("g", 1, 700, 1)]


def test_granted_container_starts_and_ends_with_yarns_report():
    yarn = FakeYarn()

    async def scenario(source):
        await source.acquire(wish("a"))
        gone = asyncio.ensure_future(source.gone("a"))
        await asyncio.sleep(0.05)
        assert yarn.running == {"c1"} and not gone.done()
        yarn.end("c1", 7)
        return await gone

    assert run(yarn, scenario).exit_code == 7


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ExitCode.KILLED_EXCEEDED_PMEM, ExitReason.MEMORY),
        (ExitCode.KILLED_EXCEEDED_VMEM, ExitReason.MEMORY),
        (ExitCode.PREEMPTED, ExitReason.TAKEN),
        (ExitCode.ABORTED, ExitReason.TAKEN),
        (ExitCode.DISKS_FAILED, ExitReason.TAKEN),
        (143, ExitReason.EXITED),
    ],
)
def test_yarn_exit_code_gives_reason(code, reason):
    yarn = FakeYarn()

    async def scenario(source):
        await source.acquire(wish("a"))
        yarn.end("c1", code)
        return await source.gone("a")

    assert run(yarn, scenario).reason is reason


def test_ungranted_ask_raises_no_room_and_is_withdrawn():
    yarn = FakeYarn(full=["g"])

    async def scenario(source):
        await source.acquire(wish("a"))
        # Only now: on a busy machine the grant may take longer than this.
        source._limits = SHORT
        with pytest.raises(NoRoomError, match=r"within 0\.3 s") as error:
            await source.acquire(wish("b", host="g"))
        await asyncio.gather(source.discard("a"), source.discard("b"))
        return error.value

    error = run(yarn, scenario)
    assert (error.value, error.gpus) == ("g", (GpuId("g", 0),))
    assert (yarn.asked, yarn.withdrawn, yarn.stopped, yarn.running) == ({}, [2], ["c1"], set())


def test_ask_larger_than_any_node_raises_resource_ask_error():
    yarn = FakeYarn(full=["h"])
    yarn.news.append(AskRefusal(allocation_request_id=1, reason="larger than any node"))

    async def scenario(source):
        asking = asyncio.ensure_future(source.acquire(wish("a")))
        await until(lambda: yarn.asked)
        yarn.news.append(AskRefusal(allocation_request_id=1, reason="larger than any node"))
        with pytest.raises(ResourceAskError, match="larger than any node"):
            await asking

    run(yarn, scenario)


def test_refused_ask_of_granted_size_raises_no_room():
    yarn = FakeYarn()

    async def scenario(source):
        await source.acquire(wish("a"))
        yarn.full.add("h")
        asking = asyncio.ensure_future(source.acquire(wish("b")))
        await until(lambda: 2 in yarn.asked)
        yarn.news.append(AskRefusal(allocation_request_id=2, reason="larger than any node"))
        with pytest.raises(NoRoomError, match="larger than any node"):
            await asking

    run(yarn, scenario)


@pytest.mark.parametrize(
    ("largest", "kind"), [((1, 1024, 1), NoRoomError), ((4, 4096, 8), NoRoomError), ((1, 1023, 8), ResourceAskError)]
)
def test_refused_ask_within_registered_size_raises_no_room(largest, kind):
    """As by a restarted ResourceManager, before its nodes have come back to it."""
    yarn = FakeYarn(full=["h"])

    async def scenario(source):
        asking = asyncio.ensure_future(source.acquire(wish("a", memory_mb=1024, vcores=1)))
        await until(lambda: yarn.asked)
        yarn.news.append(AskRefusal(allocation_request_id=1, reason="larger than any node"))
        with pytest.raises(kind, match="larger than any node"):
            await asking

    run(yarn, scenario, largest=largest)


def test_discarded_container_is_stopped_not_released():
    yarn = FakeYarn()

    async def scenario(source):
        await source.acquire(wish("a"))
        await source.discard("a")
        assert yarn.running == set()
        await source.discard("a")
        await source.discard("unknown")

    run(yarn, scenario)
    assert (yarn.stopped, yarn.released) == (["c1"], [])


def test_container_on_unreachable_node_runs_until_yarn_reports_its_end():
    yarn = FakeYarn(stubborn=["h"])

    async def scenario(source):
        await source.acquire(wish("a"))
        discarding = asyncio.ensure_future(source.discard("a"))
        await until(lambda: yarn.stopped)
        await asyncio.sleep(0.05)
        assert not discarding.done()
        yarn.end("c1", ExitCode.ABORTED)
        await discarding

    run(yarn, scenario)


def test_container_refused_by_node_is_released():
    yarn = FakeYarn(full=["g"], refusal=YarnError("Hadoop refused", remedy="this token is expired"))

    async def scenario(source):
        with pytest.raises(NoRoomError, match=r"refuses a container.*token is expired") as error:
            await asyncio.gather(source.acquire(wish("a")), source.acquire(wish("b", host="g")))
        await asyncio.gather(source.discard("a"), source.discard("b"))
        return error.value, await source.gone("a")

    error, end = run(yarn, scenario)
    assert (error.value, end.exit_code) == ("h", ExitCode.ABORTED)
    assert (yarn.released, yarn.stopped, yarn.withdrawn, yarn.asked) == (["c1"], [], [2], {})


@pytest.mark.parametrize("knows", [True, UnreachableError("away"), ContainerStateError("no token")])
def test_container_that_may_run_after_refusal_is_stopped(knows):
    """The reply to a first try was lost, and the node refuses the second."""
    yarn = FakeYarn(refusal=YarnError("already is running on this node"), knows=knows)

    async def scenario(source):
        with pytest.raises(NoRoomError, match="already is running"):
            await source.acquire(wish("a"))
        await source.discard("a")

    run(yarn, scenario)
    assert (yarn.released, yarn.stopped) == ([], ["c1"])


def test_defect_in_start_is_raised():
    yarn = FakeYarn(refusal=KeyError("settings"))

    async def scenario(source):
        with pytest.raises(KeyError, match="settings"):
            await source.acquire(wish("a"))
        await source.discard("a")

    run(yarn, scenario)
    assert (yarn.released, yarn.stopped) == ([], ["c1"])


def test_unanswered_start_fails_at_once():
    yarn = FakeYarn(refusal=UnreachableError("no answer"), stubborn=["h"])

    async def scenario(source):
        with pytest.raises(NoRoomError, match="does not answer"):
            await asyncio.gather(source.acquire(wish("a")), source.acquire(wish("b", host="g")))
        discarding = asyncio.ensure_future(source.discard("a"))
        await until(lambda: yarn.stopped)
        assert not discarding.done()
        yarn.end("c1", ExitCode.ABORTED)
        await discarding

    run(yarn, scenario)
    assert yarn.released == []


def test_ask_for_lost_machine_fails_at_once():
    yarn = FakeYarn(full=["h", "g"])
    lost = NodeReport(
        node_id="h:1", host="h", rack="", state=NodeState.LOST, gpus=4, used_gpus=0, memory_mb=1, used_memory_mb=0,
        vcores=1, http_address="", health="",
    )  # fmt: skip

    async def scenario(source):
        asking = asyncio.ensure_future(asyncio.gather(source.acquire(wish("a")), source.acquire(wish("b", host="g"))))
        await until(lambda: len(yarn.asked) == 2)
        yarn.news.append(replace(lost, state=NodeState.RUNNING))
        await asyncio.sleep(0.05)
        assert not asking.done()
        yarn.news.append(lost)
        with pytest.raises(NoRoomError, match=r"machine is lost.*LOST"):
            await asking
        await asyncio.gather(source.discard("a"), source.discard("b"))

    run(yarn, scenario)


def test_machine_lost_during_start_fails_at_once():
    yarn = FakeYarn()
    starting, answer = threading.Event(), threading.Event()

    def start(one, launch):
        starting.set()
        answer.wait(60)
        raise UnreachableError("no answer")

    yarn.start = start

    async def scenario(source):
        asking = asyncio.ensure_future(source.acquire(wish("a")))
        await until(starting.is_set)
        yarn.end("c1", ExitCode.ABORTED, "its node is lost")
        with pytest.raises(NoRoomError, match="its node is lost"):
            await asking
        await source.discard("a")
        answer.set()

    run(yarn, scenario)
    assert yarn.stopped == []


def test_grant_after_discard_is_released():
    yarn = FakeYarn(full=["h"])

    async def scenario(source):
        asking = asyncio.ensure_future(source.acquire(wish("a")))
        await until(lambda: yarn.asked)
        asking.cancel()
        await source.discard("a")
        late = SimpleNamespace(host="h", allocation_request_id=1)
        source._granted(container(late))
        await until(lambda: yarn.released)

    run(yarn, scenario)
    assert (yarn.released, yarn.started) == (["c1"], [])


def test_ask_is_withdrawn_only_once_it_was_sent():
    yarn, sent = FakeYarn(full=["h"]), threading.Event()
    ask = yarn.ask
    yarn.ask = lambda each: (sent.wait(60), ask(each))

    async def scenario(source):
        asking = asyncio.ensure_future(source.acquire(wish("a")))
        await until(lambda: source._seats)
        asking.cancel()
        discarding = asyncio.ensure_future(source.discard("a"))
        await asyncio.sleep(0.05)
        sent.set()
        await discarding

    run(yarn, scenario)
    assert (yarn.withdrawn, yarn.asked) == ([1], {})


def test_earlier_attempts_containers_end_before_first_ask():
    old = container(container_id="old")
    yarn = FakeYarn(previous=[old], stubborn=["h"])

    async def scenario(source):
        asking = asyncio.ensure_future(source.acquire(wish("a")))
        await until(lambda: yarn.stopped)
        await asyncio.sleep(0.05)
        assert yarn.asked == {} and yarn.started == []
        yarn.end("old", 137)
        await asking

    yarn_running = run(yarn, lambda source: finishing(yarn, scenario(source)), previous=[old])
    assert yarn_running == ["c1"]


async def finishing(yarn, work):
    await work
    yarn.stubborn.clear()
    return yarn.started


def test_heartbeats_continue_while_yarn_is_unreachable():
    yarn = FakeYarn()
    yarn.trouble = [UnreachableError("away"), UnreachableError("away")]

    async def scenario(source):
        await source.acquire(wish("a"))

    run(yarn, scenario)
    assert yarn.started == ["c1"]


def test_lost_attempt_makes_no_more_calls():
    yarn = FakeYarn()

    async def scenario(source):
        await source.acquire(wish("a"))
        yarn.trouble = [AttemptGoneError("another attempt runs")]
        await source.gone_for_good.wait()

    run(yarn, scenario)
    assert yarn.stopped == []


def test_late_reported_earlier_containers_end_first():
    yarn = FakeYarn(stubborn=["h"])
    yarn.running.add("old")

    async def scenario(source):
        await source.alone()
        yarn.news.append(container(container_id="old"))
        await until(lambda: yarn.stopped == ["old"])
        asking = asyncio.ensure_future(source.acquire(wish("a")))
        await asyncio.sleep(0.05)
        assert not yarn.asked and not yarn.started, "it was given the GPU beside the old task"
        yarn.end("old", 143)
        await asking
        yarn.stubborn.clear()

    run(yarn, scenario)
    assert yarn.started == ["c1"]


def test_stop_is_repeated_after_unreachable_node(monkeypatch):
    monkeypatch.setattr(yarn_source, "_STOP_AGAIN_S", 0.02)
    yarn = FakeYarn()

    async def scenario(source):
        await source.acquire(wish("a"))
        yarn.stubborn.add("h")
        discarding = asyncio.ensure_future(source.discard("a"))
        await until(lambda: len(yarn.stopped) >= 2)
        assert not discarding.done()
        yarn.stubborn.clear()
        await discarding

    run(yarn, scenario)
    assert yarn.running == set()


def test_ask_waits_while_yarns_resource_manager_is_away(monkeypatch):
    monkeypatch.setattr(yarn_source, "_SILENCE_S", 0.02)
    yarn = FakeYarn(full=["h"])

    async def scenario(source):
        answer = yarn.allocate
        away = threading.Event()
        yarn.allocate = lambda progress: (away.wait(60), answer(progress))[1]
        asking = asyncio.ensure_future(source.acquire(wish("a")))
        await asyncio.sleep(3 * SHORT.pin_timeout_s)
        assert not asking.done()
        yarn.full.clear()
        away.set()
        await asking

    run(yarn, scenario, limits=SHORT)
