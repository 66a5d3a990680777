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


async def kept(codes, content=CODE.content):
    async with codes.keeping(KNOWN, content):
        pass


def archives(tmp_path):
    return sorted(path.name for path in (tmp_path / "code").iterdir())


async def end(rm, entry):
    """End an app as its master does."""
    _, session = await rm.manager.sessions.register(registration(entry))
    await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED")))
    session.close()
    rm.manager.sessions.disconnected(entry, session)


def later(rm, seconds):
    rm.clock.advance_to(rm.clock.now_s() + seconds)


def welcome(session):
    return session._outgoing.get_nowait().registered


def registration(entry, **more):
    return pb.Register(app_id=entry.app_id, token=known_token(entry), attempt=entry.attempt, pid=7, **more)


def test_an_attempt_gets_the_code_unless_it_has_it(tmp_path):
    async def scenario(rm):
        entry = await rm.manager.submit(app(KNOWN), CODE.content)
        _, first = await rm.manager.sessions.register(registration(entry))
        _, again = await rm.manager.sessions.register(registration(entry, has_code=True))
        return welcome(first).code, welcome(again).code

    assert run(tmp_path, scenario) == (CODE.content, b"")


def test_an_app_with_known_code_need_not_send_it(tmp_path):
    async def scenario(rm):
        await rm.manager.submit(app(KNOWN), CODE.content)
        second = await rm.manager.submit(app(KNOWN))
        _, session = await rm.manager.sessions.register(registration(second))
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
        asyncio.run(kept(CodeStore(tmp_path)))


def test_folder_is_made_for_the_first_code(tmp_path):
    asyncio.run(kept(CodeStore(tmp_path / "new")))
    assert len(archives(tmp_path / "new")) == 1


RETENTION = {"retention": {"keep_s": 1_000.0}, "am_starts_at_once": 1_000}
NAME = f"{CODE.sha256}.tar.gz"


def test_code_is_removed_once_the_last_app_with_it_has_left_the_log(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **RETENTION) as rm:
            first = await rm.manager.submit(app(KNOWN), CODE.content)
            second = await rm.manager.submit(app(KNOWN))
            copy = tmp_path / "apps" / first.app_id / "code.tar.gz"
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(CODE.content)
            await end(rm, first)
            later(rm, 1_001.0)
            assert await rm.manager.retention.archive_old() == 1
            assert not copy.exists()
            assert await rm.manager.retention.remove_code() == 0
            await end(rm, second)
            assert await rm.manager.retention.remove_code() == 0
            assert archives(tmp_path) == [NAME]
            later(rm, 1_001.0)
            await rm.manager.retention.archive_old()
            assert await rm.manager.retention.remove_code() == 1
            assert archives(tmp_path) == []
            assert rm.kinds[-1] == "code_removed"
            assert await rm.manager.retention.remove_code() == 0

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_what_a_user_put_in_place_of_the_copy_stops_no_archiving(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **RETENTION) as rm:
            entry = await rm.manager.submit(app(KNOWN), CODE.content)
            (tmp_path / "apps" / entry.app_id / "code.tar.gz").mkdir(parents=True)
            await end(rm, entry)
            later(rm, 1_001.0)
            assert await rm.manager.retention.archive_old() == 1
            assert await rm.manager.retention.remove_code() == 1

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_code_is_removed_after_a_restart_too_and_that_of_living_apps_is_not(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **RETENTION) as rm:
            await rm.manager.submit(app(KNOWN), CODE.content)
            store = rm.store
        # An app whose submission was cut short left these.
        (tmp_path / "code" / f"{'0' * 64}.tar.gz").write_bytes(b"unknown")
        (tmp_path / "code" / ".abc.7.partial").write_bytes(b"half")
        async with memory_service(tmp_path, store=store, **RETENTION) as again:
            assert await again.manager.retention.remove_code() == 2
            assert archives(tmp_path) == [NAME]

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_code_of_an_app_that_is_being_submitted_is_not_removed(tmp_path):
    async def noted(_number):
        noted_numbers.append(_number)

    async def scenario():
        codes = CodeStore(tmp_path)
        async with codes.keeping(KNOWN, CODE.content), codes.keeping(KNOWN, b""):
            assert await codes.remove_unused(set, noted) == 0
        assert archives(tmp_path) == [NAME]
        assert await codes.remove_unused(set, noted) == 1

    noted_numbers: list[int] = []
    asyncio.run(scenario())
    assert (noted_numbers, archives(tmp_path)) == ([1], [])


def test_nothing_is_removed_if_that_cannot_be_written(tmp_path):
    async def refused(_number):
        raise StoreError("another ResourceManager has taken over")

    async def scenario():
        codes = CodeStore(tmp_path)
        await kept(codes)
        with pytest.raises(StoreError):
            await codes.remove_unused(set, refused)

    asyncio.run(scenario())
    assert archives(tmp_path) == [NAME]


def test_folder_that_does_not_exist_has_no_code_to_remove(tmp_path):
    assert asyncio.run(CodeStore(tmp_path / "none").remove_unused(set, None)) == 0
