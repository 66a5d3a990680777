"""Containers for tasks from a Docker engine, which a fake stands in for: what each is given, how each ends."""

import asyncio

import pytest
from fake_docker import FakeDocker
from taken_threads import all_common_threads_taken

from am.runtimes.docker_source import DockerSource, TaskContainers, exit_of
from am.runtimes.port import ExitReason, NoRoomError, SeatRequest, TaskExit, TaskLaunch
from am.runtimes.remote.source import ContainerWish
from am.runtimes.task_process import own_environment
from themis.cluster import GpuId
from themis.docker_host import ContainerEnd, DockerHost
from themis.docker_watch import ContainerWatch

LABELS = {"themis.run": "run", "themis.app": "app-1"}


def containers(**more):
    defaults = {
        "image": "image", "python": "python", "network": "n", "user": "1:1", "volumes": [], "environment": {"A": "b"},
        "memory_mb": 1024, "shm_mb": 0, "runtime": "", "machines_with_cards": ["real"], "name_suffix": "abcd",
        "run_id": "run", "app_id": "app-1", "attempt": 2, "checkpoints": "/state/checkpoints",
    }  # fmt: skip
    return TaskContainers(**{**defaults, **more})


def wish(seat_id="app-1-2-1", *, machine="emulated", indices=(0,), **more):
    gpus = tuple(GpuId(machine, index) for index in indices)
    request = SeatRequest(job_id="job-00", task_index=0, gpus=gpus, **more)
    return ContainerWish(seat_id=seat_id, request=request, environment={"THEMIS_SEAT_ID": seat_id})


def run(scenario):
    async def whole():
        fake = FakeDocker()
        host = DockerHost(fake)
        watch = ContainerWatch(host, LABELS, look_s=0.1)
        try:
            return await asyncio.wait_for(scenario(DockerSource(host, watch, containers()), fake), 20)
        finally:
            await watch.close()
            fake.news.put(None)

    return asyncio.run(whole())


def test_emulated_gpus_show_no_card():
    spec = containers().spec(wish(vcores=3))
    assert spec.device_ids == ()
    assert (spec.labels["themis.emulated"], spec.labels["themis.gpus"]) == ("true", "emulated/0")
    assert spec.environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert (spec.memory_mb, spec.cpus, spec.name) == (1024, 3.0, "themis-app-1-2-1-abcd")
    assert spec.labels.items() >= {**LABELS, "themis.attempt": "2", "themis.role": "task"}.items()


def test_container_on_a_cpu_node_is_pinned_to_the_cores_of_its_node():
    spec = containers().spec(wish(vcores=1, node_cores=2, cores=(2, 3)))
    assert (spec.cpuset, spec.cpus) == ("2,3", 2.0)
    assert containers().spec(wish(vcores=1)).cpuset == ""


def test_container_gets_its_leased_cards():
    gpus = wish(machine="real", indices=(3, 1), memory_mb=300)
    spec = containers().spec(gpus)
    assert spec.device_ids == ("1", "3")
    assert spec.environment["NVIDIA_VISIBLE_DEVICES"] == "1,3"
    assert (spec.labels["themis.emulated"], spec.memory_mb) == ("false", 300)
    launch = TaskLaunch(
        app_id="a", job_id="j", task_index=0, incarnation=1, command=("true",), gpus=gpus.request.gpus,
        working_dir="w", log_path="l",
    )  # fmt: skip
    assert own_environment(launch, "run")["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert own_environment(launch, "run", cards_from_zero=True)["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_discarded_containers_are_removed():
    async def scenario(source, fake):
        await asyncio.gather(source.acquire(wish("a")), source.acquire(wish("b")))
        ends = [asyncio.ensure_future(source.gone(seat)) for seat in ("a", "b")]
        assert [box.state["Status"] for box in fake.boxes.values()] == ["running", "running"]
        await source.discard("a")
        assert await ends[0] == TaskExit(exit_code=-9)
        next(box for box in fake.boxes.values() if "-b-" in box.create["name"]).end(3)
        assert await ends[1] == TaskExit(exit_code=3)
        await source.discard("b")
        await source.discard("unknown")
        await source.close()
        assert fake.boxes == {}

    run(scenario)


def test_other_parts_do_not_hold_up_calls_to_docker():
    async def scenario(source, fake):
        async with all_common_threads_taken():
            await source.acquire(wish("a"))
            next(iter(fake.boxes.values())).end(3)
            assert await source.gone("a") == TaskExit(exit_code=3)
            await source.acquire(wish("b"))
            await source.close()

    run(scenario)


def test_failed_start_leaves_others_discardable():
    async def scenario(source, fake):
        await source.acquire(wish("a"))
        fake.refuse_start = "could not select device driver"
        with pytest.raises(NoRoomError, match="Docker cannot start a container: 'b'; could not select device driver"):
            await source.acquire(wish("b"))
        await asyncio.gather(source.discard("a"), source.discard("b"))
        await source.close()
        assert fake.boxes == {}

    run(scenario)


def test_cancelled_start_can_be_discarded():
    async def scenario(source, fake):
        acquiring = asyncio.ensure_future(source.acquire(wish("a")))
        await asyncio.sleep(0)
        acquiring.cancel()
        await source.discard("a")
        await source.close()
        assert len(fake.made) == 1
        assert fake.boxes == {}

    run(scenario)


def test_kill_is_repeated_while_engine_is_unreachable(monkeypatch):
    monkeypatch.setattr("am.runtimes.docker_source._KILL_AGAIN_S", 0.05)

    async def scenario(source, fake):
        await source.acquire(wish("a"))
        fake.away = True
        discarding = asyncio.ensure_future(source.discard("a"))
        await asyncio.sleep(0.2)
        assert not discarding.done()
        fake.away = False
        await discarding
        await source.close()
        assert fake.boxes == {}

    run(scenario)


@pytest.mark.parametrize(
    ("end", "exit_"),
    [
        (ContainerEnd(exit_code=0), TaskExit(exit_code=0)),
        (ContainerEnd(exit_code=75), TaskExit(exit_code=75)),
        (ContainerEnd(exit_code=143), TaskExit(exit_code=-15)),
        (ContainerEnd(exit_code=255), TaskExit(exit_code=255)),
        (ContainerEnd(exit_code=None), TaskExit(exit_code=-9)),
        (ContainerEnd(exit_code=137, out_of_memory=True), TaskExit(exit_code=-9, reason=ExitReason.MEMORY)),
    ],
)
def test_container_end_becomes_task_exit(end, exit_):
    assert exit_of(end) == exit_
