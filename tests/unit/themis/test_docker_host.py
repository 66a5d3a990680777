"""One Docker engine through its SDK, which a fake stands in for: whole starts, ends, sweeps, networks, errors."""

import asyncio

import pytest
from fake_docker import FakeDocker, api_error

from themis.docker_host import APP_MASTER, ROLE_LABEL, Bind, ContainerEnd, ContainerSpec, DockerError, DockerHost
from themis.docker_watch import ContainerWatch
from themis.errors import InputError

LABELS = {"themis.run": "r1", "themis.app": "app-1"}


@pytest.fixture
def fake():
    return FakeDocker()


@pytest.fixture
def host(fake):
    return DockerHost(fake)


def spec(name="one", **more):
    defaults = {
        "image": "image", "command": ("true",), "environment": {"A": "b"}, "labels": LABELS, "network": "n",
        "working_dir": "/tmp", "user": "5:6", "memory_mb": 64,
    }  # fmt: skip
    return ContainerSpec(name=name, **{**defaults, **more})


def test_a_container_is_created_as_specified(fake, host):
    started = host.start(
        spec(
            binds=(Bind(source="/s", target="/t"),), volumes=("/data:/data:ro",), groups=(99,), cpus=1.5,
            cpuset="2,3", shm_mb=8,
            device_ids=("0", "3"), runtime="nvidia",
        )
    )  # fmt: skip
    assert (started.running, started.pid) == (True, 1001)
    made = fake.made[0].create
    assert (made["mem_limit"], made["memswap_limit"], made["shm_size"]) == ("64m", "64m", "8m")
    assert (made["nano_cpus"], made["user"], made["group_add"]) == (1_500_000_000, "5:6", [99])
    assert made["cpuset_cpus"] == "2,3"
    assert (made["volumes"], made["runtime"], made["init"]) == (["/data:/data:ro"], "nvidia", True)
    assert [(mount["Source"], mount["Target"], mount["Type"]) for mount in made["mounts"]] == [("/s", "/t", "bind")]
    (request,) = made["device_requests"]
    assert (request["DeviceIDs"], request["Capabilities"]) == (["0", "3"], [["gpu"]])


def test_unspecified_options_are_left_to_the_engine(fake, host):
    host.start(spec())
    assert (
        not {"nano_cpus", "cpuset_cpus", "shm_size", "device_requests", "runtime", "volumes", "group_add"}
        & fake.made[0].create.keys()
    )


def test_a_start_that_fails_leaves_nothing(fake, host):
    fake.refuse_start = 'could not select device driver "" with capabilities: [[gpu]]'
    with pytest.raises(DockerError, match="could not select device driver"):
        host.start(spec(device_ids=("0",)))
    assert len(fake.made) == 1
    assert host.find(LABELS) == ()


def test_a_leftover_that_cannot_be_removed_does_not_hide_why(fake, host, monkeypatch):
    def busy(*_, **__):
        raise api_error(500, "device or resource busy")

    monkeypatch.setattr(fake, "remove_container", busy)
    fake.refuse_start = "no driver"
    with pytest.raises(DockerError, match="no driver"):
        host.start(spec())


def test_containers_are_found_by_labels_app_masters_first(fake, host):
    for name, role in (("task", "task"), ("master", APP_MASTER)):
        host.start(spec(name, labels={**LABELS, ROLE_LABEL: role}))
    host.start(spec("other", labels={"themis.run": "r2", "themis.app": "app-1"}))
    assert [each.container_id for each in host.find(LABELS)] == ["2", "1"]
    host.remove_all(LABELS)
    assert [box.create["name"] for box in fake.boxes.values()] == ["other"]


@pytest.mark.parametrize("labels", [{}, {"themis.run": ""}])
def test_without_a_label_nothing_is_found_and_removed(host, labels):
    with pytest.raises(InputError, match="labels with a value"):
        host.remove_all(labels)


def test_how_a_container_ended(fake, host):
    box = fake.boxes[host.start(spec()).container_id]
    assert host.end_of(box.id) is None
    box.end(137, out_of_memory=True)
    assert host.end_of(box.id) == ContainerEnd(exit_code=137, out_of_memory=True)
    assert host.last_words(box.id) == "its last words"
    host.remove(box.id)
    assert host.end_of(box.id) == ContainerEnd(exit_code=None)
    assert host.last_words(box.id) == ""


def test_ending_an_ended_container_is_allowed(fake, host):
    container_id = host.start(spec()).container_id
    fake.boxes[container_id].end(0)
    host.kill(container_id)
    assert fake.boxes[container_id].state["ExitCode"] == 0
    host.remove(container_id)
    host.remove(container_id)
    host.kill(container_id)


def test_an_engine_that_is_away_and_an_image_that_is_missing(fake, host):
    host.need_image("image")
    with pytest.raises(InputError, match="no such image: 'other'; build or pull it"):
        host.need_image("other")
    fake.away = True
    with pytest.raises(DockerError, match="does not list its containers; nobody answers"):
        host.find(LABELS)
    with pytest.raises(DockerError, match="does not answer: 'tcp://"):
        DockerHost.connect("tcp://127.0.0.1:9")


def test_a_network_is_made_once_and_removed_by_its_labels(fake, host):
    fake.networks.create("themis-r1-other", driver="bridge", labels={})
    assert [host.ensure_network("themis-r1", LABELS) for _ in range(2)] == ["172.20.0.1"] * 2
    assert [each.name for each in fake.made_networks] == ["themis-r1-other", "themis-r1"]
    host.remove_networks(LABELS)
    assert [each.name for each in fake.made_networks] == ["themis-r1-other"]


def test_an_unset_gateway_is_derived_from_the_subnet(fake, host):
    fake.networks.create("old", driver="bridge", labels={}, configuration={"Subnet": "172.21.0.0/16"})
    assert host.ensure_network("old", LABELS) == "172.21.0.1"
    fake.networks.create("six", driver="bridge", labels={}, configuration={"Subnet": "fd00::/64"})
    with pytest.raises(InputError, match="no IPv4 addresses: 'six'"):
        host.ensure_network("six", LABELS)


def test_ends_are_found_by_events_or_by_polling(fake, host):
    async def scenario():
        watch = ContainerWatch(host, LABELS, look_s=0.05)
        ids = [host.start(spec(name)).container_id for name in ("a", "b", "c")]
        fake.boxes[ids[0]].end(3, tell=False)
        first, second, third = (watch.follow(container_id) for container_id in ids)
        assert (await asyncio.wait_for(first, 30)).exit_code == 3
        fake.boxes[ids[1]].end(4, tell=False)
        assert (await asyncio.wait_for(second, 30)).exit_code == 4
        fake.away = True
        await asyncio.sleep(0.2)
        assert not third.done()
        fake.away = False
        host.remove(ids[2])
        assert (await asyncio.wait_for(third, 30)).exit_code is None
        await watch.close()
        fake.news.put(None)

    asyncio.run(scenario())


def test_an_event_is_enough(fake, host):
    async def scenario():
        watch = ContainerWatch(host, LABELS, look_s=60)
        container_id = host.start(spec()).container_id
        end = watch.follow(container_id)
        await asyncio.sleep(0.1)
        assert not end.done()
        fake.boxes[container_id].end(0)
        assert (await asyncio.wait_for(end, 30)).exit_code == 0
        # The connection breaks, and comes back: everything is looked at.
        other = watch.follow(host.start(spec("other")).container_id)
        await asyncio.sleep(0.1)
        fake.boxes["2"].end(1, tell=False)
        fake.news.put(None)
        assert (await asyncio.wait_for(other, 30)).exit_code == 1
        await watch.close()
        fake.news.put(None)

    asyncio.run(scenario())
