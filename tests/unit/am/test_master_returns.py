"""The app master's leases while containers stay on their GPUs, and its reports about the app."""

import asyncio
import itertools
import math
import sys
from types import SimpleNamespace

import pytest
from agent_cases import cluster_of
from msgspec.structs import replace

from am.context import AmContext
from am.jobs.planner import Plan
from am.master import AppMaster, AttemptLostError
from am.runtimes.memory import MemoryRuntime
from am.runtimes.port import NoRoomError, NothingKept
from am.status import finish_message
from themis.apps import AppSpec, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.clock import VirtualClock
from themis.cluster import GpuId
from themis.errors import InputError, MissingHereError, UnreachableError
from themis.lifecycle import AppState, JobState
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, cluster_to_message

A, B, C = (GpuId("m0", index) for index in range(3))


class FakeKept:
    """Seats that end when the test ends them. Keeps the prepared requests."""

    def __init__(self):
        self.there, self.cleared, self.prepared, self.ready = set(), set(), [], True

    def watch(self, on_change, on_no_room):
        self.on_change, self.on_no_room = on_change, on_no_room

    def prepare(self, requests, granted):
        self.prepared += [request.gpus for request in requests if granted.issuperset(request.gpus)]
        return self.ready

    def occupied(self):
        return frozenset(self.there)

    async def clear(self, gpus):
        self.cleared |= set(gpus)
        while self.there.intersection(gpus):
            await asyncio.sleep(0.001)


class Attempt:
    """An app master with leases from the test and a runtime in memory. Its session sends nothing."""

    def __init__(self, folder, *, tasks=3, min_tasks=0, stop_ends_app=True):
        self.runtime = MemoryRuntime()
        self.kept = self.runtime.kept = FakeKept()
        context = AmContext(rm_address="", app_id="app-1", attempt=1, token="t", folder=folder)
        self.master = AppMaster(
            context,
            SimpleNamespace(runtime=self.runtime, attempt=1, headroom_gpus=3, stop_ends_app=stop_ends_app),
            VirtualClock(50.0),
        )
        self.version = 0
        shape = JobShape(tasks=tasks, min_tasks=min_tasks or tasks)
        self.spec = AppSpec(
            name="x",
            tuner=TunerSpec(name="single"),
            program=ProgramSpec(name="", command="train"),
            jobs=(JobSpec(job_id="j0", iterations_total=60, shape=shape),),
        )

    async def open(self):
        await self.master._open(self.registered())

    def registered(self):
        return pb.Registered(
            app_id="app-1", spec=app_to_message(self.spec), cluster=cluster_to_message(cluster_of((4,))), now_s=1000.0,
            lease_s=600.0, grace_s=1.0, active_apps=1, contention=1.0, bundle_rule="continuation",
        )  # fmt: skip

    @property
    def app(self):
        return self.master._app

    def hold(self, **states):
        """Make leases on GPUs, each with a state."""
        self.version += 1
        leases = [
            pb.Lease(lease_id=index + 1, machine_id="m0", gpu_index=index, state=state, expires_at_s=2000.0)
            for index, state in ((int(name[1:]), state) for name, state in states.items())
        ]
        self.app.take_leases(pb.LeaseUpdate(version=self.version, leases=leases))

    def apply(self, **plan):
        self.master._apply(self.app, Plan(**plan))

    def released(self):
        """Return the indices of the GPUs returned so far."""
        messages = self.master._session._unacknowledged.values()
        return sorted(number - 1 for message in messages for number in message.release.lease_ids)

    async def until(self, condition):
        async with asyncio.timeout(30.0):
            while not condition():
                await asyncio.sleep(0.001)


def run(tmp_path, scenario, **settings):
    async def whole():
        attempt = Attempt(tmp_path, **settings)
        await attempt.open()
        await scenario(attempt)
        attempt.master._journal.close()

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_ending_lease_is_released_after_its_container_ended(tmp_path):
    async def scenario(one):
        one.hold(g0="GRANTED", g1="EXPIRING", g2="EXPIRING")
        one.kept.there = {A, B}
        one.apply()
        assert one.released() == [2]
        await one.until(lambda: one.kept.cleared)
        assert one.kept.cleared == {B}
        one.master._dirty.clear()
        one.kept.there = {A}
        await one.until(one.master._dirty.is_set)
        one.apply()
        assert one.released() == [1, 2]

    run(tmp_path, scenario)


def test_unusable_lease_is_released_after_its_container_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("am.master._LINGER_S", 0.0)

    async def scenario(one):
        one.hold(g0="GRANTED", g1="GRANTED")
        one.kept.there = {A}
        one.apply(release=(A, B))
        assert one.released() == [1]
        one.kept.there = set()
        one.apply(release=(A,))
        assert one.released() == [0, 1]

    run(tmp_path, scenario)


def test_container_on_gpu_without_lease_is_ended(tmp_path):
    async def scenario(one):
        one.hold(g0="GRANTED", g1="GRANTED")
        one.kept.there = {A, B}
        one.apply()
        one.hold(g0="GRANTED")
        one.apply()
        await one.until(lambda: one.kept.cleared)
        assert one.kept.cleared == {B}
        assert one.released() == []

    run(tmp_path, scenario)


def test_app_ends_after_all_its_containers(tmp_path):
    async def scenario(one):
        one.hold(g0="GRANTED")
        one.kept.there = {A}
        one.master._opening = asyncio.ensure_future(asyncio.sleep(0))
        one.master.stop("changed my mind")
        working = asyncio.ensure_future(one.master._work())
        reported = lambda: any(m.HasField("finish") for m in one.master._session._unacknowledged.values())  # noqa: E731
        await one.until(lambda: one.kept.cleared)
        await asyncio.sleep(0.05)
        assert not reported()
        one.kept.there = set()
        await one.until(reported)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    run(tmp_path, scenario)


def test_next_attempt_starts_jobs_after_an_end_that_was_not_reported(tmp_path):
    """An app master that was asked to end is killed before its last message is written: the app goes on."""

    async def asked_to_end(one):
        one.master._opening = asyncio.ensure_future(asyncio.sleep(0))
        one.master.end()
        working = asyncio.ensure_future(one.master._work())
        await one.until(lambda: one.app.search.jobs["j0"].state is JobState.KILLED)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    async def next_attempt(one):
        one.hold(g0="GRANTED", g1="GRANTED", g2="GRANTED")
        one.master._apply(one.app, one.master._make_plan(one.app))
        await one.until(lambda: len(one.runtime.running) == 3)
        one.apply(stop={"j0": "the test ends"})
        await one.until(lambda: not one.app.search.jobs["j0"].running)

    run(tmp_path, asked_to_end)
    run(tmp_path, next_attempt)


class TestStopByAnEngineThatStartsAnotherAttempt:
    """YARN stops an app master to preempt it, or after its node was taken for lost: the app goes on."""

    def test_attempt_ends_without_a_last_message(self, tmp_path):
        async def scenario(one):
            one.hold(g0="GRANTED", g1="GRANTED", g2="GRANTED")
            one.master._opening = asyncio.ensure_future(asyncio.sleep(0))
            working = asyncio.ensure_future(one.master._work())
            await one.until(lambda: len(one.runtime.running) == 3)
            one.master.end()
            with pytest.raises(AttemptLostError, match="the app master was asked to end"):
                await working
            assert not one.runtime.running
            assert one.app.search.jobs["j0"].state is JobState.WAITING
            assert not any(each.HasField("finish") for each in one.master._session._unacknowledged.values())

        run(tmp_path, scenario, stop_ends_app=False)

    @pytest.mark.parametrize("pause", [False, True])
    def test_app_that_its_user_ended_or_paused_before_says_so(self, tmp_path, pause):
        async def scenario(one):
            one.master._opening = asyncio.ensure_future(asyncio.sleep(0))
            one.master.stop("changed my mind", pause=pause)
            one.master.end()
            working = asyncio.ensure_future(one.master._work())
            messages = one.master._session._unacknowledged
            await one.until(lambda: any(each.HasField("finish") for each in messages.values()))
            (finish,) = [each.finish for each in messages.values() if each.HasField("finish")]
            assert (finish.state, finish.diagnostics) == ("PAUSED" if pause else "KILLED", "changed my mind")
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

        run(tmp_path, scenario, stop_ends_app=False)


def test_app_whose_job_may_not_start_fails_with_the_reason(tmp_path):
    """A defect. The end of the app must not stop on it too, or attempt after attempt would die without a word."""

    async def scenario(one):
        one.hold(g0="GRANTED", g1="GRANTED", g2="GRANTED")
        one.master._opening = asyncio.ensure_future(asyncio.sleep(0))
        one.app.search.jobs["j0"].state = JobState.KILLED
        messages = one.master._session._unacknowledged
        working = asyncio.ensure_future(one.master._work())
        await one.until(lambda: working.done() or any(each.HasField("finish") for each in messages.values()))
        (finish,) = [each.finish for each in messages.values() if each.HasField("finish")]
        assert finish.state == "FAILED"
        assert finish.diagnostics == "job j0 cannot go from KILLED to STARTING"
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    run(tmp_path, scenario)


@pytest.mark.parametrize("asked_first", [True, False])
def test_app_master_asked_to_end_does_not_wait_for_an_absent_resource_manager(tmp_path, monkeypatch, asked_first):
    """It may wait for hours to report an end, but not once it was asked to end itself, before or during the wait."""
    monkeypatch.setattr("am.master._FAREWELL_S", 0.05)

    async def scenario(one):
        if asked_first:
            one.master.stop("the machine goes down")
        delivering = asyncio.ensure_future(one.master._deliver(pb.Finish(state="FINISHED")))
        if not asked_first:
            await asyncio.sleep(0.2)
            assert not delivering.done()
            one.master.stop("the machine goes down")
        with pytest.raises(UnreachableError):
            await asyncio.wait_for(delivering, 30.0)

    run(tmp_path, scenario)


def test_growing_job_prepares_containers_on_granted_gpus(tmp_path):
    async def scenario(one):
        one.hold(g0="GRANTED", g1="GRANTED", g2="RESERVED")
        one.apply(prepare={"j0": (A, B, C)})
        assert one.kept.prepared == [(A,), (B,)]

    run(tmp_path, scenario)


def test_job_works_on_until_the_gpus_that_it_grows_by_are_ready(tmp_path):
    async def scenario(one):
        one.hold(g0="GRANTED", g1="GRANTED", g2="GRANTED")
        job = one.app.search.jobs["j0"]
        one.apply(start={"j0": (A,)})
        await one.until(lambda: one.runtime.running)
        growth = {"stop": {"j0": "it grows"}, "prepare": {"j0": (A, B, C)}}
        one.kept.ready = False
        one.apply(**growth)
        assert not job.stop_reason
        one.kept.ready = True
        one.apply(**growth)
        assert job.stop_reason == "it grows"
        await one.until(lambda: not job.running)

    run(tmp_path, scenario, min_tasks=1)


def test_job_works_on_until_the_gpus_that_it_grows_by_are_granted(tmp_path):
    """Also on engines that keep no seats: their leases are those of others as long as they are reserved."""

    async def scenario(one):
        one.runtime.kept = NothingKept()
        one.hold(g0="GRANTED", g1="GRANTED", g2="RESERVED")
        job = one.app.search.jobs["j0"]
        one.apply(start={"j0": (A,)})
        await one.until(lambda: one.runtime.running)
        growth = {"stop": {"j0": "it grows"}, "prepare": {"j0": (A, B, C)}}
        one.apply(**growth)
        assert not job.stop_reason
        one.hold(g0="GRANTED", g1="GRANTED", g2="GRANTED")
        one.apply(**growth)
        assert job.stop_reason == "it grows"
        await one.until(lambda: not job.running)

    run(tmp_path, scenario, min_tasks=1)


def test_app_master_outlives_questions_that_it_cannot_answer(tmp_path, caplog):
    """The last machine may be lost within a round. Without a GPU in the cluster no app has a rho, or a bid."""
    machines = cluster_to_message(cluster_of((4,)))

    async def scenario(one):
        sent = []
        one.master._session.send = sent.append
        question = {"round_id": 1, "now_s": 1000.0, "contention": 1.0, "active_apps": 1}
        ask, offer = pb.AskRho(**question), pb.Offer(**question, lease_s=600.0)
        one.master._on_message(pb.RmMessage(cluster=pb.ClusterUpdate(cluster=machines, gpus_available=0)))
        one.master._on_message(pb.RmMessage(ask_rho=ask))
        one.master._on_message(pb.RmMessage(offer=offer))
        assert (sent, caplog.text.count("a question of a round cannot be answered")) == ([], 2)
        assert one.app.final_rho() == {}
        one.master._on_message(pb.RmMessage(cluster=pb.ClusterUpdate(cluster=machines, gpus_available=4)))
        one.master._on_message(pb.RmMessage(ask_rho=ask))
        one.master._on_message(pb.RmMessage(offer=offer))
        assert [message.WhichOneof("body") for message in sent] == ["rho", "bid"]
        assert one.app.final_rho()

    run(tmp_path, scenario)


@pytest.mark.parametrize(("gpus", "released"), [((B,), [1]), ((A,), [])])
def test_gpus_whose_containers_were_not_granted_are_released_unless_a_job_starts_there(tmp_path, gpus, released):
    async def scenario(one):
        one.hold(g0="GRANTED", g1="GRANTED")
        one.apply(start={"j0": (A,)})
        await one.until(lambda: one.runtime.running)
        one.kept.on_no_room(gpus, NoRoomError("YARN granted no container within 20 s", headroom_gpus=2))
        assert one.released() == released
        releases = [each.release for each in one.master._session._unacknowledged.values() if each.HasField("release")]
        assert [each.headroom_gpus for each in releases] == [2] * len(released)
        one.apply(stop={"j0": "the test ends"})
        await one.until(lambda: not one.app.search.jobs["j0"].running)

    run(tmp_path, scenario, min_tasks=1)


def test_moving_job_restarts_on_reserved_gpus(tmp_path):
    """Alone it would take all three GPUs. Two are reserved and prepared for it while it stops."""

    async def scenario(one):
        one.hold(g0="GRANTED", g1="GRANTED", g2="GRANTED")
        job = one.app.search.jobs["j0"]
        one.apply(start={"j0": (A,)})
        await one.until(lambda: one.runtime.running)
        one.apply(stop={"j0": "it moves"}, move={"j0": (B, C)})
        assert one.kept.prepared == [(B,), (C,)]
        one.master._apply(one.app, plan := one.master._make_plan(one.app))
        assert plan == Plan(move={"j0": (B, C)})
        await one.until(lambda: not job.running)
        plan = one.master._make_plan(one.app)
        assert plan == Plan(start={"j0": (B, C)}, release=(A,))
        one.apply(start=plan.start)
        await one.until(lambda: one.runtime.running)
        one.apply(stop={"j0": "its GPUs are taken back"})
        await one.until(lambda: not job.running)
        assert one.master._make_plan(one.app).start == {"j0": (A, B, C)}

    run(tmp_path, scenario)


def test_heartbeat_that_fails_is_skipped(tmp_path, monkeypatch):
    beats = itertools.chain([ValueError("Value out of range")], itertools.repeat(pb.Heartbeat(progress=0.5)))

    def next_beat(app, view, curves, headroom_gpus):
        beat = next(beats)
        if isinstance(beat, Exception):
            raise beat
        return beat

    monkeypatch.setattr("am.master.heartbeat_message", next_beat)

    async def scenario(one):
        sent = []
        one.master._session.send = sent.append
        one.app.heartbeat_s = 0.001
        beating = asyncio.ensure_future(one.master._beat(one.app))
        await one.until(lambda: sent or beating.done())
        assert sent[0].heartbeat.progress == 0.5
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)

    run(tmp_path, scenario)


def test_repeated_heartbeat_failure_is_logged_once(tmp_path, monkeypatch, caplog):
    reported, all_told = [True, False, False, False, True, False, False], asyncio.Event()
    beats = iter(reported)

    def next_beat(app, view, curves, headroom_gpus):
        good = next(beats, None)
        if good is None:
            all_told.set()
        if not good:
            raise ValueError("Value out of range")
        assert headroom_gpus == 3
        return pb.Heartbeat()

    monkeypatch.setattr("am.master.heartbeat_message", next_beat)

    async def scenario(one):
        one.master._session.send = lambda message: None
        one.app.heartbeat_s = 0.001
        beating = asyncio.ensure_future(one.master._beat(one.app))
        await all_told.wait()
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)

    run(tmp_path, scenario)
    assert [record.exc_info[0] for record in caplog.records if "heartbeats" in record.message] == [ValueError] * 2


def test_pause_between_heartbeats_is_what_the_last_answer_says(tmp_path):
    async def scenario(one):
        for told_s, expected_s in [(7.0, 7.0), (0.0, 7.0), (2.0, 2.0)]:
            one.master._acknowledged(one.app, pb.Acknowledge(of_id=1, contention=math.nan, heartbeat_s=told_s))
            assert one.app.heartbeat_s == expected_s

    run(tmp_path, scenario)


def test_final_report_omits_job_whose_status_fails(tmp_path, monkeypatch, caplog):
    def untellable(app, job):
        raise ValueError("Value out of range")

    async def scenario(one):
        (job,) = finish_message(one.app, AppState.FAILED, "why").jobs
        assert job.job_id == "j0"
        monkeypatch.setattr("am.status.job_status", untellable)
        reported = finish_message(one.app, AppState.FAILED, "why")
        assert (reported.state, reported.diagnostics, list(reported.jobs)) == ("FAILED", "why", [])
        assert "omits job j0" in caplog.text

    run(tmp_path, scenario)


def test_app_that_cannot_start_fails_with_the_reason(tmp_path):
    async def scenario():
        one, ends = Attempt(tmp_path), []
        one.spec = replace(one.spec, tuner=TunerSpec(name="optuna", settings={"pruner": "medain"}))

        async def finish(state, diagnostics):
            ends.append((state, diagnostics))

        one.master._engine.finish = finish
        session = one.master._session
        one.master._registered(one.registered())
        working = asyncio.ensure_future(one.master._work())
        await one.until(lambda: session._unacknowledged or working.done())
        (reported,) = session._unacknowledged.values()
        assert reported.finish.state == "FAILED"
        assert "did you mean 'median'?" in reported.finish.diagnostics
        assert not ends, "the engine learns of it only when the ResourceManager knows"
        session._take(pb.RmMessage(acknowledge=pb.Acknowledge(of_id=reported.id)))
        assert await working == 1
        assert ends == [(AppState.FAILED, reported.finish.diagnostics)]
        one.master._journal.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


class WithoutHdfs:
    """Hides the package `hdfs`, as if it were not installed."""

    @staticmethod
    def find_spec(name, path, target=None):
        if name == "hdfs":
            raise ModuleNotFoundError("No module named 'hdfs'", name="hdfs")


class TestAnotherAttemptMayDo:
    """Errors that another machine or a later time may repair end the attempt, without a final report."""

    def attempted(self, tmp_path, spec, error, **settings):
        async def scenario():
            one = Attempt(tmp_path, **settings)
            one.spec = replace(one.spec, **spec)
            one.master._registered(one.registered())
            with pytest.raises(error):
                await one.master._work()
            assert not one.master._session._unacknowledged
            one.master._journal.close()

        asyncio.run(asyncio.wait_for(scenario(), 60))

    def test_missing_optuna_ends_only_the_attempt(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "optuna", None)
        for module in [name for name in sys.modules if name.startswith("am.tuners.optuna_")]:
            monkeypatch.delitem(sys.modules, module)
        self.attempted(tmp_path, {"tuner": TunerSpec(name="optuna")}, MissingHereError)

    def test_missing_tuner_package_ends_only_the_attempt(self, tmp_path):
        self.attempted(tmp_path, {"tuner": TunerSpec(name="patient")}, MissingHereError)

    def test_missing_hdfs_package_ends_only_the_attempt(self, tmp_path, monkeypatch):
        for module in (
            "am.checkpoints.hdfs",
            "am.checkpoints.hdfs_upload",
            "themis.hadoop.webhdfs",
            "hdfs.client",
            "hdfs",
        ):
            monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.setattr(sys, "meta_path", [WithoutHdfs, *sys.meta_path])
        self.attempted(tmp_path, {"checkpoint_uri": "hdfs://name-node/kept"}, MissingHereError)

    def test_unknown_nameservice_ends_only_the_attempt(self, tmp_path, monkeypatch):
        monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
        self.attempted(tmp_path, {"checkpoint_uri": "hdfs:///kept"}, MissingHereError)

    def test_error_after_start_ends_only_the_attempt(self, tmp_path, monkeypatch):
        def odd(app, message):
            raise InputError("a message that cannot be")

        monkeypatch.setattr("am.app.App.take_leases", odd)
        self.attempted(tmp_path, {}, InputError)


@pytest.mark.parametrize(("min_tasks", "started"), [(1, [(A,), (B,)]), (3, [])])
def test_gang_that_was_granted_in_part_runs_on_its_part_if_that_is_enough(tmp_path, min_tasks, started):
    async def scenario(one):
        reserve = one.runtime.reserve

        async def reserve_two(requests):
            if len(requests) == 3:
                raise NoRoomError("YARN granted no container within 20 s", value="m0", gpus=(C,))
            return await reserve(requests)

        one.runtime.reserve = reserve_two
        one.hold(g0="GRANTED", g1="GRANTED", g2="GRANTED")
        one.master._apply(one.app, one.master._make_plan(one.app))
        await one.until(one.released)
        assert one.released() == [2]
        await one.until(lambda: not one.app.search.jobs["j0"].gpus)
        one.master._apply(one.app, one.master._make_plan(one.app))
        if started:
            await one.until(lambda: len(one.runtime.running) == len(started))
        assert [task.launch.gpus for task in one.runtime.running] == started

    run(tmp_path, scenario, min_tasks=min_tasks)
