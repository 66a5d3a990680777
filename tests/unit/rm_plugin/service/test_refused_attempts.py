"""The ResourceManager proves its refusals, also of an app that it does not know, and after a restart."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest
from service_cases import SPEC

from am.session import RmSession
from rm_plugin.service.memory_service import MemoryService, memory_service
from rm_plugin.service.session_service import ArbiterService
from themis.attempt_proof import new_token
from themis.clock import WallClock
from themis.errors import UnreachableError
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc


@contextlib.asynccontextmanager
async def listening(rm: MemoryService) -> AsyncIterator[str]:
    server = grpc.aio.server()
    rpc.add_ArbiterServiceServicer_to_server(ArbiterService(rm.manager), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield address
    await server.stop(None)


async def end_of(address: str, register: pb.Register) -> str:
    session = RmSession(address, lambda: register, lambda _: None, clock=WallClock(), give_up_s=0.5)
    with pytest.raises(UnreachableError) as ended:
        await asyncio.wait_for(session.run(), 20)
    return str(ended.value)


def test_app_masters_believe_that_an_attempt_is_over_or_its_app_unknown(tmp_path) -> None:
    async def scenario() -> None:
        async with memory_service(tmp_path) as rm:
            entry, _ = await rm.registered(SPEC)
            token = rm.launcher.living[entry.app_id].launch.token
        former = pb.Register(app_id=entry.app_id, attempt=entry.attempt - 1, token=token)
        async with memory_service(tmp_path, store=rm.store) as again, listening(again) as address:
            assert "this attempt is over" in await end_of(address, former)
            unknown = pb.Register(app_id="app-9999", attempt=1, token=new_token(again.entries.refusal_key, "app-9999"))
            assert "unknown app" in await end_of(address, unknown)
        # Of another store, any process could say so.
        async with memory_service(tmp_path) as other, listening(other) as address:
            assert "the ResourceManager is unavailable" in await end_of(address, former)

    asyncio.run(scenario())
