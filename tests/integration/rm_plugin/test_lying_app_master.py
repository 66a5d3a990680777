"""A malicious app master on the wire: for each rule, the liar gains nothing and others lose nothing."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from liar import CLUSTER, MemoryEngine, Stage, spec_of, stage

from rm_plugin.service import claims, session_service
from rm_plugin.service.grant_limit import NO_GRANT_LIMIT
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc


def play(tmp_path, scenario, **changes):
    async def whole():
        async with stage(tmp_path, **changes) as on:
            return await scenario(on)

    return asyncio.run(asyncio.wait_for(whole(), 250))


def report_with(**values):
    """A lie that changes fields of every report, and of every demand in it by `demands__`."""

    def lie(_master, message):
        if message.WhichOneof("body") == "rho":
            for name, value in values.items():
                if name.startswith("demands__"):
                    for demand in message.rho.demands:
                        setattr(demand, name.removeprefix("demands__"), value)
                else:
                    setattr(message.rho, name, value)
        return message

    return lie


# ---- demand ---------------------------------------------------------------------------------------------------------


def test_an_app_of_one_gpu_that_always_demands_one_more_has_one(tmp_path):
    def hungry(_master, message):
        if message.WhichOneof("body") == "rho":
            del message.rho.demands[1:]
            if not message.rho.demands:
                message.rho.demands.add(
                    job_id="j0", min_gpus=1, max_gpus=1, unit_gpus=1, work_left_gpu_s=1000.0,
                    slowdown=pb.Slowdown(slot=1, machine=1, rack=1, cluster=1),
                )  # fmt: skip
        return message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar"), hungry)
        for _ in range(12):
            on.manager.rounds.trigger("test")
            await asyncio.sleep(0.05)
        other = await on.started(spec_of("other", jobs=7))
        await on.until(lambda: other.most_gpus == 7)
        assert liar.most_gpus == 1

    play(tmp_path, scenario, policy="srtf", lease={"duration_s": 60, "checkpoint_lead_s": 0.1, "grace_s": 0.5})


def test_a_job_that_is_listed_twice_demands_once(tmp_path):
    def twice(_master, message):
        if message.WhichOneof("body") == "rho" and message.rho.demands:
            demands = list(message.rho.demands)
            del message.rho.demands[:]
            message.rho.demands.extend([demands[0]] * 2)
        return message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=2), twice)
        await on.until(lambda: on.cut(liar) > 0)
        # One of its two jobs, in a round; the other was not demanded for.
        assert liar.most_gpus <= 2

    play(tmp_path, scenario, policy="srtf")


def test_unmet_gpus_of_a_heartbeat_are_those_of_the_specification(tmp_path):
    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar"))
        liar.send(heartbeat=pb.Heartbeat(unmet_gpus=64))
        await on.until(lambda: on.manager.entries.get(liar.app_id).heartbeat.unmet_gpus == 1)

    play(tmp_path, scenario)


def test_a_gang_that_a_job_does_not_hold_is_not_believed(tmp_path):
    def holds(_master, message):
        if message.WhichOneof("body") == "rho":
            for demand in message.rho.demands:
                demand.held.counts.add(machine_id="m1", gpus=4)
                demand.max_gpus = 4
        return message

    async def scenario(on: Stage):
        other = await on.started(spec_of("other", jobs=8))
        await on.until(lambda: other.gpus == 8)
        liar = await on.started(spec_of("liar", gpus=8), holds)
        await on.until(lambda: any("demand of j0" in note for note in not_believed(on, liar)))

    play(tmp_path, scenario, policy="worst_rho_first")


# ---- rho, work left, pace, cost of a restart ------------------------------------------------------------------------


# On a busy machine an honest report may be older than the leases, and is cut to them, too (rule 2 of `claims`).


def not_believed(on: Stage, master):
    """What was cut from an app's reports, in words."""
    events = [event for event in on.manager.recorder.events(0, "", None) if event.kind == "round_reported"]
    return [note for event in events for note in event.detail.get("not_believed", {}).get(master.app_id, ())]


def believed(on: Stage, master):
    """The rho of an app in each round."""
    events = [event for event in on.manager.recorder.events(0, "", None) if event.kind == "round_reported"]
    return [event.detail["rho"][master.app_id] for event in events if master.app_id in event.detail["rho"]]


async def until_cut(on: Stage, master):
    """Return once three claims of an app were cut, and a round is recorded that had one of its reports."""
    # A cut is counted before its round is written down.
    await on.until(lambda: on.cut(master) > 2 and believed(on, master))


def test_a_false_rho_is_at_most_that_of_an_app_that_waits_for_its_share(tmp_path):
    async def scenario(on: Stage):
        honest = await on.started(spec_of("honest", jobs=8))
        liar = await on.started(spec_of("liar", jobs=8), report_with(rho=1e9, t_shared_s=1e12))
        await until_cut(on, liar)
        assert max(believed(on, liar)) < 4.0
        assert on.cut(honest) < on.cut(liar)

    play(tmp_path, scenario, policy="worst_rho_first")


def test_a_short_ideal_time_is_at_least_that_of_the_work_left(tmp_path):
    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8), report_with(rho=1e9, t_ideal_s=1e-6))
        await until_cut(on, liar)
        assert max(believed(on, liar)) < 4.0

    play(tmp_path, scenario, policy="worst_rho_first")


def test_an_app_that_overran_what_it_declared_has_as_much_left_as_it_has_had(tmp_path, monkeypatch):
    # The rule begins after 600 GPU seconds, longer than a test.
    monkeypatch.setattr(claims, "SLACK_GPU_S", 0.0)

    def nearly_done(master, message):
        if message.WhichOneof("body") == "rho" and master.most_gpus:
            for phase in message.rho.phases_left:
                phase.work_gpu_s = phase.longest_gpu_s = 1e-6
            for demand in message.rho.demands:
                demand.work_left_gpu_s = 1e-6
        return message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8, work_gpu_s=0.1), nearly_done)
        await on.until(lambda: any("it declared" in note for note in not_believed(on, liar)))

    play(tmp_path, scenario, policy="srtf")


@pytest.mark.parametrize(("speed", "most_rho"), [(1.0, 10.0), (1e-9, 100.0), (1e9, 100.0)])
def test_a_false_pace_is_at_most_ten_times_the_one_of_the_specification(tmp_path, speed, most_rho):
    def paced(_master, message):
        if message.WhichOneof("body") == "rho":
            message.rho.rho, message.rho.t_shared_s, message.rho.t_ideal_s = 1e9, 1e12, 1e-6
            for demand in message.rho.demands:
                demand.speeds[next(iter(CLUSTER.gpus_by_device))] = speed
        return message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8), paced)
        await until_cut(on, liar)
        assert max(believed(on, liar)) < most_rho

    play(tmp_path, scenario, policy="worst_rho_first")


def test_a_false_slowdown_is_at_most_ten(tmp_path):
    def spread(_master, message):
        if message.WhichOneof("body") == "rho":
            for demand in message.rho.demands:
                demand.slowdown.rack = demand.slowdown.cluster = 1e6
        return message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8), spread)
        # Nothing else of it is false.
        await on.until(lambda: any("the demand of j" in note for note in not_believed(on, liar)))
        assert max(believed(on, liar)) < 40.0

    play(tmp_path, scenario, policy="worst_rho_first")


def test_phases_have_at_most_the_jobs_of_the_app(tmp_path):
    def wide(_master, message):
        if message.WhichOneof("body") == "rho":
            for phase in message.rho.phases_left:
                phase.jobs = phase.gang_gpus = 1_000_000
                phase.longest_gpu_s = 1e12
        return message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8), wide)
        await on.until(lambda: any("a phase of 8 jobs" in note for note in not_believed(on, liar)))

    play(tmp_path, scenario, policy="fair_finish")


def test_a_false_cost_of_a_restart_is_at_most_a_lease_or_a_minute(tmp_path):
    async def scenario(on: Stage):
        honest = await on.started(spec_of("honest", jobs=8))
        liar = await on.started(spec_of("liar", jobs=8), report_with(restart_s=1e9))
        await until_cut(on, liar)
        assert on.cut(honest) < on.cut(liar)

    play(tmp_path, scenario, policy="fair_finish")


# ---- bids -----------------------------------------------------------------------------------------------------------


def test_rows_of_any_value_are_cut_to_what_the_report_allows(tmp_path):
    def dear(_master, message):
        if message.WhichOneof("body") == "bid":
            for row in message.bid.rows:
                row.value = 1e12
            message.bid.empty_value = 1e-12
        return message

    async def scenario(on: Stage):
        honest = await on.started(spec_of("honest", jobs=8))
        liar = await on.started(spec_of("liar", jobs=8), dear)
        await on.until(lambda: on.cut(liar) > 0 and on.gpu_s(honest) + on.gpu_s(liar) > 16.0)
        assert on.cut(honest) < on.cut(liar)
        assert on.gpu_s(honest) > 0.25 * on.gpu_s(liar)

    play(tmp_path, scenario, policy="themis", auction={"keep_markets": 0, "f": 0.0})


def test_a_bid_of_too_many_rows_is_refused(tmp_path):
    def long(_master, message):
        if message.WhichOneof("body") == "bid" and message.bid.rows:
            message.bid.rows.extend([message.bid.rows[0]] * 2000)
        return message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8), long)
        await on.until(lambda: on.manager.entries.get(liar.app_id).refused_messages > 0)

    play(tmp_path, scenario, policy="themis")


def test_an_app_that_answers_no_offer_holds_up_nobody(tmp_path):
    def mute(_master, message):
        return None if message.WhichOneof("body") == "bid" else message

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8), mute)
        other = await on.started(spec_of("other", jobs=8))
        # Until then the liar is alone, and has everything.
        await on.until(lambda: on.gpu_s(other) > 0.0)
        alone_gpu_s = on.gpu_s(liar)
        await on.until(lambda: on.gpu_s(other) > 4.0)
        assert on.gpu_s(liar) - alone_gpu_s < 2.0 * on.gpu_s(other)

    play(tmp_path, scenario, policy="themis", auction={"keep_markets": 0, "f": 0.0})


# ---- attempts -------------------------------------------------------------------------------------------------------


def refused(on: Stage, victim, **changes):
    """Register once more, changed, and return how the server refused it; the victim's session must go on."""

    async def whole():
        intruder = on.connect(victim.app_id, victim.spec, **changes)
        await asyncio.wait_for(asyncio.gather(intruder.task), 20)
        assert intruder.refusal is not None
        assert not victim.task.done()
        assert on.manager.entries.get(victim.app_id).session is not None
        return intruder.refusal.details()

    return whole()


def test_attempts_that_the_engine_did_not_start_are_refused(tmp_path):
    async def scenario(on: Stage):
        victim = await on.started(spec_of("mine"))
        entry = on.manager.entries.get(victim.app_id)
        assert "token" in await refused(on, victim, token="guessed")
        assert "token" in await refused(on, victim, token=entry.token_sha256)
        assert "has not started this attempt" in await refused(on, victim, attempt=2)
        assert "this attempt is over" in await refused(on, victim, attempt=0)
        assert "another process" in await refused(on, victim, pid=815)
        assert entry.attempt == 1

    play(tmp_path, scenario)


def test_token_of_a_lost_attempt_is_refused_once_the_next_one_starts(tmp_path):
    async def scenario(on: Stage):
        victim = await on.started(spec_of("mine"))
        former = victim.registration
        await on.engine.started.end(victim.app_id, 1)
        await on.until(lambda: on.engine.started.living.get(victim.app_id) is not None)
        stale = on.connect(victim.app_id, victim.spec, token=former.token)
        await asyncio.wait_for(asyncio.gather(stale.task), 20)
        assert "token" in stale.refusal.details()
        again = on.connect(victim.app_id, victim.spec)
        await asyncio.wait_for(again.registered.wait(), 20)

    play(tmp_path, scenario)


def test_store_has_no_token_in_clear(tmp_path):
    async def scenario(on: Stage):
        victim = await on.started(spec_of("mine"))
        (stored,) = on.server._store.apps()
        assert stored.token.startswith("sha256:")
        assert victim.registration.token not in str(on.engine.started.living[victim.app_id].environment)
        assert victim.registration.token not in repr(on.engine.started.living[victim.app_id])

    play(tmp_path, scenario)


# ---- silence, and machines that are said to be full -----------------------------------------------------------------


def test_silent_app_holds_its_gpus_for_one_lease_more_at_most(tmp_path):
    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8))
        await on.until(lambda: liar.gpus == 8)
        other = await on.started(spec_of("other", jobs=8))
        await on.disconnect(liar)
        # Long before it counts as lost, and so it could come back each time for a moment.
        await on.until(lambda: other.most_gpus == 8, 40.0)

    play(tmp_path, scenario, policy="srtf", am_expiry_s=45.0)


def full_everywhere(tmp_path, **changes):
    """An app that gives every GPU back because there is no room; GPUs that are closed, and those of another app."""

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8))
        for _ in range(8):
            await on.until(lambda: liar.leases or on.manager.arbiter.table.closed, 20)
            if liar.leases:
                liar.send(release=pb.Release(lease_ids=list(liar.leases), reason="full", no_room=True))
                liar.leases = {}
            await asyncio.sleep(0.05)
        return len(on.manager.live_cluster.unfit_gpus(on.manager.clock.now_s()))

    return play(tmp_path, scenario, policy="srtf", **changes)


def test_no_room_on_this_machine_is_not_believed(tmp_path):
    assert full_everywhere(tmp_path) == 0


def test_no_room_that_is_said_without_end_does_not_close_the_machines(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(MemoryEngine, "poll_s", 0.05)

    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8))
        for _ in range(3):
            await on.until(lambda: liar.leases, 20)
            liar.send(release=pb.Release(lease_ids=list(liar.leases), reason="full", no_room=True))
            liar.leases = {}
        await on.until(lambda: "says too often that the engine has no room" in caplog.text)
        other = await on.started(spec_of("other", jobs=8, work_gpu_s=10.0))
        await on.until(lambda: other.most_gpus == 8)

    play(tmp_path, scenario, policy="srtf", engine="docker", unfit_s=0.2)


def test_a_headroom_of_nothing_limits_the_app_that_says_it_alone(tmp_path):
    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar", jobs=8))
        await on.until(lambda: liar.leases)
        liar.send(release=pb.Release(lease_ids=list(liar.leases), reason="full", no_room=True, headroom_gpus=0))
        other = await on.started(spec_of("other", jobs=8))
        await on.until(lambda: other.most_gpus == 8)
        entries = on.manager.entries
        assert entries.get(liar.app_id).grant_limit.gpus == 0
        assert entries.get(other.app_id).grant_limit == NO_GRANT_LIMIT
        assert not on.manager.arbiter.table.closed

    play(tmp_path, scenario, policy="srtf", engine="docker", unfit_s=60.0)


# ---- sizes and rates ------------------------------------------------------------------------------------------------


def test_flood_of_messages_ends_the_session_with_its_reason(tmp_path, caplog):
    async def scenario(on: Stage):
        other = await on.started(spec_of("other"))
        liar = await on.started(spec_of("liar"))
        for _ in range(12_000):
            liar.send(heartbeat=pb.Heartbeat())
        await asyncio.wait_for(asyncio.gather(liar.task), 200)
        assert not other.task.done()
        return liar

    # Leases of a minute: an app master that only sends does not give one back in time.
    liar = play(tmp_path, scenario, lease={"duration_s": 60, "checkpoint_lead_s": 0.1, "grace_s": 0.5})
    # gRPC may report that a message could not be sent any more, and not why the session ended.
    (logged,) = [record.getMessage() for record in caplog.records if "too many messages" in record.getMessage()]
    assert logged.startswith(f"a session of {liar.registration.app_id} ends")


def test_message_larger_than_the_limit_is_refused(tmp_path):
    async def scenario(on: Stage):
        liar = await on.started(spec_of("liar"))
        liar.send(heartbeat=pb.Heartbeat(checkpoint_uri="x" * (17 * 2**20)))
        await asyncio.wait_for(asyncio.gather(liar.task), 200)
        assert liar.refusal.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    play(tmp_path, scenario)


def test_session_that_never_registers_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(session_service, "REGISTER_S", 0.2)

    async def scenario(on: Stage):
        async def nothing():
            await asyncio.sleep(30)
            yield pb.AmMessage()

        async with grpc.aio.insecure_channel(on.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="begins with a registration"):
                async for _ in rpc.ArbiterServiceStub(channel).Session(nothing()):
                    pass

    play(tmp_path, scenario)


# ---- what belongs to others ------------------------------------------------------------------------------------------


def test_leases_of_another_app_are_neither_released_nor_taken(tmp_path):
    async def scenario(on: Stage):
        victim = await on.started(spec_of("victim", jobs=8))
        await on.until(lambda: victim.gpus == 8)
        taken = sorted(victim.leases)
        liar = await on.started(spec_of("liar"))
        for no_room in (False, True):
            liar.send(release=pb.Release(lease_ids=taken, reason="mine", no_room=no_room))
        liar.send(job_event=pb.JobEvent(kind="job_progress", job_id="j0", detail="{}"))
        await on.until(lambda: on.events("job_progress"))
        again = on.connect(liar.app_id, liar.spec, held_lease_ids=taken)
        await asyncio.wait_for(again.registered.wait(), 20)
        assert not again.leases
        live = on.manager.arbiter.table.live.values()
        assert sorted(lease.lease_id for lease in live if lease.app_id == victim.app_id) == taken

    play(tmp_path, scenario, policy="srtf", lease={"duration_s": 60, "checkpoint_lead_s": 0.1, "grace_s": 0.5})


def test_events_of_the_service_and_of_other_apps_are_not_forged(tmp_path):
    async def scenario(on: Stage):
        victim = await on.started(spec_of("victim"))
        liar = await on.started(spec_of("liar"))
        for kind in ("user_acted", "lease_granted", "app_kill_wanted", "round_granted"):
            liar.send(job_event=pb.JobEvent(kind=kind, detail='{"user": "ann", "action": "logs_read"}'))
        detail = f'{{"app_id": "{victim.app_id}", "line": "mine"}}'
        liar.send(job_event=pb.JobEvent(kind="job_progress", job_id="j0", detail=detail))
        await on.until(lambda: on.events("job_progress"))
        assert {event.app_id for event in on.events("job_progress")} == {liar.app_id}
        assert not on.events("user_acted") and not on.events("app_kill_wanted")
        assert all("logs_read" not in str(event.detail) for event in on.events())

    play(tmp_path, scenario)


def test_app_master_cannot_pause_or_end_another_app(tmp_path):
    """An end has no app in it: it is of the session's app. A pause is its user's."""

    async def scenario(on: Stage):
        victim = await on.started(spec_of("victim"))
        liar = await on.started(spec_of("liar"))
        liar.send(finish=pb.Finish(state="PAUSED", diagnostics=victim.app_id))
        liar.send(finish=pb.Finish(state="KILLED", diagnostics=victim.app_id))
        await on.until(lambda: on.manager.entries.get(liar.app_id).ended)
        assert on.manager.entries.get(victim.app_id).is_active

    play(tmp_path, scenario)


# ---- its page -------------------------------------------------------------------------------------------------------


def test_page_on_another_host_is_not_asked_for(tmp_path):
    async def scenario(on: Stage):
        app_id = await on.submit(spec_of("liar"))
        for page_url, kept in (("http://192.0.2.1/", ""), ("http://127.0.0.1:1/x", ""), ("http://127.0.0.1:1/",) * 2):
            liar = on.connect(app_id, spec_of("liar"), page_url=page_url)
            await asyncio.wait_for(liar.registered.wait(), 20)
            assert on.manager.entries.get(app_id).page_url == kept

    play(tmp_path, scenario)
