"""What callers can make the service hold: no message of a stranger, few of a user at a time, few open streams."""

import asyncio
import contextlib
import gc
import sys

import grpc
import pytest
from service_cases import SPEC, known_token, registration
from test_client_service import served

from rm_plugin.service import receiving
from themis.attempt_proof import hashed, is_session_metadata, session_metadata
from themis.identity import TooManyCallsError
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc

SUBMIT = "/themis.v1.ClientService/Submit"
LIST = "/themis.v1.ClientService/List"


def play(tmp_path, scenario):
    async def whole():
        async with served(tmp_path) as (channel, rm):
            await scenario(channel, rm)

    asyncio.run(asyncio.wait_for(whole(), 60))


async def silence():
    """A message that never comes."""
    await asyncio.Event().wait()
    yield b""


def slow_call(channel, metadata=(), method=LIST):
    """A call whose message never comes."""
    return channel.stream_unary(method)(silence(), metadata=metadata)


async def refusal(call):
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        async with asyncio.timeout(20):
            await call
    return raised.value


@pytest.fixture
def slots_taken(monkeypatch):
    """Returns once the messages of some caller take all its slots."""
    made, create = [], receiving.Receiving.__init__

    def noted(self):
        create(self)
        made.append(self)

    async def until_taken():
        while not any(slot.locked() for each in made for slot in list(each._slots.values())):
            await asyncio.sleep(0.01)

    monkeypatch.setattr(receiving.Receiving, "__init__", noted)
    return until_taken


async def token_of(rm, user):
    token = await rm.manager.identities.add(rm.manager.changes, user, valid_s=100.0, by="root")
    return (("authorization", f"Bearer {token}"),)


@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer themis_guessed"),)])
def test_call_without_identity_is_refused_before_its_message_comes(tmp_path, metadata):
    async def scenario(channel, _rm):
        assert (await refusal(slow_call(channel, metadata))).code() is grpc.StatusCode.UNAUTHENTICATED

    play(tmp_path, scenario)


def test_message_that_does_not_come_in_time_ends_its_call(tmp_path, monkeypatch):
    monkeypatch.setattr(receiving, "RECEIVE_S", 0.1)

    async def scenario(channel, rm):
        error = await refusal(slow_call(channel, await token_of(rm, "bob")))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "a call has one message: '0 in 0.1 s'" in error.details()

    play(tmp_path, scenario)


def test_call_with_more_than_one_message_is_refused(tmp_path):
    async def twice():
        yield pb.ListRequest().SerializeToString()
        yield pb.ListRequest().SerializeToString()

    async def scenario(channel, rm):
        token = await token_of(rm, "bob")
        assert (
            "a call has one message" in (await refusal(channel.stream_unary(LIST)(twice(), metadata=token))).details()
        )

    play(tmp_path, scenario)


def test_refused_submission_leaves_nothing_of_its_message(tmp_path):
    received = []

    async def scenario(channel, rm):
        stub, token = rpc.ClientServiceStub(channel), await token_of(rm, "bob")
        for _ in range(3):
            error = await refusal(stub.Submit(pb.SubmitRequest(code=b"x" * 100_000), metadata=token))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        # Soon nothing but this list and the argument of the call refers to them, without a collection of garbage:
        # the caller may read the answer before the last frame of the call has returned.
        async with asyncio.timeout(20):
            while [sys.getrefcount(received[place]) for place in range(3)] != [2] * 3:
                await asyncio.sleep(0.01)

    with pytest.MonkeyPatch.context() as patched:
        only_one_of = receiving.only_one_of

        async def noted(messages):
            message = await only_one_of(messages)
            received.append(message)
            return message

        patched.setattr(receiving, "only_one_of", noted)
        gc.disable()
        try:
            play(tmp_path, scenario)
        finally:
            gc.enable()


def test_slow_messages_of_one_user_hold_up_that_user_alone(tmp_path, monkeypatch, slots_taken):
    monkeypatch.setattr(receiving, "MAX_AT_ONCE", 2)

    async def scenario(channel, rm):
        stub = rpc.ClientServiceStub(channel)
        ann, bob = await token_of(rm, "ann"), await token_of(rm, "bob")
        slow = [slow_call(channel, bob) for _ in range(2)]
        await slots_taken()
        assert len((await stub.List(pb.ListRequest(), metadata=ann, timeout=20)).apps) == 1
        waiting = stub.List(pb.ListRequest(), metadata=bob)
        done, _ = await asyncio.wait([asyncio.ensure_future(waiting.code())], timeout=0.5)
        assert not done
        slow[0].cancel()
        assert len((await asyncio.wait_for(waiting, 20)).apps) == 1
        slow[1].cancel()

    play(tmp_path, scenario)


def test_submissions_that_wait_hold_up_other_changes_of_their_user_and_no_reading(tmp_path, monkeypatch, slots_taken):
    monkeypatch.setattr(receiving, "MAX_AT_ONCE", 2)

    async def scenario(channel, rm):
        stub, bob = rpc.ClientServiceStub(channel), await token_of(rm, "bob")
        slow = [slow_call(channel, bob, SUBMIT) for _ in range(2)]
        await slots_taken()
        assert len((await stub.List(pb.ListRequest(), metadata=bob, timeout=20)).apps) == 1
        change = asyncio.ensure_future(stub.Kill(pb.KillRequest(app_id="app-9999"), metadata=bob).code())
        assert not (await asyncio.wait([change], timeout=0.5))[0]
        for call in slow:
            call.cancel()
        assert await asyncio.wait_for(change, 20) is grpc.StatusCode.NOT_FOUND

    play(tmp_path, scenario)


def test_user_has_a_bounded_number_of_open_streams(tmp_path, monkeypatch):
    monkeypatch.setattr(receiving, "MAX_STREAMS", 2)

    async def scenario(channel, rm):
        stub = rpc.ClientServiceStub(channel)
        ann, bob = await token_of(rm, "ann"), await token_of(rm, "bob")

        async def opened(metadata):
            call = stub.Watch(pb.WatchRequest(follow=True), metadata=metadata)
            await call.read()
            return call

        streams = [await opened(bob) for _ in range(2)]
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await opened(bob)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        streams.append(await opened(ann))
        streams[0].cancel()
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    streams.append(await opened(bob))
                    break
        for stream in streams:
            stream.cancel()

    play(tmp_path, scenario)


def test_streams_and_slots_of_callers_without_calls_are_forgotten():
    bounds = receiving.Receiving()
    with bounds.stream("bob"), contextlib.suppress(TooManyCallsError):
        assert bounds._streams == {"bob": 1}
    slot = bounds.slot("bob")
    assert bounds.slot("bob") is slot
    del slot
    assert not bounds._streams and not bounds._slots


def test_strangers_who_open_sessions_do_not_hold_up_an_app_master(tmp_path, monkeypatch, slots_taken):
    monkeypatch.setattr(receiving, "MAX_AT_ONCE", 1)

    async def scenario(channel, rm):
        entry = rm.entries.find("app-0001")
        stub = rpc.ArbiterServiceStub(channel)
        strangers = [stub.Session(), stub.Session(metadata=session_metadata(hashed("guessed"), entry.app_id, "once"))]
        await slots_taken()
        call = stub.Session(metadata=session_metadata(hashed(known_token(entry)), entry.app_id, "once"))
        await call.write(pb.AmMessage(register=registration(entry)))
        assert (await asyncio.wait_for(call.read(), 20)).registered.app_id == entry.app_id
        for each in (call, *strangers):
            each.cancel()

    play(tmp_path, scenario)


def test_marks_of_a_session_are_those_of_one_token_and_one_app():
    marks = dict(session_metadata(hashed("token"), "app-0001", "once"))
    assert is_session_metadata(marks, hashed("token"))
    assert not is_session_metadata(marks, hashed("another"))
    assert not is_session_metadata(marks, "")
    assert not is_session_metadata({**marks, "themis-app": "app-0002"}, hashed("token"))
    assert not is_session_metadata({**marks, "themis-nonce": "twice"}, hashed("token"))
    assert not is_session_metadata({**marks, "themis-mark": b"\xff"}, hashed("token"))
    assert not is_session_metadata({}, hashed("token"))
    assert SPEC.user not in str(marks) and "token" not in marks.values()
