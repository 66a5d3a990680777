"""What clients, operators and app masters receive over gRPC: replies and refusals."""

import asyncio
import contextlib

import grpc
import pytest
from authorized_stub import AuthorizedStub
from msgspec.structs import replace
from service_cases import SPEC, known_token

from rm_plugin.engines.inventory import FixedInventory
from rm_plugin.service import client_service
from rm_plugin.service.admin_service import AdminService
from rm_plugin.service.authentication import Authentication
from rm_plugin.service.client_service import ClientService
from rm_plugin.service.identities import MAX_CALLS
from rm_plugin.service.memory_service import memory_service, until
from rm_plugin.service.nodes import NodeWatch
from rm_plugin.service.session_service import ArbiterService
from themis.queues import ROOT, Queue, Queues
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message


@contextlib.asynccontextmanager
async def served(tmp_path):
    """Yield a channel to a service with one app, and the service."""
    async with memory_service(tmp_path) as rm:
        await rm.registered(SPEC)
        identities = rm.manager.identities
        server = grpc.aio.server(interceptors=[Authentication(identities, rm.manager.connections.note_user)])
        rpc.add_ClientServiceServicer_to_server(ClientService(rm.manager, "srtf"), server)
        rpc.add_ArbiterServiceServicer_to_server(ArbiterService(rm.manager), server)
        watch = NodeWatch(rm.manager, FixedInventory(rm.arbiter.cluster), poll_s=1.0)
        rpc.add_AdminServiceServicer_to_server(AdminService(rm.manager, watch, lambda **_: None), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield channel, rm
        finally:
            await server.stop(None)


async def refusal(tmp_path, call):
    """Return the gRPC status of a refused call."""
    async with served(tmp_path) as (channel, rm):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(channel, rm)
        return raised.value


def stub_of(channel, rm, stub=rpc.ClientServiceStub):
    identities = rm.manager.identities
    return AuthorizedStub(stub(channel), lambda: identities.local_token(0, identities.user))


def run(tmp_path, call):
    return asyncio.run(asyncio.wait_for(refusal(tmp_path, call), 60))


def use(tmp_path, scenario):
    async def whole():
        async with served(tmp_path) as (channel, rm):
            await scenario(channel, rm)

    asyncio.run(asyncio.wait_for(whole(), 60))


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
        (log := rm.manager.folder("app-0001") / "am-1.log").parent.mkdir(parents=True, exist_ok=True)
        log.write_text("a line, so that both streams begin\n")
        revoked = False
        async for _ in follow(AuthorizedStub(rpc.ClientServiceStub(channel), lambda: token)):
            if not revoked:
                revoked = True
                await identities.revoke(changes, SPEC.user, by="root")

    error = run(tmp_path, read)
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "revoked" in error.details()


def test_submission_to_a_queue_of_others_is_denied_and_in_the_log(tmp_path, caplog):
    async def submit(channel, rm):
        queues = {ROOT: Queue(name=ROOT), "speech": Queue(name="speech", parent=ROOT, submitters=("carl",))}
        rm.arbiter.requeue(Queues(queues=queues), now_s=rm.clock.now_s())
        token = rm.manager.identities.local_token(1, "bob")
        stub = AuthorizedStub(rpc.ClientServiceStub(channel), lambda: token)
        await stub.Submit(pb.SubmitRequest(spec=app_to_message(replace(SPEC, user="", queue="speech"))))

    assert run(tmp_path, submit).code() is grpc.StatusCode.PERMISSION_DENIED
    assert "refused: /themis.v1.ClientService/Submit: user bob may not submit to queue speech" in caplog.text


def test_store_that_cannot_be_written_is_told_from_a_service_that_is_away(tmp_path):
    """Clients try both again. They say what is wrong by the trailing metadata."""

    async def submit(channel, rm):
        rm.store.trouble = "disk is full"
        await stub_of(channel, rm).Submit(pb.SubmitRequest(spec=app_to_message(SPEC)))

    error = run(tmp_path, submit)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert ("themis-store", "unavailable") in tuple(error.trailing_metadata())
    assert "disk is full" in error.details()


def test_user_who_calls_too_often_is_refused(tmp_path):
    async def call_often(channel, rm):
        identities = rm.manager.identities
        token = await identities.add(rm.manager.changes, "ann", valid_s=100.0, by="root")
        for _ in range(int(MAX_CALLS) - 1):
            identities.count_call(identities.of_token(token))
        stub = AuthorizedStub(rpc.ClientServiceStub(channel), lambda: token)
        await stub.List(pb.ListRequest())
        await stub.List(pb.ListRequest())

    error = run(tmp_path, call_often)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "ann" in error.details()


def test_pause_and_resume_reply_with_the_state_of_the_app(tmp_path):
    async def scenario(channel, rm):
        stub, (entry,) = stub_of(channel, rm), rm.entries
        asked = await stub.Pause(pb.PauseRequest(app_id=entry.app_id, reason="make room"))
        assert (asked.app_id, asked.state) == (entry.app_id, "RUNNING")
        assert entry.pause_reason
        await rm.manager.sessions.receive(entry, entry.session, pb.AmMessage(id=1, finish=pb.Finish(state="PAUSED")))
        resumed = await stub.Resume(pb.ResumeRequest(app_id=entry.app_id))
        assert (resumed.app_id, resumed.state, entry.attempt) == (entry.app_id, "ACCEPTED", 2)

    use(tmp_path, scenario)


def test_drained_machine_is_closed_until_it_is_opened_again(tmp_path):
    async def scenario(channel, rm):
        stub = stub_of(channel, rm, rpc.AdminServiceStub)
        for drained, state, gpus_free in ((True, "drained", 0), (False, "usable", 4)):
            node = await stub.Drain(pb.DrainRequest(machine_id="m0", drained=drained))
            assert (node.machine_id, node.state, node.gpus_free) == ("m0", state, gpus_free)
            assert rm.manager.live_cluster.drained == (frozenset(["m0"]) if drained else frozenset())

    use(tmp_path, scenario)


def test_user_whose_token_an_operator_revokes_is_refused(tmp_path):
    async def call(channel, rm):
        token = await rm.manager.identities.add(rm.manager.changes, "ann", valid_s=100.0, by="root")
        await stub_of(channel, rm, rpc.AdminServiceStub).RevokeUser(pb.RevokeUserRequest(user="ann"))
        await AuthorizedStub(rpc.ClientServiceStub(channel), lambda: token).List(pb.ListRequest())

    assert run(tmp_path, call).code() is grpc.StatusCode.UNAUTHENTICATED


def test_followed_events_come_as_they_are_written_and_end_with_the_app(tmp_path):
    async def scenario(channel, rm):
        stub, (entry,) = stub_of(channel, rm), rm.entries
        kinds = {}

        async def watch():
            async for event in stub.Watch(pb.WatchRequest(app_id=entry.app_id, follow=True)):
                kinds[event.sequence] = event.kind

        watching = asyncio.ensure_future(watch())
        await until(lambda: "am_registered" in kinds.values())
        assert not watching.done()
        await rm.manager.kill(entry.app_id, "enough", by="root")
        await rm.manager.sessions.receive(entry, entry.session, pb.AmMessage(id=1, finish=pb.Finish(state="KILLED")))
        await watching
        assert kinds == {event.sequence: event.kind for event in rm.store.events() if event.app_id == entry.app_id}

    use(tmp_path, scenario)
