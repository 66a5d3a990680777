"""A process of a former attempt whose session is still open: what it says changes nothing."""

import asyncio

import pytest
from service_cases import app, heartbeat, registration

from rm_plugin.service.memory_service import memory_service
from themis.wire import themis_pb2 as pb

BODIES = {
    "heartbeat": heartbeat(),
    "finish": pb.Finish(state="FINISHED"),
    "job_event": pb.JobEvent(job_id="job-0", kind="checkpoint", detail='{"iteration": 5, "seconds": 0.5}'),
}


def play(tmp_path, scenario):
    async def whole():
        async with memory_service(tmp_path) as rm:
            await scenario(rm)

    asyncio.run(asyncio.wait_for(whole(), 60))


@pytest.mark.parametrize("body", BODIES)
def test_message_of_a_former_attempt_is_refused(tmp_path, body):
    async def scenario(rm):
        entry, former = await rm.registered(app("mine"))
        rm.launcher.restarted[entry.app_id] = 2
        await rm.manager.sessions.register(registration(entry, attempt=2, pid=5))
        before = (entry.state, entry.heartbeat, entry.finish, entry.last_message, len(rm.kinds))
        # Its silence has begun.
        seen_s = entry.last_seen_s
        rm.clock.advance_to(rm.clock.now_s() + 5.0)
        await rm.manager.sessions.receive(entry, former, pb.AmMessage(id=9, **{body: BODIES[body]}))
        assert entry.refused_messages == 1
        assert (entry.state, entry.heartbeat, entry.finish, entry.last_message, len(rm.kinds)) == before
        assert entry.last_seen_s == seen_s

    play(tmp_path, scenario)


def test_former_attempt_cannot_open_a_session_again(tmp_path):
    async def scenario(rm):
        entry, _ = await rm.registered(app("mine"))
        rm.launcher.restarted[entry.app_id] = 2
        _, session = await rm.manager.sessions.register(registration(entry, attempt=2, pid=5))
        with pytest.raises(ValueError, match="this attempt is over"):
            await rm.manager.sessions.register(registration(entry, attempt=1))
        assert (entry.attempt, entry.session) == (2, session)

    play(tmp_path, scenario)
