"""A service of root runs apps as the users who submitted them: what these can reach, and what the service still can."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from authorized_stub import LocalStub
from live_rm import ENDED, address_of, kill, replay_app, settings, start_process
from msgspec.structs import replace
from other_users import ANN, BOB, only_root, open_folder, python_for_all

from themis.apps import AppSpec, JobShape, MetricSpec, ProgramSpec
from themis.config.rm_settings import LeaseSettings, RmSettings
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message

pytestmark = [only_root, pytest.mark.timeout(600)]

PATIENCE_S = 240
"""Each test starts programs with many imports, on a machine that may be busy."""

ATTACK = """
echo "user $(id -u) groups $(id -G) home $HOME secret ${OPERATORS_SECRET:-none}"
for path in $STATE $STATE/rm.sqlite $STATE/rm.sqlite-wal $STATE/code $STATE/apps $ANNS $ANNS/am-1.log \
    $ANNS/journal.jsonl $ANNS/checkpoints $ANNS/jobs/job-00/task-0.log /proc/$SERVICE/environ /proc/$MASTER/environ \
    /proc/$MASTER/fd/0 /proc/$TASK/environ /proc/$TASK/mem; do
  if ls $path/ >/dev/null 2>&1 || head -c 1 $path >/dev/null 2>&1; then echo "READ $path"; fi
  if (echo >> $path) 2>/dev/null || (echo > $path/new) 2>/dev/null; then echo "WROTE $path"; fi
done
for pid in $SERVICE $MASTER $TASK; do
  if kill -9 $pid 2>/dev/null; then echo "ENDED $pid"; fi
done
echo attacked
"""

HOSTILE = """
import os, signal, socket, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
job, app = os.environ["THEMIS_JOB_DIR"], os.path.dirname(os.path.dirname(os.environ["THEMIS_JOB_DIR"]))
# What the service, as root, could read for its user, or wait for without end.
os.mkfifo(job + "/task-1.log")
os.symlink("/etc/shadow", job + "/task-2.log")
os.symlink(os.environ["ANNS_LOG"], job + "/task-3.log")
open(job + "/task-4.log", "wb").truncate(2**42)
os.mkfifo(app + "/am-7.log")
os.symlink(os.environ["STORE"], app + "/am-8.log")
os.symlink("/etc", app + "/jobs/job-01")
os.symlink("/dev/zero", job + "/history.jsonl")
for source in ("/etc/shadow", os.environ["ANNS_LOG"]):
    try:
        os.link(source, job + "/task-5.log")
    except OSError:
        pass
# Pages of other apps, and the service's own, as this user.
for line in open("/proc/net/tcp").readlines()[1:]:
    words = line.split()
    if words[3] == "0A":
        for path in ("/", "/status.json", "/logs.json", "/api/v1/apps/" + os.environ["ANNS"]):
            answer = b""
            try:
                with socket.create_connection(("127.0.0.1", int(words[1][-4:], 16)), 1) as page:
                    page.settimeout(1)
                    page.sendall(f"GET {path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n".encode())
                    while part := page.recv(65536):
                        answer += part
            except OSError:
                pass
            if b"learning_rate" in answer or b"task-0.log" in answer:
                print("SAW", path, flush=True)
stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True)
print("y" * 5_000_000)
print('{"iteration": 1e308, "loss": NaN}')
print("attacked", flush=True)
signal.pause()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    yield from open_folder()


def configured(folder: Path, **changes: object) -> RmSettings:
    state = folder / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    patient = {
        "lease": LeaseSettings(duration_s=8, checkpoint_lead_s=2, grace_s=60),
        "am_expiry_s": PATIENCE_S,
        "rm_absence_s": PATIENCE_S,
        "am_max_attempts": 4,
    }
    return settings(state, **{"run_as": "submitter", **patient, **changes})


def long_app(user: int, **changes: object) -> AppSpec:
    return replace(replay_app(f"app-of-{user}", iterations=100_000), user=str(user), **changes)


def shell_app(user: int, command: str, environment: dict[str, str]) -> AppSpec:
    program = ProgramSpec(command=command, environment=environment)
    return long_app(user, program=program, replay=False, metric=MetricSpec(wanted=False), checkpoint_uri="")


class Service:
    """A ResourceManager that is a process of root, and its calls as an administrator."""

    def __init__(self, settings: RmSettings, process: psutil.Popen, stub: LocalStub) -> None:
        self.settings, self.process, self.stub = settings, process, stub
        self.apps = settings.state_dir / "apps"

    async def submit(self, spec: AppSpec) -> str:
        return (await self.stub.Submit(pb.SubmitRequest(spec=app_to_message(spec)))).app_id

    async def wait(self, app: str, wanted: Callable[[pb.AppStatus], object]) -> pb.AppStatus:
        async with asyncio.timeout(PATIENCE_S):
            while not wanted(status := await self.stub.Show(pb.ShowRequest(app_id=app))):
                assert status.state not in ("FAILED", "KILLED"), status.diagnostics
                await asyncio.sleep(0.1)
        return status

    async def event(self, kind: str, app: str, count: int = 1) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.count(kind, app) < count:
                await asyncio.sleep(0.1)

    async def count(self, kind: str, app: str) -> int:
        return sum([event.kind == kind async for event in self.stub.Watch(pb.WatchRequest(app_id=app))])

    async def until_ended(self, app: str) -> str:
        return (await self.wait(app, lambda status: status.state in ENDED)).state

    async def nothing_runs(self, app: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.processes(app):
                await asyncio.sleep(0.1)

    def processes(self, app: str) -> dict[str, psutil.Process]:
        """The app's processes: its app master by an empty name, its tasks by their jobs' ids and numbers."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                marks = process.environ()
                if marks.get("THEMIS_APP_ID") == app and str(self.apps) in (
                    marks.get("THEMIS_APP_DIR", "") + marks.get("THEMIS_JOB_DIR", "")
                ):
                    job = f"{marks.get('THEMIS_JOB_ID')}/{marks.get('THEMIS_TASK_INDEX')}"
                    found["" if "THEMIS_APP_DIR" in marks else job] = process
        return found


@contextlib.asynccontextmanager
async def service(configured: RmSettings, python: str, *, then_kill: bool = False) -> AsyncIterator[Service]:
    (configured.state_dir / "address").unlink(missing_ok=True)
    process = start_process(configured, python)
    try:
        address = await address_of(configured, timeout_s=PATIENCE_S)
        async with grpc.aio.insecure_channel(address) as channel:
            yield Service(configured, process, LocalStub(rpc.ClientServiceStub(channel), address))
    finally:
        if then_kill and process.is_running():
            kill(process.pid)
        else:
            process.terminate()
        process.wait()


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def test_task_of_one_user_reaches_neither_the_service_nor_another_users_app(folder: Path, monkeypatch) -> None:
    monkeypatch.setenv("OPERATORS_SECRET", "not for users")
    python = python_for_all(folder)

    async def scenario() -> None:
        async with service(configured(folder), python) as rm:
            anns = await rm.submit(long_app(ANN))
            await rm.event("checkpoint", anns)
            processes = rm.processes(anns)
            assert {process.uids() for process in processes.values()} == {(ANN, ANN, ANN)}
            assert processes.keys() == {"", "job-00/0"}
            assert owners(rm.apps / anns) == {ANN}
            assert (rm.apps / anns / "checkpoints/job-00").is_dir()
            assert stat.S_IMODE((rm.apps / anns).stat().st_mode) == 0o700

            environment = {
                "STATE": str(rm.settings.state_dir),
                "ANNS": str(rm.apps / anns),
                "SERVICE": str(rm.process.pid),
                "MASTER": str(processes[""].pid),
                "TASK": str(processes["job-00/0"].pid),
            }
            bobs = await rm.submit(shell_app(BOB, ATTACK, environment))
            assert await rm.until_ended(bobs) == "FINISHED"
            log = (rm.apps / bobs / "jobs/job-00/task-0.log").read_text().splitlines()
            assert log == [f"user {BOB} groups 65534 home {rm.apps / bobs} secret none", "attacked"]
            # The service reads the logs of both.
            chunks = [chunk async for chunk in rm.stub.Logs(pb.LogsRequest(app_id=bobs, job_id="job-00"))]
            assert "attacked" in "".join(chunk.text for chunk in chunks)
            # Without an account there is nothing that it could run as.
            with pytest.raises(grpc.aio.AioRpcError, match="no account"):
                await rm.submit(replace(long_app(ANN), user="eve-without-account"))
            await rm.stub.Kill(pb.KillRequest(app_id=anns))
            assert await rm.until_ended(anns) == "KILLED"
            await rm.nothing_runs(anns)

    asyncio.run(scenario())


def test_files_and_processes_of_a_hostile_task_gain_and_hold_up_nothing(folder: Path) -> None:
    python = python_for_all(folder)

    async def scenario() -> None:
        async with service(configured(folder, page="127.0.0.1:0"), python) as rm:
            anns = await rm.submit(long_app(ANN))
            await rm.event("checkpoint", anns)
            environment = {
                "STORE": str(rm.settings.state_dir / "rm.sqlite"),
                "ANNS": anns,
                "ANNS_LOG": str(rm.apps / anns / "jobs/job-00/task-0.log"),
                "PYTHON": python,
                "CODE": HOSTILE,
            }
            bobs = await rm.submit(shell_app(BOB, 'exec "$PYTHON" -c "$CODE"', environment))
            log = rm.apps / bobs / "jobs/job-00/task-0.log"
            async with asyncio.timeout(PATIENCE_S):
                while not log.exists() or not log.read_bytes().endswith(b"attacked\n"):
                    assert (await rm.wait(bobs, lambda _: True)).state != "FINISHED"
                    await asyncio.sleep(0.2)
            assert b"SAW" not in log.read_bytes()
            for tail_lines in (0, 3):
                request = pb.LogsRequest(app_id=bobs, tail_lines=tail_lines)
                sources, text = set(), b""
                async with asyncio.timeout(PATIENCE_S):
                    async for chunk in rm.stub.Logs(request):
                        sources.add(chunk.source)
                        text += chunk.text.encode()
                        if chunk.source == "job-00/task-4":
                            # Zeros without end.
                            break
                assert sources <= {"am", "job-00/task-0", "job-00/task-4"}
                assert b"root:" not in text and b"SQLite" not in text
            await rm.stub.Kill(pb.KillRequest(app_id=bobs))
            assert await rm.until_ended(bobs) == "KILLED"
            await rm.nothing_runs(bobs)
            assert (await rm.wait(anns, lambda _: True)).state == "RUNNING"

    asyncio.run(scenario())


def test_apps_of_users_are_adopted_and_swept_after_the_service_was_killed(folder: Path) -> None:
    python = python_for_all(folder)

    async def scenario() -> None:
        async with service(configured(folder), python, then_kill=True) as rm:
            app = await rm.submit(long_app(ANN))
            await rm.event("checkpoint", app)
            first = rm.processes(app)
            task = first["job-00/0"].environ()
        async with service(configured(folder), python, then_kill=True) as rm:
            saved = await rm.count("checkpoint", app)
            await rm.event("checkpoint", app, saved + 1)
            assert await rm.count("am_started", app) == 1
            assert rm.processes(app)[""] == first[""] and first[""].is_running()
        # Of an app master that is gone too, a task that ignored the end of its parent would be left.
        stray = psutil.Popen(["sleep", "300"], env=task, user=ANN, group=65534, extra_groups=[])
        kill(first[""].pid)
        async with service(configured(folder), python) as rm:
            await rm.event("am_started", app, 2)
            await rm.event("first_step", app, 2)
            stray.wait(timeout=PATIENCE_S)
            assert {process.uids().real for process in rm.processes(app).values()} == {ANN}
            assert owners(rm.apps / app) == {ANN}
        assert not rm.processes(app)

    asyncio.run(scenario())


def test_apps_of_users_are_paused_resumed_and_resized(folder: Path) -> None:
    python = python_for_all(folder)

    async def scenario() -> None:
        async with service(configured(folder), python) as rm:
            anns = await rm.submit(
                replace(
                    long_app(ANN),
                    jobs=tuple(replace(job, shape=JobShape(tasks=8, min_tasks=1)) for job in long_app(ANN).jobs),
                )
            )
            await rm.event("checkpoint", anns)
            await rm.stub.Pause(pb.PauseRequest(app_id=anns))
            await rm.wait(anns, lambda status: status.state == "PAUSED")
            await rm.nothing_runs(anns)
            await rm.stub.Resume(pb.ResumeRequest(app_id=anns))
            await rm.event("first_step", anns, 2)
            # It holds all GPUs, and loses some to another user.
            bobs = await rm.submit(long_app(BOB))
            await rm.event("first_step", bobs)
            await rm.event("resize", anns)
            assert owners(rm.apps / anns) == {ANN} and owners(rm.apps / bobs) == {BOB}

    asyncio.run(scenario())


def test_service_of_root_runs_apps_of_users_as_root_if_it_is_told_to(folder: Path) -> None:
    python = python_for_all(folder)

    async def scenario() -> None:
        async with service(configured(folder, run_as="service"), python) as rm:
            app = await rm.submit(shell_app(ANN, 'echo "user $(id -u)"', {}))
            assert await rm.until_ended(app) == "FINISHED"
            assert (rm.apps / app / "jobs/job-00/task-0.log").read_text() == "user 0\n"
            assert rm.apps.stat().st_mode & 0o077 == 0
            assert "run as root, the user of this service: run_as is service" in (folder / "state/rm.log").read_text()

    asyncio.run(scenario())
