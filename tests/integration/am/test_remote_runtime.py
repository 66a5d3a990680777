"""Tasks in containers: the app master's side and real task hosts, with processes for containers."""

import asyncio
import json
import random
import signal
import sys
import time
import uuid
from pathlib import Path

import pytest
from msgspec.structs import replace

from am.jobs.gang import start_gang, wait_gang
from am.runtimes.port import ExitReason, MeasuredTask, NoRoomError, SeatRequest, TaskLaunch
from am.runtimes.remote import frames, task_host
from am.runtimes.remote.hosts import TaskHosts
from am.runtimes.remote.processes import ProcessSource
from am.runtimes.remote.runtime import RemoteRuntime
from themis.cluster import GpuId
from themis.code_archive import pack_code
from themis.processes import find_marked, kill_marked


@pytest.fixture
def app_id():
    name = f"app-{uuid.uuid4().hex}"
    yield name
    # What runs in a container that is killed ends with it, but not in the same moment.
    deadline_s = time.monotonic() + 30.0
    while (left := find_marked({"THEMIS_APP_ID": name})) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert left == (), "a process outlived its test"
    kill_marked({"THEMIS_APP_ID": name})


class World:
    """A runtime with its source and hosts, on this machine."""

    def __init__(self, tmp_path, app_id, **source):
        self.folder = tmp_path
        self.app_id = app_id
        self.source = ProcessSource(tmp_path / "containers", **source)
        self.hosts = TaskHosts()

    async def __aenter__(self):
        port = await self.hosts.listen("127.0.0.1")
        self.address = f"127.0.0.1:{port}"
        self.runtime = RemoteRuntime(
            self.source, self.hosts, address=self.address, run_id="", prefix="s",
            environment={"THEMIS_APP_ID": self.app_id},
        )  # fmt: skip
        return self

    async def __aexit__(self, *_):
        await self.runtime.close()

    async def reserve(self, *machines):
        requests = [
            SeatRequest(job_id="j0", task_index=index, gpus=(GpuId(machine, 0),))
            for index, machine in enumerate(machines)
        ]
        return await self.runtime.reserve(requests)

    def launch(self, seat, command, index=0, **environment):
        return TaskLaunch(
            app_id=self.app_id, job_id="j0", task_index=index, incarnation=1, command=command, seat=seat,
            environment=environment, working_dir=self.folder / "job", log_path=self.log(index), emulated=True,
        )  # fmt: skip

    def log(self, index=0):
        return self.folder / "job" / f"task-{index}.log"

    async def run_one(self, command, **environment):
        (seat,) = await self.reserve("m0")
        return await self.runtime.start(self.launch(seat, command, **environment))


def run(world, scenario):
    async def whole():
        async with world:
            return await scenario(world)

    return asyncio.run(asyncio.wait_for(whole(), 100))


async def until(condition, what):
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail(what)


def test_a_task_logs_to_its_app_master_and_its_exit_code_arrives(tmp_path, app_id):
    async def scenario(world):
        task = await world.run_one("echo $THEMIS_TASK_INDEX $COLOUR; echo to stderr >&2; exit 3", COLOUR="red")
        return await task.wait()

    world = World(tmp_path, app_id)
    exit_ = run(world, scenario)
    assert (exit_.exit_code, exit_.reason) == (3, ExitReason.EXITED)
    assert world.log().read_text() == "0 red\nto stderr\n"


def test_megabytes_of_log_arrive_whole(tmp_path, app_id):
    async def scenario(world):
        code = "import sys; [print(n, 'x' * 90) for n in range(60000)]; sys.exit(0)"
        return await (await world.run_one((sys.executable, "-c", code))).wait()

    world = World(tmp_path, app_id)
    assert run(world, scenario).succeeded
    lines = world.log().read_text().splitlines()
    assert [line.split()[0] for line in lines] == [str(n) for n in range(60000)]


def test_peak_memory_of_a_task_and_its_children_arrives(tmp_path, app_id):
    hungry = "import time; held = bytearray(80 << 20); time.sleep(60)"

    async def scenario(world):
        task = await world.run_one(f'{sys.executable} -I -S -c "{hungry}" & wait')
        assert isinstance(task, MeasuredTask)
        await until(lambda: task.peak_memory_mb > 80, "the memory of the task is not reported")
        await world.runtime.stop(task, 1.0)
        # Its container runs a second task, whose memory is its own.
        (seat,) = await world.reserve("m0")
        assert seat.seat_id == task.seat_id
        modest = await world.runtime.start(world.launch(seat, "sleep 60"))
        await until(lambda: modest.peak_memory_mb > 0, "the memory of the second task is not reported")
        return task.peak_memory_mb, modest.peak_memory_mb

    first_mb, second_mb = run(World(tmp_path, app_id), scenario)
    assert 80 < first_mb < 200
    assert second_mb < 40


def test_history_file_is_mirrored_in_job_folder(tmp_path, app_id):
    async def scenario(world):
        command = 'echo {\\"n\\": 1} >> "$THEMIS_JOB_DIR/history.jsonl"; pwd'
        await (await world.run_one(command)).wait()

    world = World(tmp_path, app_id)
    run(world, scenario)
    assert json.loads((tmp_path / "job" / "history.jsonl").read_text()) == {"n": 1}
    assert world.log().read_text().startswith(str(tmp_path / "containers"))


def test_code_travels_to_each_container_and_each_task(tmp_path, app_id):
    (tmp_path / "training").mkdir()
    # More than one frame.
    (tmp_path / "training" / "noise").write_bytes(random.Random(1).randbytes(3 * frames.CHUNK_BYTES))
    (tmp_path / "training" / "train.sh").write_text("wc -c < noise; test -e own && echo dirty; touch own; pwd\n")
    archive = tmp_path / "code.tar.gz"
    archive.write_bytes(pack_code({".": tmp_path / "training"}, "test").content)

    async def scenario(world):
        addresses = []
        for _ in range(2):
            (seat,) = await world.reserve("m0")
            addresses.append(seat.address)
            task = await world.runtime.start(replace(world.launch(seat, "sh train.sh"), code=archive))
            assert (await task.wait()).succeeded
        return addresses

    world = World(tmp_path, app_id)
    first, second = run(world, scenario)
    assert first != second
    lines = world.log().read_text().splitlines()
    size = str(3 * frames.CHUNK_BYTES)
    assert [lines[0], lines[2], len(lines)] == [size, size, 4]
    assert [Path(lines[at]).name for at in (1, 3)] == ["code", "code"]
    assert str(tmp_path / "containers") in lines[1]


def test_stopped_task_may_save_first(tmp_path, app_id):
    async def scenario(world):
        code = (
            "import signal, sys, time\n"
            "def end(*_):\n    time.sleep(0.3); print('saved', flush=True); sys.exit(75)\n"
            "signal.signal(signal.SIGTERM, end); print('up', flush=True)\nwhile True: time.sleep(0.1)"
        )
        task = await world.run_one((sys.executable, "-c", code))
        await until(lambda: world.log().exists() and "up" in world.log().read_text(), "the task is up")
        return await world.runtime.stop(task, 60.0)

    world = World(tmp_path, app_id)
    exit_ = run(world, scenario)
    assert (exit_.exit_code, exit_.reason) == (75, ExitReason.STOPPED)
    assert world.log().read_text() == "up\nsaved\n"


def test_task_that_ignores_stop_is_killed_after_grace(tmp_path, app_id):
    async def scenario(world):
        task = await world.run_one((sys.executable, "-c", _STUBBORN))
        await until(lambda: world.log().exists() and "up" in world.log().read_text(), "the task is up")
        return await world.runtime.stop(task, 0.3)

    exit_ = run(World(tmp_path, app_id), scenario)
    assert (exit_.exit_code, exit_.reason) == (-signal.SIGKILL, ExitReason.STOPPED)


_STUBBORN = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\ntime.sleep(60)"
)


def test_gang_has_all_seats_before_first_task_starts(tmp_path, app_id):
    async def scenario(world):
        seats = await world.reserve("m0", "m1", "m2")
        launches = [world.launch(seat, "echo $PEERS", index, PEERS=" ".join(s.address for s in seats))
                    for index, seat in enumerate(seats)]  # fmt: skip
        handles = await start_gang(world.runtime, launches)
        return seats, await wait_gang(world.runtime, handles)

    world = World(tmp_path, app_id)
    seats, exits = run(world, scenario)
    assert len({seat.address for seat in seats}) == 3
    assert all(exit_.succeeded for exit_ in exits)
    assert world.log(2).read_text().split() == [seat.address for seat in seats]


def test_seats_have_seconds_per_step(tmp_path, app_id):
    async def scenario(world):
        seats = await world.reserve("m0", "m1")
        await world.runtime.vacate(seats)
        return seats

    first, second = run(World(tmp_path, app_id), scenario)
    # These containers are plain processes, so there are no steps `ask` and `grant`.
    assert first.seconds == second.seconds and list(first.seconds) == ["start", "connect"]
    assert 0.0 < first.seconds["connect"] < 30.0


def test_gang_without_room_keeps_the_containers_that_came(tmp_path, app_id):
    async def scenario(world):
        with pytest.raises(NoRoomError) as caught:
            await world.reserve("m0", "m1", "full")
        assert [gpu.machine_id for gpu in caught.value.gpus] == ["full"]
        seats = await world.reserve("m0", "m1")
        return seats, len(world.source.processes)

    seats, containers = run(World(tmp_path, app_id, full=frozenset({"full"})), scenario)
    assert (len(seats), containers) == (2, 2)


def test_container_of_a_cancelled_reservation_ends_when_it_is_cleared(tmp_path, app_id):
    async def scenario(world):
        reserving = asyncio.ensure_future(world.reserve("m0"))
        await until(lambda: world.source.processes, "the container was asked for")
        reserving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reserving
        await world.runtime.kept.clear(world.runtime.kept.occupied())
        return [process.exit_code is not None for process in world.source.processes.values()]

    assert run(World(tmp_path, app_id), scenario) == [True]


def test_unused_seat_is_vacated(tmp_path, app_id):
    async def scenario(world):
        seats = await world.reserve("m0")
        await world.runtime.vacate(seats)
        return [process.exit_code for process in world.source.processes.values()]

    assert run(World(tmp_path, app_id), scenario) == [0]


def test_container_with_leftover_process_is_not_reused(tmp_path, app_id):
    """As what waits in a driver does, which SIGKILL does not end: the container is ended, and so not used again."""
    leftover = "from am.runtimes.remote import task_run\ntask_run.kill_marked = lambda marks: (1,)\n"
    host = leftover + "import sys\nfrom am.runtimes.remote.task_host import main\nsys.exit(main())"

    async def scenario(world):
        assert (await (await world.run_one("exit 0")).wait()).succeeded
        return [process.exit_code for process in world.source.processes.values()]

    assert run(World(tmp_path, app_id, command=(sys.executable, "-c", host)), scenario) == [0]


def test_exit_code_arrives_if_log_cannot_be_written(tmp_path, app_id, caplog):
    world = World(tmp_path, app_id)
    world.log().mkdir(parents=True)

    async def scenario(world):
        return await (await world.run_one("echo hello; exit 3")).wait()

    assert run(world, scenario).exit_code == 3
    assert "6 bytes of a log are lost" in caplog.text


def test_a_container_that_is_killed_ends_its_task(tmp_path, app_id):
    async def scenario(world):
        task = await world.run_one("sleep 60")
        next(iter(world.source.processes.values())).kill()
        return await task.wait()

    exit_ = run(World(tmp_path, app_id), scenario)
    assert (exit_.exit_code, exit_.reason) == (-signal.SIGKILL, ExitReason.EXITED)


def test_a_task_outlives_a_broken_connection_and_loses_no_line(tmp_path, app_id):
    async def scenario(world):
        code = "import time\nfor n in range(40): print(n, flush=True); time.sleep(0.02)"
        task = await world.run_one((sys.executable, "-c", code))
        for _ in range(3):
            await asyncio.sleep(0.2)
            state = world.hosts._hosts[task.seat_id]
            if state.writer is not None:
                state.writer.transport.abort()
        return await task.wait()

    world = World(tmp_path, app_id)
    assert run(world, scenario).succeeded
    assert world.log().read_text().split() == [str(n) for n in range(40)]


def test_task_of_forgotten_seat_is_killed(tmp_path, app_id):
    """So it is with a node that YARN gave up while its processes live on."""

    async def scenario(world):
        task = await world.run_one((sys.executable, "-c", _STUBBORN))
        await until(lambda: world.log().exists() and "up" in world.log().read_text(), "the task is up")
        world.hosts.forget(task.seat_id)
        return await world.source.processes[task.seat_id].wait()

    assert run(World(tmp_path, app_id), scenario) == 128 + signal.SIGKILL


def test_a_host_of_an_unknown_seat_ends_by_itself(tmp_path, app_id):
    async def scenario(world):
        seats = await world.reserve("m0")
        state = world.hosts._hosts.pop(seats[0].seat_id)
        state.writer.transport.abort()
        return await world.source.processes[seats[0].seat_id].wait()

    assert run(World(tmp_path, app_id), scenario) == 0


def test_task_ends_if_app_master_stays_unreachable(tmp_path, app_id, monkeypatch):
    async def scenario():
        hosts = TaskHosts()
        port = await hosts.listen("127.0.0.1")
        environment = {
            frames.ADDRESS_VARIABLE: f"127.0.0.1:{port}", frames.SEAT_VARIABLE: "s-1",
            frames.TOKEN_VARIABLE: hosts.expect("s-1"), "THEMIS_APP_ID": app_id, "PATH": "/usr/bin:/bin",
        }  # fmt: skip
        working = asyncio.ensure_future(task_host.TaskHost(environment, tmp_path).run())
        await hosts.ready("s-1")
        saves = "trap 'echo saved; exit 75' TERM; echo up; while :; do sleep 0.1; done"
        hosts.run("s-1", command=("/bin/sh", "-c", saves), python=False,
                  environment={}, marks={"THEMIS_APP_ID": app_id, "THEMIS_JOB_ID": "j"},
                  log_path=tmp_path / "log", folder=tmp_path)  # fmt: skip
        await until(lambda: (tmp_path / "log").exists() and "up" in (tmp_path / "log").read_text(), "the task is up")
        monkeypatch.setattr(task_host, "LOST_S", 0.5)
        await hosts.close()
        return await working

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == 75
    assert "saved" in (tmp_path / "task.log").read_text()


class TestTakingOver:
    """A container whose task has ended runs the app's next one."""

    async def one_after_the_other(self, world, *commands):
        seats, exits = [], []
        for index, command in enumerate(commands):
            (seat,) = await world.reserve("m0")
            seats.append(seat)
            exits.append(await (await world.runtime.start(world.launch(seat, command, index))).wait())
        return seats, exits

    def test_each_task_has_its_own_folder_log_and_port(self, tmp_path, app_id):
        command = 'echo {} >> "$THEMIS_JOB_DIR/history.jsonl"; pwd; ls'
        world = World(tmp_path, app_id)
        seats, exits = run(world, lambda world: self.one_after_the_other(world, command, command, command))
        assert [seat.reused for seat in seats] == [False, True, True]
        assert len({seat.seat_id for seat in seats}) == len(world.source.processes) == 1
        assert all(exit_.succeeded for exit_ in exits)
        assert len({seat.job_dir for seat in seats}) == 3
        for index, seat in enumerate(seats):
            assert world.log(index).read_text().splitlines() == [seat.job_dir, "history.jsonl"]
        assert (tmp_path / "job" / "history.jsonl").read_text() == "{}\n" * 3

    def test_task_folder_is_removed_before_next_task(self, tmp_path, app_id):
        async def scenario(world):
            (seat,), _ = await self.one_after_the_other(world, "echo x > checkpoint")
            folder = Path(seat.job_dir)
            assert (folder / "checkpoint").exists()
            await world.reserve("m0")
            await until(lambda: not folder.exists(), "the folder is gone")

        run(World(tmp_path, app_id), scenario)

    def test_stopped_task_leaves_container_for_next(self, tmp_path, app_id):
        async def scenario(world):
            task = await world.run_one("trap 'exit 75' TERM; echo up; while :; do sleep 0.1; done")
            await until(lambda: world.log().exists() and "up" in world.log().read_text(), "the task is up")
            first = await world.runtime.stop(task, 60.0)
            assert world.runtime.kept.occupied() == {GpuId("m0", 0)}
            _, (second,) = await self.one_after_the_other(world, "exit 0")
            return first, second

        world = World(tmp_path, app_id)
        first, second = run(world, scenario)
        assert (first.exit_code, first.reason, second.succeeded) == (75, ExitReason.STOPPED, True)
        assert len(world.source.processes) == 1

    @pytest.mark.parametrize("command", ["exit 3", "kill -9 $$", ("/no/such/program",)])
    def test_crashed_task_does_not_leave_container(self, tmp_path, app_id, command):
        async def scenario(world):
            _, exits = await self.one_after_the_other(world, command)
            # Its container has ended with it.
            assert world.runtime.kept.occupied() == frozenset()
            seats, _ = await self.one_after_the_other(world, "exit 0")
            return exits[0], seats[0]

        exit_, seat = run(World(tmp_path, app_id), scenario)
        assert (exit_.succeeded, seat.reused) == (False, False)

    def test_cleared_or_dead_idle_host_is_not_reused(self, tmp_path, app_id):
        async def scenario(world):
            await self.one_after_the_other(world, "exit 0")
            await world.runtime.kept.clear([GpuId("m0", 0)])
            assert [process.exit_code is not None for process in world.source.processes.values()] == [True]
            seats, _ = await self.one_after_the_other(world, "exit 0")
            world.source.processes[seats[0].seat_id].kill()
            seats, _ = await self.one_after_the_other(world, "exit 0")
            return seats[0]

        world = World(tmp_path, app_id)
        assert not run(world, scenario).reused
        assert len(world.source.processes) == 3

    def test_stop_of_ended_task_does_not_stop_next(self, tmp_path, app_id):
        async def scenario(world):
            first = await world.run_one("exit 0")
            await first.wait()
            second = await world.run_one("sleep 0.3; echo done")
            assert second.seat_id == first.seat_id
            return await world.runtime.stop(first, 0.0), await world.runtime.kill(first), await second.wait()

        exits = run(World(tmp_path, app_id), scenario)
        assert [(exit_.exit_code, exit_.reason) for exit_ in exits] == [(0, ExitReason.EXITED)] * 3

    def test_container_ends_with_task_after_clear(self, tmp_path, app_id):
        async def scenario(world):
            task = await world.run_one("sleep 0.3")
            clearing = asyncio.ensure_future(world.runtime.kept.clear([GpuId("m0", 0)]))
            assert (await task.wait()).succeeded
            await clearing
            return [process.exit_code is not None for process in world.source.processes.values()]

        assert run(World(tmp_path, app_id), scenario) == [True]

    def test_broken_connection_between_tasks_is_harmless(self, tmp_path, app_id):
        async def scenario(world):
            for index in range(3):
                (seat,) = await world.reserve("m0")
                state = world.hosts._hosts[seat.seat_id]
                state.writer.transport.abort()
                task = await world.runtime.start(world.launch(seat, f"echo {index}; sleep 0.1; echo end", index))
                assert (await task.wait()).succeeded
                await until(lambda known=state: known.writer is not None, "it is there again")
                state.writer.transport.abort()
            return len(world.source.processes)

        world = World(tmp_path, app_id)
        assert run(world, scenario) == 1
        assert [world.log(index).read_text() for index in range(3)] == [f"{index}\nend\n" for index in range(3)]

    def test_idle_host_ends_at_sigterm(self, tmp_path, app_id):
        async def scenario(world):
            (seat,), _ = await self.one_after_the_other(world, "exit 0")
            process = world.source.processes[seat.seat_id]
            process.signal_group(signal.SIGTERM)
            return await asyncio.wait_for(process.wait(), 60.0)

        assert run(World(tmp_path, app_id), scenario) == 0


@pytest.mark.parametrize(
    "rubbish",
    [b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b'{"kind": "hello", "size": 99999999999}\n', b"\xff\xfe\n", b"{" * 3_000_000],
    ids=["http", "empty", "huge", "binary", "endless"],
)
def test_invalid_frames_are_rejected(tmp_path, app_id, rubbish):
    async def scenario(world):
        host, _, port = world.address.rpartition(":")
        task = await world.run_one("sleep 0.5; echo done")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(rubbish)
        try:
            answer = await asyncio.wait_for(reader.read(), 60)
        except ConnectionResetError:
            # What it sent was not even read to its end.
            answer = b""
        writer.close()
        return answer, await task.wait()

    answer, exit_ = run(World(tmp_path, app_id), scenario)
    assert (answer, exit_.succeeded) == (b"", True)


def test_host_that_does_not_know_the_token_gets_no_orders(tmp_path, app_id):
    async def scenario(world):
        token = world.hosts.expect("s-9")
        _, _, port = world.address.rpartition(":")
        kinds = []
        for guess in ("guess", token):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(frames.encode("hello", seat="s-9", nonce="n"))
            answer = (await frames.read(reader)).fields
            assert answer["proof"] == frames.proof(token, frames.APP_MASTER, "s-9", "n", answer["nonce"])
            # Not what the app master sent itself, and not that of another connection.
            own_proof = frames.proof(guess, frames.TASK_HOST, "s-9", "n", answer["nonce"])
            place = {"task_run": 1, "address": "127.0.0.1:1", "job_dir": "", "pid": 1}
            writer.write(frames.encode("join", proof=own_proof, **place))
            reply = await asyncio.wait_for(frames.read(reader), 60)
            kinds.append(reply and reply.kind)
            writer.close()
        return kinds

    assert run(World(tmp_path, app_id), scenario) == [None, "welcome"]


async def host_at(serve, folder, app_id):
    """Run a task host whose app master's address is served by `serve`. Returns its exit code."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    environment = {
        frames.ADDRESS_VARIABLE: f"127.0.0.1:{port}", frames.SEAT_VARIABLE: "s-1",
        frames.TOKEN_VARIABLE: "secret", "THEMIS_APP_ID": app_id, "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    host = task_host.TaskHost(environment, folder)
    code = await host.run()
    await host._task_run.clean()
    server.close()
    return code


def test_process_that_takes_the_port_of_an_app_master_learns_no_token_and_gives_no_orders(
    tmp_path, app_id, monkeypatch
):
    order = frames.encode("run", task_run=1, command=["/bin/sh", "-c", f"touch {tmp_path}/taken"], python=False,
                          environment={}, marks={}, mirrored=[], code_bytes=0)  # fmt: skip
    heard = []

    async def impostor(reader, writer):
        hello = await frames.read(reader)
        heard.append(hello.fields)
        nonce = hello.fields["nonce"]
        # It knows no token: it repeats what it heard, and orders at once.
        writer.write(frames.encode("proof", nonce=nonce, proof=nonce) + frames.encode("welcome", received={}) + order)
        heard.append(await frames.read(reader))
        writer.close()
        if len(heard) >= 4:
            # It has come a second time, and may give up now.
            monkeypatch.setattr(task_host, "LOST_S", 0.0)

    assert asyncio.run(asyncio.wait_for(host_at(impostor, tmp_path, app_id), 60)) == task_host._EXIT_LOST
    assert len(heard) >= 4
    assert [sorted(fields) for fields in heard[::2]] == [["nonce", "seat"]] * len(heard[::2])
    assert heard[1::2] == [None] * len(heard[1::2])
    assert not (tmp_path / "taken").exists()


def test_task_host_ends_if_what_listens_at_the_address_of_its_app_master_is_silent(tmp_path, app_id, monkeypatch):
    monkeypatch.setattr(task_host, "LOST_S", 0.5)

    async def silent(reader, writer):
        await reader.read()
        writer.close()

    assert asyncio.run(asyncio.wait_for(host_at(silent, tmp_path, app_id), 60)) == task_host._EXIT_LOST
