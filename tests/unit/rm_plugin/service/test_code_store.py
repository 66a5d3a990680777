"""The code of apps in the ResourceManager: kept before the app is accepted, given to each attempt once."""

import asyncio

import pytest
from service_cases import known_token

from rm_plugin.service import code_store
from rm_plugin.service.code_store import CodeStore
from rm_plugin.service.memory_service import memory_service
from rm_plugin.service.store import StoreError
from themis.apps import AppSpec, CodeArchive, JobSpec, ProgramSpec, TunerSpec
from themis.errors import InputError
from themis.wire import themis_pb2 as pb

CODE = CodeArchive.of(b"an archive")
KNOWN = CodeArchive(sha256=CODE.sha256)


def app(code):
    program = ProgramSpec(command="python train.py", code=code)
    job = JobSpec(job_id="job-00", iterations_total=1)
    return AppSpec(user="user", name="coded", tuner=TunerSpec(name="single"), program=program, jobs=(job,))


def run(tmp_path, scenario):
    async def whole():
        async with memory_service(tmp_path) as rm:
            return await scenario(rm)

    return asyncio.run(asyncio.wait_for(whole(), 20))


def welcome(session):
    return session._outgoing.get_nowait().registered


def registration(entry, **more):
    return pb.Register(app_id=entry.app_id, token=known_token(entry), attempt=entry.attempt, pid=7, **more)


def test_an_attempt_gets_the_code_unless_it_has_it(tmp_path):
    async def scenario(rm):
        entry = await rm.manager.submit(app(KNOWN), CODE.content)
        _, first = await rm.manager.register(registration(entry))
        _, again = await rm.manager.register(registration(entry, has_code=True))
        return welcome(first).code, welcome(again).code

    assert run(tmp_path, scenario) == (CODE.content, b"")


def test_an_app_with_known_code_need_not_send_it(tmp_path):
    async def scenario(rm):
        await rm.manager.submit(app(KNOWN), CODE.content)
        second = await rm.manager.submit(app(KNOWN))
        _, session = await rm.manager.register(registration(second))
        return welcome(session).code

    assert run(tmp_path, scenario) == CODE.content


@pytest.mark.parametrize(
    ("code", "content", "what"),
    [
        (KNOWN, b"another", "damaged on its way"),
        (KNOWN, b"", "no longer stored"),
        (None, b"an archive", "without its hash"),
        (KNOWN, b"x" * 21, "too large"),
    ],
)
def test_an_app_with_wrong_code_is_refused_and_leaves_nothing(tmp_path, monkeypatch, code, content, what):
    monkeypatch.setattr(code_store, "MAX_PACKED_BYTES", 20)

    async def scenario(rm):
        with pytest.raises(InputError, match=what):
            await rm.manager.submit(app(code), content)
        assert list(rm.entries) == []

    run(tmp_path, scenario)


def test_an_app_whose_code_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "code").write_text("a file in place of the folder")
    with pytest.raises(StoreError, match="cannot be written"):
        asyncio.run(CodeStore(tmp_path).keep(KNOWN, CODE.content))
