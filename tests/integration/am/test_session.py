"""The app master's session over a real gRPC server that ends streams."""

import asyncio
import logging
from collections.abc import Callable

import grpc
import pytest

from am import session
from am.session import RmSession
from themis.attempt_proof import REFUSAL, hashed, new_token, refusal_proof, rm_proof
from themis.clock import WallClock
from themis.errors import UnreachableError
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc


class BreakingService(rpc.ArbiterServiceServicer):
    """Accepts registrations, and breaks each stream after the first."""

    def __init__(self) -> None:
        self.registrations: asyncio.Queue[pb.Register] = asyncio.Queue()

    async def Session(self, request_iterator, context):  # noqa: N802
        async for message in request_iterator:
            if message.HasField("greeting"):
                greeting = message.greeting
                proof = rm_proof(hashed("secret"), greeting.app_id, greeting.nonce)
                yield pb.RmMessage(proof=pb.Proof(proof=proof))
                continue
            self.registrations.put_nowait(message.register)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the stream breaks")


async def registrations(count: int) -> list[str]:
    """Let a session register `count` times. Returns the names of the tasks that it leaves behind."""
    server, service = grpc.aio.server(), BreakingService()
    rpc.add_ArbiterServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    before = asyncio.all_tasks()
    register = pb.Register(app_id="app-0001", token="secret")
    session = RmSession(f"127.0.0.1:{port}", lambda: register, lambda _: None, clock=WallClock(), give_up_s=60.0)
    running = asyncio.create_task(session.run())
    for _ in range(count):
        assert (await asyncio.wait_for(service.registrations.get(), 60)).app_id == "app-0001"
    left = {task for task in asyncio.all_tasks() - before if "_consume_request_iterator" in repr(task)}
    running.cancel()
    await asyncio.wait([running])
    await server.stop(None)
    return [repr(task) for task in left]


def test_broken_streams_leave_no_tasks_behind():
    # The last stream may still be open.
    assert len(asyncio.run(registrations(4))) <= 1


def test_absence_is_logged_once(caplog):
    caplog.set_level(logging.INFO, "themis.am.session")
    asyncio.run(registrations(4))
    ours = [record.message for record in caplog.records if record.name == "themis.am.session"]
    assert ours == ["session broke, trying again every 0.3 s: the stream breaks"]


async def given_up(session: RmSession, tries: Callable[[], int]) -> None:
    """Run a session until it has tried twice and then gives up, however long each try takes."""
    running = asyncio.create_task(session.run())
    async with asyncio.timeout(60):
        while tries() < 2 and not running.done():
            await asyncio.sleep(0.01)
    session._give_up_s = 0.0
    with pytest.raises(UnreachableError, match="the ResourceManager is unavailable"):
        await asyncio.wait_for(running, 60)


class Stranger(rpc.ArbiterServiceServicer):
    """Listens at the address of a ResourceManager that is away, and tries to pass for it."""

    def __init__(self) -> None:
        self.heard: list[pb.AmMessage] = []
        self.sessions = 0

    async def Session(self, request_iterator, context):  # noqa: N802
        self.sessions += 1
        greeting = (await anext(aiter(request_iterator))).greeting
        # It knows no hash of the token. The second time it sends orders without any proof.
        if self.sessions % 2:
            yield pb.RmMessage(proof=pb.Proof(proof=rm_proof("", greeting.app_id, greeting.nonce)))
        yield pb.RmMessage(registered=pb.Registered(app_id="app-0001"))
        yield pb.RmMessage(shut_down=pb.ShutDown(reason="mine"))
        async for message in request_iterator:
            self.heard.append(message)


class Silent(rpc.ArbiterServiceServicer):
    """Accepts sessions and never answers."""

    async def Session(self, request_iterator, context):  # noqa: N802
        await asyncio.sleep(3600)
        yield pb.RmMessage()


def test_silent_process_at_the_address_of_the_resource_manager_counts_as_away(monkeypatch):
    monkeypatch.setattr(session, "_ANSWER_S", 0.2)

    async def scenario() -> None:
        server = grpc.aio.server()
        rpc.add_ArbiterServiceServicer_to_server(Silent(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        register = pb.Register(app_id="app-0001", token="secret")
        silent = RmSession(f"127.0.0.1:{port}", lambda: register, print, clock=WallClock(), give_up_s=0.5)
        with pytest.raises(UnreachableError, match="unavailable"):
            await asyncio.wait_for(silent.run(), 60)
        await server.stop(None)

    asyncio.run(scenario())


class Refusing(rpc.ArbiterServiceServicer):
    """Refuses every attempt, with metadata that it makes of the greeting."""

    def __init__(self, metadata: Callable[[pb.Greeting], tuple[tuple[str, str], ...]]) -> None:
        self.metadata = metadata
        self.heard: list[pb.AmMessage] = []

    async def Session(self, request_iterator, context):  # noqa: N802
        self.heard.append(await anext(aiter(request_iterator)))
        metadata = self.metadata(self.heard[-1].greeting)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "go away", metadata)
        yield pb.RmMessage()


@pytest.mark.parametrize("proof", [None, "", "guessed", "of another attempt", "of another session", "of another app"])
def test_refusal_without_a_proof_counts_as_absence(caplog, proof: str | None) -> None:
    caplog.set_level(logging.INFO, "themis.am.session")

    def metadata(greeting: pb.Greeting) -> tuple[tuple[str, str], ...]:
        app, attempt, nonce = greeting.app_id, greeting.attempt, greeting.nonce
        known = {
            "of another attempt": refusal_proof("key", app, attempt - 1, nonce),
            "of another session": refusal_proof("key", app, attempt, "former"),
            "of another app": refusal_proof("key", "app-0002", attempt, nonce),
        }
        return () if proof is None else ((REFUSAL, known.get(proof, proof)),)

    async def scenario() -> None:
        server, stranger = grpc.aio.server(), Refusing(metadata)
        rpc.add_ArbiterServiceServicer_to_server(stranger, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        register = pb.Register(app_id="app-0001", attempt=2, token=new_token("key", "app-0001"))
        session = RmSession(address, lambda: register, print, clock=WallClock(), give_up_s=600.0)
        await given_up(session, lambda: len(stranger.heard))
        await server.stop(None)

    asyncio.run(scenario())
    assert any("refuses this attempt, and proves nothing" in record.message for record in caplog.records)


def test_process_that_refuses_an_attempt_gets_no_token_and_the_error_says_where_it_listens() -> None:
    def metadata(greeting: pb.Greeting) -> tuple[tuple[str, str], ...]:
        return ((REFUSAL, refusal_proof("key", greeting.app_id, greeting.attempt, greeting.nonce)),)

    async def scenario() -> None:
        server, stranger = grpc.aio.server(), Refusing(metadata)
        rpc.add_ArbiterServiceServicer_to_server(stranger, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        token = new_token("key", "app-0001")
        register = pb.Register(app_id="app-0001", token=token)
        session = RmSession(address, lambda: register, print, clock=WallClock(), give_up_s=60.0)
        with pytest.raises(UnreachableError, match=f"what listens at {address} refuses this attempt: 'go away'"):
            await asyncio.wait_for(session.run(), 60)
        await server.stop(None)
        assert [message.WhichOneof("body") for message in stranger.heard] == ["greeting"]
        assert token.partition(".")[0] not in str(stranger.heard)

    asyncio.run(scenario())


def test_process_at_the_address_of_the_resource_manager_gets_no_token_and_gives_no_orders() -> None:
    async def scenario() -> tuple[Stranger, list[pb.RmMessage]]:
        server, stranger = grpc.aio.server(), Stranger()
        rpc.add_ArbiterServiceServicer_to_server(stranger, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        taken: list[pb.RmMessage] = []
        register = pb.Register(app_id="app-0001", token="secret")
        session = RmSession(f"127.0.0.1:{port}", lambda: register, taken.append, clock=WallClock(), give_up_s=600.0)
        session.send(pb.AmMessage(finish=pb.Finish(state="FINISHED", diagnostics="mine")))
        await given_up(session, lambda: stranger.sessions)
        await server.stop(None)
        return stranger, taken

    stranger, taken = asyncio.run(scenario())
    assert stranger.heard == [] and taken == []
