"""Refusals that clients and app masters receive over gRPC."""

import asyncio

import grpc
import pytest
from authorized_stub import AuthorizedStub
from service_cases import SPEC, known_token

from rm_plugin.service import client_service
from rm_plugin.service.authentication import Authentication
from rm_plugin.service.client_service import ClientService
from rm_plugin.service.memory_service import memory_service
from rm_plugin.service.session_service import ArbiterService
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message


async def refusal(tmp_path, call):
    """Return the gRPC status of a refused call."""
    async with memory_service(tmp_path) as rm:
        await rm.registered(SPEC)
        identities = rm.manager.identities
        server = grpc.aio.server(interceptors=[Authentication(identities)])
        rpc.add_ClientServiceServicer_to_server(ClientService(rm.manager, "srtf"), server)
        rpc.add_ArbiterServiceServicer_to_server(ArbiterService(rm.manager), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await call(channel, rm)
                return raised.value
        finally:
            await server.stop(None)


def stub_of(channel, rm):
    identities = rm.manager.identities
    return AuthorizedStub(rpc.ClientServiceStub(channel), lambda: identities.local_token(0, identities.user))


def run(tmp_path, call):
    return asyncio.run(asyncio.wait_for(refusal(tmp_path, call), 20))


@pytest.mark.parametrize("name", ["x" * 200_000, "\N{SNOWMAN}" * 100_000])
def test_refusal_of_very_long_name_reaches_client(tmp_path, name):
    message = app_to_message(SPEC)
    message.name = name
    error = run(tmp_path, lambda channel, rm: stub_of(channel, rm).Submit(pb.SubmitRequest(spec=message)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert 100 < len(error.details()) <= 2_000


@pytest.mark.parametrize("job_id", ["x" * 200_000, "../../app-0002", "a\0b"])
def test_logs_of_invalid_job_id_are_refused(tmp_path, job_id):
    async def read(channel, rm):
        async for _ in stub_of(channel, rm).Logs(pb.LogsRequest(app_id="app-0001", job_id=job_id)):
            pass

    error = run(tmp_path, read)
    assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)


def test_refusal_of_long_registration_reaches_app_master(tmp_path):
    async def register(channel, rm):
        (entry,) = rm.entries
        page_url = "\N{SNOWMAN}" * 4_000

        async def messages():
            yield pb.AmMessage(
                register=pb.Register(app_id=entry.app_id, token=known_token(entry), attempt=1, page_url=page_url)
            )

        async for _ in rpc.ArbiterServiceStub(channel).Session(messages()):
            pass

    assert run(tmp_path, register).code() is grpc.StatusCode.PERMISSION_DENIED


def test_usage_of_an_invalid_month_is_refused(tmp_path):
    error = run(tmp_path, lambda channel, rm: stub_of(channel, rm).Usage(pb.UsageRequest(month="last")))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "last" in error.details()


@pytest.mark.parametrize(
    "follow",
    [
        lambda stub: stub.Watch(pb.WatchRequest(follow=True)),
        lambda stub: stub.Logs(pb.LogsRequest(app_id="app-0001", follow=True)),
    ],
)
def test_stream_ends_when_the_token_of_its_reader_is_revoked(tmp_path, monkeypatch, follow):
    monkeypatch.setattr(client_service, "_LOG_POLL_S", 0.02)

    async def read(channel, rm):
        identities, changes = rm.manager.identities, rm.manager.changes
        token = await identities.add(changes, SPEC.user, valid_s=100.0, by="root")
        revoking = asyncio.ensure_future(revoke_later(identities, changes))
        async for _ in follow(AuthorizedStub(rpc.ClientServiceStub(channel), lambda: token)):
            pass
        await revoking

    async def revoke_later(identities, changes):
        await asyncio.sleep(0.2)
        await identities.revoke(changes, SPEC.user, by="root")

    error = run(tmp_path, read)
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "revoked" in error.details()
