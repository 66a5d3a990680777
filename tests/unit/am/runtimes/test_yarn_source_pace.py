"""When the container source sends eager heartbeats to YARN."""

import asyncio

from am.runtimes.port import SeatRequest
from am.runtimes.remote.source import ContainerWish
from am.runtimes.yarn_source import YarnLimits, YarnSource
from themis.cluster import GpuId
from themis.hadoop.values import AllocateReply, Container, ProcessLaunch, Registration

HEARTBEAT_S = 30.0
"""Far more than the test takes: whatever comes in time came with a hurried heartbeat."""


class SlowYarn:
    """Grants an ask with the third heartbeat after it, or never."""

    def __init__(self, *, grants):
        self.grants = grants
        self.asks, self.beats = [], 0

    def ask(self, ask):
        self.asks.append(ask)
        self.beats = 0

    def withdraw(self, _):
        return True

    def allocate(self, _):
        self.beats += 1
        if not (self.grants and self.beats == 3):
            return AllocateReply()
        return AllocateReply(granted=tuple(_granted(ask) for ask in self.asks))

    def start(self, one, launch):
        pass

    def stop(self, one):
        pass


def _granted(ask):
    return Container(
        container_id=f"c{ask.allocation_request_id}", host=ask.host, node_id="h:1", gpus=1, memory_mb=1, vcores=1,
        allocation_request_id=ask.allocation_request_id, raw=None,
    )  # fmt: skip


async def source_of(yarn):
    limits = YarnLimits(heartbeat_s=HEARTBEAT_S)
    launch = ProcessLaunch(commands=("x",))
    registration = Registration(previous=(), max_gpus=1, max_memory_mb=1, max_vcores=1)
    source = YarnSource(yarn, yarn, lambda _: launch, limits, registration=registration, progress=lambda: 0.0)
    # The first heartbeat goes out at once; the next would be due in half a minute.
    while yarn.beats < 1:
        await asyncio.sleep(0.01)
    return source


async def leave(source):
    """Close it without waiting for the next heartbeat."""
    source.gone_for_good.set()
    await source.close()


def a_wish(steps):
    request = SeatRequest(job_id="j", task_index=0, gpus=(GpuId("h", 0),))
    return ContainerWish(seat_id="a", request=request, environment={}, on_step=steps.append)


def test_ask_is_sent_at_once_and_grant_fetched_soon():
    yarn, steps = SlowYarn(grants=True), []

    async def scenario():
        source = await source_of(yarn)
        await asyncio.wait_for(source.acquire(a_wish(steps)), 20.0)
        await leave(source)

    asyncio.run(scenario())
    assert steps == ["ask", "grant"]


def test_eager_heartbeats_for_unanswered_ask_stop():
    yarn = SlowYarn(grants=False)

    async def scenario():
        source = await source_of(yarn)
        waiting = asyncio.ensure_future(source.acquire(a_wish([])))
        while yarn.beats <= 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(3.0)
        waiting.cancel()
        await leave(source)

    asyncio.run(scenario())
    assert yarn.beats <= 11
