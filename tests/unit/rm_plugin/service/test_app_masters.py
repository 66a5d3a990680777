"""App masters while the engine is unreachable: no app is lost, and no attempt is counted."""

import asyncio
import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from service_cases import known_token
from web_cases import RmCase

from rm_plugin.engines.folder_lock import LockLostError
from rm_plugin.engines.port import AmExit, EngineAttempts
from rm_plugin.service import attempt_losses, launches
from rm_plugin.service.am_watch import Due
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.memory_service import memory_service, until
from rm_plugin.service.status import app_status
from themis.apps import AppSpec, JobShape, JobSpec, ProgramSpec, TaskResources, TunerSpec
from themis.errors import ThemisError, UnreachableError
from themis.lifecycle import AppState
from themis.processes import StartError
from themis.wire import themis_pb2 as pb

SPEC = AppSpec(user="user",
    name="mine", tuner=TunerSpec(name="single"), program=ProgramSpec(name="digits"),
    jobs=(JobSpec(job_id="job-0", iterations_total=10),),
)  # fmt: skip


class FakeEngine:
    """A launcher that fails while `trouble` is set."""

    def __init__(self, trouble):
        self.trouble = trouble
        self.away_for = 0
        self.lives = False
        self.launched = []
        self.queued = ""
        self.taken = set()

    def waiting(self, app_id):
        return self.queued

    def queue(self, app_id):
        return ""

    async def launch(self, launch):
        if self.trouble is not None:
            raise self.trouble
        self.launched.append(launch)
        return len(self.launched)

    async def adopt(self, app_id, attempt, pid):
        if self.away_for:
            self.away_for -= 1
            raise UnreachableError("YARN is unavailable")
        return self.lives

    async def attempts(self, app_id, attempt):
        return EngineAttempts(newest=attempt, taken=frozenset(self.taken))

    async def kill(self, app_id):
        pass

    async def shutdown(self):
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(launches, "RELAUNCH_EVERY_S", 0.0)


def run(scenario, tmp_path, trouble):
    async def whole():
        case = RmCase(((4,),), folder=str(tmp_path))
        engine = FakeEngine(trouble)
        case.manager.app_masters.launches._launcher = engine
        case.manager.rounds = SimpleNamespace(trigger=lambda why: None, lease_ends_moved=lambda: None)
        try:
            return await scenario(case, engine)
        finally:
            await case.manager.app_masters.close()

    return asyncio.run(asyncio.wait_for(whole(), 60))


async def looked(case):
    """Check every app once, and wait for the checks."""
    case.manager.app_masters.check_apps()
    while case.manager.app_masters._being_checked:
        await asyncio.sleep(0.001)


def test_failed_check_does_not_end_watch(tmp_path):
    async def scenario(case, engine):
        looks = []

        def look():
            looks.append(None)
            if len(looks) == 1:
                raise RuntimeError("a defect")

        case.manager.app_masters.check_apps = look
        case.manager.app_masters.settings = case.manager.settings.model_copy(update={"am_expiry_s": 0.04})
        watch = asyncio.ensure_future(case.manager.app_masters.watch_over())
        async with asyncio.timeout(30):
            while len(looks) < 2 and not watch.done():
                await asyncio.sleep(0.005)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        assert len(looks) >= 2

    run(scenario, tmp_path, None)


def test_attempt_waits_while_the_lock_is_not_confirmed(tmp_path):
    """Nothing is decided about the app, which another ResourceManager has taken over."""

    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        assert (entry.state, entry.ended) == (AppState.ACCEPTED, False)
        assert "has taken the lock" in entry.launch_wait

    run(scenario, tmp_path, LockLostError("another ResourceManager has taken the lock"))


@pytest.mark.parametrize(("tasks", "memory_mb"), [((1, 2), 3 * 256), ((3, 4), 4 * 256)])
def test_limit_of_memory_is_that_of_the_tasks_that_can_run_at_a_time(tmp_path, tasks, memory_mb):
    """Each task has a GPU of the four."""

    async def scenario(case, engine):
        jobs = tuple(
            JobSpec(job_id=f"job-{number}", iterations_total=10, shape=JobShape(tasks=each))
            for number, each in enumerate(tasks)
        )
        await case.manager.submit(replace(SPEC, jobs=jobs, resources=TaskResources(memory_mb=256)))
        assert [launch.tasks_memory_mb for launch in engine.launched] == [memory_mb]

    run(scenario, tmp_path, None)


def test_stop_without_the_lock_leaves_the_apps_running(tmp_path, caplog):
    async def scenario(case, engine):
        async def shutdown():
            raise LockLostError("another ResourceManager has taken the lock")

        engine.shutdown = shutdown

    run(scenario, tmp_path, None)
    assert "apps may run on: another ResourceManager has taken the lock" in caplog.text


def kinds(case):
    return [event.kind for event in case.recorder.events(0, "", 100)]


def test_app_is_launched_once_engine_is_reachable(tmp_path: Path, caplog) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        # It is not taken for one that never registered, however long that lasts.
        entry.last_seen_s -= 10 * case.manager.settings.am_start_s
        await looked(case)
        assert (entry.state, entry.attempt) == (AppState.ACCEPTED, 1)
        assert "app-0001 waits to be started" in caplog.text
        engine.trouble = None
        await looked(case)
        await looked(case)
        assert [launch.attempt for launch in engine.launched] == [1]
        assert kinds(case) == ["app_submitted", "am_started"]

    run(scenario, tmp_path, UnreachableError("YARN is unavailable"))


def start_error(number):
    """Return the error of a start that failed with an OSError."""
    error = StartError("cannot start a process", value="python", remedy=os.strerror(number))
    error.__cause__ = OSError(number, os.strerror(number))
    return error


def test_app_is_launched_once_disk_has_space(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        assert entry.state is AppState.ACCEPTED
        engine.trouble = None
        await looked(case)
        assert [launch.attempt for launch in engine.launched] == [1]

    run(scenario, tmp_path, start_error(errno.ENOSPC))


def test_app_without_app_master_program_fails(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        assert entry.state is AppState.FAILED

    run(scenario, tmp_path, start_error(errno.ENOENT))


def test_launch_is_retried_after_a_pause(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(launches, "RELAUNCH_EVERY_S", 5.0)

    async def scenario(case, engine):
        await case.manager.submit(SPEC)
        engine.trouble = None
        await looked(case)
        assert not engine.launched
        case.clock.advance_to(case.clock.now_s() + 5)
        await looked(case)
        assert len(engine.launched) == 1

    run(scenario, tmp_path, UnreachableError("YARN is unavailable"))


def test_recovery_waits_for_unreachable_engine(tmp_path: Path, caplog) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        engine.away_for, engine.lives = 3, True
        await case.manager.app_masters.recover()
        assert (entry.attempt, entry.attempt_losses.excused_attempts, len(engine.launched)) == (1, 0, 1)
        assert engine.away_for == 0
        assert caplog.text.count("app-0001 cannot be adopted yet") == 1

    run(scenario, tmp_path, None)


def test_kill_ends_app_that_waits_for_engine(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        await case.manager.kill(entry.app_id, "no longer wanted")
        engine.trouble = None
        await looked(case)
        while not entry.ended:
            await asyncio.sleep(0.005)
        await looked(case)
        assert (entry.state, entry.diagnostics) == (AppState.KILLED, "no longer wanted")
        assert not engine.launched

    run(scenario, tmp_path, UnreachableError("YARN is unavailable"))


def test_app_that_is_killed_while_the_engine_starts_it_leaves_no_app_master(tmp_path: Path, monkeypatch) -> None:
    """The engine knows nothing yet of a start that is under way, so a kill finds nothing to end."""
    received = asyncio.Event()

    async def scenario():
        async with memory_service(tmp_path) as rm:
            launch = rm.launcher.launch

            async def launch_slowly(order):
                await received.wait()
                return await launch(order)

            monkeypatch.setattr(rm.launcher, "launch", launch_slowly)
            entry = await rm.manager.submit(SPEC)
            killing = asyncio.ensure_future(rm.manager.kill(entry.app_id, "no longer wanted"))
            await asyncio.sleep(0.05)
            received.set()
            await killing
            await until(lambda: entry.ended and rm.launcher.launched and not rm.launcher.living)
            assert entry.state is AppState.KILLED

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_app_being_killed_is_not_asked_after_reconnect(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        message = pb.Register(app_id=entry.app_id, token=known_token(entry), attempt=1, pid=4711)

        def is_asked():
            snapshot, _ = case.arbiter.begin_round(case.clock.now_s())
            return [not app.silent for app in snapshot.apps]

        await case.manager.sessions.register(message)
        assert is_asked() == [True]
        await case.manager.kill(entry.app_id, "no longer wanted")
        assert is_asked() == [False]
        await case.manager.sessions.register(message)
        assert is_asked() == [False]

    run(scenario, tmp_path, None)


def test_attempt_that_never_started_is_not_counted(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        for _ in range(case.manager.settings.am_max_attempts + 1):
            await case.manager.app_masters._take_by_force(entry, "the lease was not given back in time")
        engine.trouble = None
        case.clock.advance_to(case.clock.now_s() + attempt_losses.LONGEST_DELAY_S)
        await looked(case)
        (launch,) = engine.launched
        assert launch.attempts_left == case.manager.settings.am_max_attempts

    run(scenario, tmp_path, UnreachableError("YARN is unavailable"))


async def lose(case, entry, after_s=0.0):
    """Lose the app's present master this long after now."""
    case.clock.advance_to(case.clock.now_s() + after_s)
    await case.manager.app_masters.am_exited(AmExit(app_id=entry.app_id, attempt=entry.attempt, pid=1, exit_code=1))


def test_losses_of_app_masters_an_hour_apart_never_end_the_app(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        for _ in range(5):
            await lose(case, entry, after_s=case.manager.settings.am_failures_window_s)
        assert entry.state is AppState.ACCEPTED
        assert len(engine.launched) == 6
        assert {launch.attempts_left for launch in engine.launched[1:]} == {1}
        await lose(case, entry, after_s=1.0)
        assert entry.state is AppState.FAILED
        assert entry.diagnostics == "its app master was lost 2 times, at last: exit code 1"

    run(scenario, tmp_path, None)


def test_attempts_that_the_site_took_do_not_count(tmp_path: Path) -> None:
    """YARN started attempts 2 and 3 by itself: the nodes of 1 and 3 were lost. Attempts 2 and 4 failed."""

    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)

        def register(attempt, taken):
            message = pb.Register(app_id=entry.app_id, attempt=attempt, pid=5)
            return lambda change: case.manager.app_masters.note_next_attempt(change, entry, message, taken)

        await case.manager.changes.make(register(2, {1}))
        assert (entry.attempt_losses.failed_at_s, entry.attempt_losses.excused_attempts) == ((), 1)
        ended = AmExit(app_id=entry.app_id, attempt=3, restarts=2, pid=1, exit_code=1, taken=frozenset({1, 3}))
        await case.manager.app_masters.am_exited(ended)
        losses = entry.attempt_losses
        assert (entry.state, len(losses.failed_at_s), losses.excused_attempts) == (AppState.ACCEPTED, 1, 2)
        case.clock.advance_to(case.clock.now_s() + attempt_losses.FIRST_DELAY_S)
        await looked(case)
        assert (entry.attempt, engine.launched[-1].attempts_left) == (4, 1)
        await lose(case, entry)
        assert entry.state is AppState.FAILED

    run(scenario, tmp_path, None)


def test_attempt_that_is_taken_by_force_from_a_dead_node_does_not_count(tmp_path: Path) -> None:
    """The engine knows: YARN itself takes the node for lost much later."""

    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        engine.taken = {1}
        await case.manager.app_masters._take_by_force(entry, "the app master is silent")
        assert (entry.attempt, entry.attempt_losses.failed_at_s, entry.attempt_losses.excused_attempts) == (2, (), 1)
        assert entry.diagnostics == "attempt 1 was lost: the app master is silent; not counted as its failure"
        await case.manager.app_masters._take_by_force(entry, "the app master is silent")
        assert (len(entry.attempt_losses.failed_at_s), entry.attempt_losses.excused_attempts) == (1, 1)
        assert entry.diagnostics == "attempt 2 was lost: the app master is silent"

    run(scenario, tmp_path, None)


def test_attempts_taken_by_force_count_if_the_engine_does_not_answer(tmp_path: Path, caplog) -> None:
    async def scenario(case, engine):
        async def away(app_id, attempt):
            raise UnreachableError("YARN is unavailable")

        engine.attempts = away
        entry = await case.manager.submit(SPEC)
        await case.manager.app_masters._take_by_force(entry, "the app master is silent")
        assert len(entry.attempt_losses.failed_at_s) == 1
        assert "does not say how the attempts of app-" in caplog.text

    run(scenario, tmp_path, None)


class TestPausesBetweenAttempts:
    """Attempts that the site takes count never, so only pauses bound an endless row of them."""

    @staticmethod
    async def take(case, entry):
        ended = AmExit(app_id=entry.app_id, attempt=entry.attempt, pid=1, exit_code=-100, taken={entry.attempt})
        await case.manager.app_masters.am_exited(ended)

    async def take_and_wait(self, rm, entry):
        """Lose the attempt to the site, and return once the next one has started."""
        await self.take(rm, entry)
        rm.clock.advance_to(entry.attempt_losses.next_at_s)
        rm.manager.app_masters.check_apps()
        await until(lambda: rm.launcher.launched[-1].launch.attempt > entry.lost_attempt)

    async def delay_s(self, case, entry, engine):
        """Lose the attempt to the site. Return after how many seconds the next one starts."""
        await self.take(case, entry)
        lost_at_s = case.clock.now_s()
        while engine.launched[-1].attempt != entry.lost_attempt + 1:
            case.clock.advance_to(case.clock.now_s() + 1.0)
            await looked(case)
        return case.clock.now_s() - lost_at_s

    def test_each_waits_longer_than_the_one_before(self, tmp_path):
        async def scenario(case, engine):
            entry = await case.manager.submit(SPEC)
            delays_s = [await self.delay_s(case, entry, engine) for _ in range(10)]
            assert delays_s == [0, 5, 10, 20, 40, 80, 160, 300, 300, 300]
            assert (entry.attempt_losses.failed_at_s, entry.attempt_losses.excused_attempts) == ((), 10)

        run(scenario, tmp_path, None)

    def test_user_is_told_of_the_pause(self, tmp_path):
        async def scenario(case, engine):
            entry = await case.manager.submit(SPEC)
            await self.take(case, entry)
            assert case.manager.waits_for(entry) == ""
            await self.take(case, entry)
            await looked(case)
            assert case.manager.waits_for(entry) == (
                "2 attempts in a row were lost without progress, so the next one starts 5 s after the last loss"
            )
            case.clock.advance_to(case.clock.now_s() + 5.0)
            await looked(case)
            assert (case.manager.waits_for(entry), entry.attempt) == ("", 3)

        run(scenario, tmp_path, None)

    def test_progress_begins_the_row_again(self, tmp_path):
        async def scenario(case, engine):
            entry = await case.manager.submit(SPEC)
            for iteration, delay_s in ((0, 0), (0, 5), (10, 0), (10, 5), (4, 10), (11, 0)):
                entry.take_heartbeat(pb.Heartbeat(jobs=[pb.JobStatus(job_id="job-0", iteration=iteration)]))
                assert await self.delay_s(case, entry, engine) == delay_s

        run(scenario, tmp_path, None)

    def test_losses_an_hour_apart_are_no_row(self, tmp_path):
        async def scenario(case, engine):
            entry = await case.manager.submit(SPEC)
            for _ in range(3):
                assert await self.delay_s(case, entry, engine) == 0
                case.clock.advance_to(case.clock.now_s() + case.manager.settings.am_failures_window_s)

        run(scenario, tmp_path, None)

    def test_restarts_by_the_engine_itself_are_in_the_row(self, tmp_path):
        async def scenario(case, engine):
            entry = await case.manager.submit(SPEC)
            message = pb.Register(app_id=entry.app_id, attempt=2, pid=5)
            note = case.manager.app_masters.note_next_attempt
            await case.manager.changes.make(lambda change: note(change, entry, message, {1}))
            assert await self.delay_s(case, entry, engine) == 5

        run(scenario, tmp_path, None)

    @pytest.mark.parametrize("act", ["kill", "pause"])
    def test_app_can_be_ended_during_the_pause(self, tmp_path, act):
        async def scenario(case, engine):
            entry = await case.manager.submit(SPEC)
            for _ in range(4):
                await self.delay_s(case, entry, engine)
            await self.take(case, entry)
            await getattr(case.manager, act)(entry.app_id, "enough")
            await until(lambda: not entry.is_active)
            case.clock.advance_to(case.clock.now_s() + 600.0)
            await looked(case)
            assert entry.attempt == engine.launched[-1].attempt == 5
            return entry.state

        assert run(scenario, tmp_path, None) in (AppState.KILLED, AppState.PAUSED)

    def test_app_that_a_user_pauses_at_the_moment_of_the_loss_has_one_next_attempt(self, tmp_path, monkeypatch):
        async def scenario(case, engine):
            entry = await case.manager.submit(SPEC)
            await self.take(case, entry)
            changes = case.manager.changes
            with monkeypatch.context() as patched:
                make_surely = changes.make_surely

                async def and_paused(decide):
                    patched.undo()
                    is_lost = await make_surely(decide)
                    await case.manager.pause(entry.app_id, "enough")
                    await until(lambda: entry.state is AppState.PAUSED)
                    return is_lost

                patched.setattr(changes, "make_surely", and_paused)
                await self.take(case, entry)
            await case.manager.resume(entry.app_id)
            case.clock.advance_to(case.clock.now_s() + 10.0)
            await looked(case)
            assert [launch.attempt for launch in engine.launched] == [1, 2, 3]

        run(scenario, tmp_path, None)

    def test_restart_of_the_service_keeps_the_rest_of_the_pause(self, tmp_path):
        async def scenario():
            async with memory_service(tmp_path) as former:
                entry = await former.manager.submit(SPEC)
                for _ in range(4):
                    await self.take_and_wait(former, entry)
                await self.take(former, entry)
                lost_at_s = former.clock.now_s()
            async with memory_service(tmp_path, store=former.store) as rm:
                rm.clock.advance_to(lost_at_s + 30.0)
                await rm.manager.app_masters.recover()
                entry = rm.entries.get("mine")
                assert entry.attempt_losses.fruitless_at_s[-1] == lost_at_s
                assert rm.manager.waits_for(entry) == (
                    "5 attempts in a row were lost without progress, so the next one starts 40 s after the last loss"
                )
                assert not rm.launcher.launched
                rm.clock.advance_to(lost_at_s + 40.0)
                rm.manager.app_masters.check_apps()
                await until(lambda: rm.launcher.launched)
                assert (entry.attempt, entry.attempt_losses.excused_attempts) == (6, 5)
                lost = [event.detail["attempt"] for event in rm.store.events() if event.kind == "am_lost"]
                assert lost == [1, 2, 3, 4, 5]

        asyncio.run(asyncio.wait_for(scenario(), 20))

    def test_attempt_that_a_stop_of_the_service_ended_is_not_in_the_row(self, tmp_path):
        async def scenario():
            async with memory_service(tmp_path) as former:
                entry = await former.manager.submit(SPEC)
                for _ in range(2):
                    await self.take_and_wait(former, entry)
                row = entry.attempt_losses.fruitless_at_s
            async with memory_service(tmp_path, store=former.store) as rm:
                rm.clock.advance_to(entry.attempt_losses.next_at_s)
                await rm.manager.app_masters.recover()
                entry = rm.entries.get("mine")
                await until(lambda: rm.launcher.launched)
                assert (entry.attempt, entry.attempt_losses.fruitless_at_s) == (4, row)

        asyncio.run(asyncio.wait_for(scenario(), 20))

    def test_overdue_leases_are_taken_back_during_the_pause(self, tmp_path):
        async def scenario(case, engine):
            entry = await case.manager.submit(SPEC)
            for _ in range(2):
                await self.take(case, entry)
            entry.registered_attempt = entry.attempt
            due = case.manager.app_masters.watch._due(entry, case.clock.now_s(), overdue=True)
            assert due is Due.UNUSED_LEASES

        run(scenario, tmp_path, None)


def test_restart_of_the_resource_manager_remembers_when_attempts_failed(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        await lose(case, entry)
        again = AppEntry.restored(entry.stored())
        assert again.attempt_losses.failed_at_s == entry.attempt_losses.failed_at_s == (case.clock.now_s(),)
        old = entry.stored()
        assert AppEntry.restored(replace(old, final={"excused_attempts": 1})).attempt_losses.failed_at_s == ()

    run(scenario, tmp_path, None)


def test_time_to_register_counts_from_the_start_of_the_container(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        engine.queued = "waits in YARN's queue research: Queue's AM resource limit exceeded."
        start_s = case.manager.settings.am_start_s
        for _ in range(3):
            case.clock.advance_to(case.clock.now_s() + 2 * start_s)
            await looked(case)
        assert (entry.attempt, entry.state) == (1, AppState.ACCEPTED)
        assert app_status(case.manager, entry, whole=False).waits_for == engine.queued
        engine.queued = ""
        case.clock.advance_to(case.clock.now_s() + 0.9 * start_s)
        await looked(case)
        assert entry.attempt == 1
        assert app_status(case.manager, entry, whole=False).waits_for == ""
        case.clock.advance_to(case.clock.now_s() + 0.2 * start_s)
        await looked(case)
        assert entry.attempt == 2

    run(scenario, tmp_path, None)


def test_reason_why_an_app_is_not_started_is_shown(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        assert app_status(case.manager, entry, whole=False).waits_for == "waits to be started: YARN is unavailable"
        engine.trouble = None
        await looked(case)
        assert app_status(case.manager, entry, whole=False).waits_for == ""

    run(scenario, tmp_path, UnreachableError("YARN is unavailable"))


def test_refused_launch_ends_app(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        assert entry.state is AppState.FAILED
        assert "no such queue" in entry.diagnostics

    run(scenario, tmp_path, ThemisError("no such queue"))


def test_recovery_starts_app_that_never_started(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = case.app("mine")
        await case.manager.app_masters.recover()
        assert (entry.attempt, entry.attempt_losses.excused_attempts, len(engine.launched)) == (1, 0, 1)

    run(scenario, tmp_path, None)


def test_recovery_adopts_living_app_masters_and_restarts_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with memory_service(tmp_path) as former:
            for _ in range(3):
                await former.registered(SPEC)
            living = dict(former.launcher.living)
            async with memory_service(tmp_path, store=former.store) as rm:
                rm.launcher.living = {app_id: living[app_id] for app_id in ("app-0001", "app-0003")}
                await rm.manager.app_masters.recover()
                assert [am.app_id for am in rm.launcher.launched] == ["app-0002"]
                attempts = [(entry.attempt, entry.attempt_losses.excused_attempts) for entry in rm.entries]
        assert attempts == [(1, 0), (2, 1), (1, 0)]

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_last_words_of_an_app_master_stand_in_the_diagnostics(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        words = "ModuleNotFoundError: No module named 'optuna'"
        for attempt in (1, 2):
            ended = AmExit(app_id=entry.app_id, attempt=attempt, pid=1, exit_code=1, last_words=words)
            await case.manager.app_masters.am_exited(ended)
            if attempt == 1:
                lost = f"attempt 1 was lost: exit code 1: {words}"
                assert app_status(case.manager, entry).diagnostics == lost
                assert AppEntry.restored(entry.stored()).diagnostics == lost
        assert entry.diagnostics == f"its app master was lost 2 times, at last: exit code 1: {words}"


def test_loss_of_an_app_master_is_not_in_the_diagnostics_of_an_app_that_ended_otherwise(tmp_path: Path) -> None:
    async def scenario(case, engine):
        entry = await case.manager.submit(SPEC)
        await lose(case, entry)
        assert entry.diagnostics == "attempt 1 was lost: exit code 1"
        await case.manager.app_masters.lifecycle.end_surely(entry, AppState.KILLED, "")
        assert entry.diagnostics == ""

    run(scenario, tmp_path, None)

    run(scenario, tmp_path, None)


def test_look_at_apps_of_which_nothing_is_due_starts_no_task(tmp_path):
    async def scenario(case, engine):
        for number in range(3):
            case.running(f"app-{number}").last_seen_s = case.clock.now_s()
        before = len(asyncio.all_tasks())
        case.manager.app_masters.check_apps()
        assert len(asyncio.all_tasks()) == before
        assert not case.manager.app_masters._being_checked

    run(scenario, tmp_path, None)


def test_app_that_is_being_taken_care_of_does_not_keep_others_from_it(tmp_path):
    async def scenario(case, engine):
        for number in (1, 2):
            entry = case.running(f"app-{number}")
            case.manager.app_masters.watch.add(entry)
        first, second = (entry.app_id for entry in case.manager.app_masters.watch)
        case.clock.advance_to(case.clock.now_s() + 86_400.0)
        case.manager.app_masters._being_checked.add(first)
        case.manager.app_masters.check_apps()
        assert second in case.manager.app_masters._being_checked

    run(scenario, tmp_path, None)
