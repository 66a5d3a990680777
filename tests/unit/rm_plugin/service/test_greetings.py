"""The ResourceManager proves itself to an attempt that it knows, and to no other one."""

import asyncio

import grpc
import pytest
from service_cases import SPEC, known_token, registration

from rm_plugin.service.entries import MAX_REGISTRATIONS, AppEntry
from rm_plugin.service.memory_service import MemoryService, memory_service
from rm_plugin.service.session_service import ArbiterService
from themis.attempt_proof import REFUSAL, is_refusal_proof, is_rm_proof, new_token
from themis.errors import InputError, UnreachableError
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc


async def greeted(rm: MemoryService, **changes: object) -> tuple[AppEntry, pb.Greeting]:
    """A running app whose token is known, and the greeting of its attempt."""
    entry, _ = await rm.registered(SPEC)
    known_token(entry)
    values = {"app_id": entry.app_id, "attempt": entry.attempt, "nonce": "once"}
    return entry, pb.Greeting(**{**values, **changes})


def test_proof_is_for_one_app_one_nonce_and_one_token(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, greeting = await greeted(rm)
            proof = (await rm.manager.sessions.greet(greeting)).proof
            token = known_token(entry)
            assert is_rm_proof(proof, token, entry.app_id, "once")
            assert not is_rm_proof(proof, token, entry.app_id, "twice")
            assert not is_rm_proof(proof, token, "app-0002", "once")
            assert not is_rm_proof(proof, "another", entry.app_id, "once")
            assert not is_rm_proof("\ud800", token, entry.app_id, "once")
            assert token not in proof and entry.token_sha256 not in proof

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"app_id": "app-9999"}, "unknown app"),
        ({"attempt": 0}, "this attempt is over"),
        ({"nonce": "x" * 10_000}, "nonce"),
    ],
)
def test_attempt_that_is_unknown_or_over_is_refused_at_once(tmp_path, changes, words):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            _, greeting = await greeted(rm, **changes)
            with pytest.raises(InputError, match=words):
                await rm.manager.sessions.greet(greeting)

    asyncio.run(scenario())


def test_no_page_is_looked_up_for_a_stranger(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, _ = await greeted(rm)
            found = []
            rm.manager.sessions.own_pages.find = lambda url, peer: found.append(url)
            message = registration(entry, token="another", page_url="http://there:80/secret/")
            with pytest.raises(InputError):
                await rm.manager.sessions.register(message, "ipv4:127.0.0.1:7")
            assert not found

    asyncio.run(scenario())


def test_session_answers_a_greeting_and_then_takes_the_registration(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, greeting = await greeted(rm)
            server = grpc.aio.server()
            rpc.add_ArbiterServiceServicer_to_server(ArbiterService(rm.manager), server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                call = rpc.ArbiterServiceStub(channel).Session()
                await call.write(pb.AmMessage(greeting=greeting))
                proof = (await call.read()).proof.proof
                assert is_rm_proof(proof, known_token(entry), entry.app_id, "once")
                await call.write(pb.AmMessage(register=registration(entry)))
                assert (await call.read()).registered.app_id == entry.app_id
                call.cancel()
                over = rpc.ArbiterServiceStub(channel).Session()
                await over.write(pb.AmMessage(greeting=pb.Greeting(app_id=entry.app_id, attempt=0)))
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await over.read()
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
                proof, token = (
                    dict(refused.value.trailing_metadata())[REFUSAL],
                    rm.launcher.living[entry.app_id].launch.token,
                )
                assert is_refusal_proof(proof, token, 0, "")
                assert not is_refusal_proof(proof, token, entry.attempt, "")
                assert not is_refusal_proof(proof, new_token("", entry.app_id), 0, "")
            await server.stop(None)

    asyncio.run(scenario())


def test_stranger_who_greets_learns_no_ids_or_names_of_apps(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, _ = await rm.registered(SPEC)
            # By name, nearly by name or id, and in a way that would list all.
            for guess in (SPEC.name, SPEC.name + "s", entry.app_id + "0", "x"):
                for told in (
                    rm.manager.sessions.greet(pb.Greeting(app_id=guess)),
                    rm.manager.sessions.register(pb.Register(app_id=guess)),
                ):
                    with pytest.raises(InputError) as refused:
                        await told
                    assert str(refused.value) == f"unknown app: {guess!r}"

    asyncio.run(scenario())


def test_app_master_that_registers_without_end_is_told_to_wait_and_writes_no_more_events(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, _ = await rm.registered(SPEC)
            other, _ = await rm.registered(SPEC)
            for _ in range(int(MAX_REGISTRATIONS) - 1):
                await rm.manager.sessions.register(registration(entry))
            events = len(rm.kinds)
            for attempt in (entry.attempt, entry.attempt + 1):
                with pytest.raises(UnreachableError, match="too many sessions"):
                    await rm.manager.sessions.register(registration(entry, attempt=attempt))
            # A stranger without the token takes nothing of its budget, and another app has its own.
            with pytest.raises(InputError, match="the token is not this app's"):
                await rm.manager.sessions.register(registration(entry, token="guessed"))
            assert len(rm.kinds) == events
            await rm.manager.sessions.register(registration(other))
            rm.clock.advance_to(rm.clock.now_s() + 1.0)
            await rm.manager.sessions.register(registration(entry))

    asyncio.run(scenario())
