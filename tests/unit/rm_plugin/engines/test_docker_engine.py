"""App masters as containers on a fake Docker engine: launch, report of the end, adoption, kill, and bad settings."""

import asyncio
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_docker import FakeDocker, api_error
from losable_lock import LosableLock
from taken_threads import all_common_threads_taken

from am.runtimes.docker_source import TaskContainers
from rm_plugin.engines import docker_launcher
from rm_plugin.engines.docker import DockerEngine, socket_to_mount
from rm_plugin.engines.docker_launcher import DockerAppLauncher
from rm_plugin.engines.folder_lock import LockLostError
from rm_plugin.engines.port import AmLaunch
from themis.cluster import Cluster, DeviceType, Machine
from themis.config.loader import fit
from themis.config.rm_settings import RmSettings
from themis.docker_host import DockerError, DockerHost
from themis.errors import InputError, UnreachableError


def cluster(*real, emulated=("e0",)):
    machines = [Machine(machine_id=name, rack_id="r", slots=(2,), device="gpu") for name in real]
    machines += [Machine(machine_id=name, rack_id="r", slots=(2,), device="fake") for name in emulated]
    devices = {"gpu": DeviceType(name="gpu"), "fake": DeviceType(name="fake", emulated=True)}
    return Cluster(name="c", machines=tuple(machines), devices=devices)


def settings(**changes):
    return RmSettings(**{"engine": "docker", "cluster": Path("c.yaml"), "listen": "0.0.0.0:8650", **changes})


class World:
    """A launcher on a fake engine, with the ends that it reported."""

    def __init__(self, folder, monkeypatch):
        monkeypatch.delenv("DOCKER_HOST", raising=False)
        self.fake = FakeDocker()
        self.folder = folder
        self.exits = []
        self.last_words = ""
        engine = DockerEngine(settings(docker={"image": "image", "volumes": ("/data:/data:ro",)}), cluster("real"))
        engine._host = self.host = DockerHost(self.fake)
        self.lock = LosableLock()
        self.launcher = engine.launcher("0123456789ab", self.on_exit, lambda app_id: (), self.lock)

    async def on_exit(self, end):
        # By then the app's containers are gone.
        assert not [box for box in self.fake.boxes.values() if box.create["labels"]["themis.app"] == end.app_id]
        self.exits.append((end.app_id, end.attempt, end.exit_code))
        self.last_words = end.last_words

    def order(self, app_id="app-1", attempt=1, address="0.0.0.0:8650"):
        environment = {"THEMIS_RM_ADDRESS": address}
        folder = self.folder / app_id
        return AmLaunch(app_id=app_id, attempt=attempt, environment=environment, token="t", working_dir=folder)

    def add_task(self, app_id="app-1"):
        box = self.fake.make({"name": f"task-{app_id}", "labels": {"themis.run": "0123456789ab", "themis.app": app_id}})
        box.start()
        return box

    async def until(self, condition):
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

    def master(self):
        (box,) = [box for box in self.fake.boxes.values() if box.create["labels"].get("themis.role") == "app-master"]
        return box


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run(scenario):
        async def whole():
            world = World(tmp_path, monkeypatch)
            await scenario(world)
            await world.launcher.shutdown()
            world.fake.news.put(None)
            assert (world.fake.boxes, world.fake.made_networks) == ({}, [])

        asyncio.run(whole())

    return run


def test_other_parts_do_not_hold_up_calls_to_docker(run):
    async def scenario(world):
        async with all_common_threads_taken():
            await world.launcher.launch(world.order())
            world.master().end(0)
            await world.until(lambda: world.exits)
            await world.launcher.kill("app-1")

    run(scenario)


def test_attempt_is_container_with_rm_address(run, tmp_path):
    async def scenario(world):
        assert await world.launcher.launch(world.order(attempt=2)) == 1001
        made = world.master().create
        assert made["name"] == "themis-app-1-2-01234567"
        assert made["labels"] == {
            "themis.run": "0123456789ab", "themis.app": "app-1", "themis.attempt": "2", "themis.role": "app-master",
        }  # fmt: skip
        environment = made["environment"]
        assert environment["THEMIS_RM_ADDRESS"] == "172.20.0.1:8650"
        assert (environment["THEMIS_ATTEMPT"], environment["THEMIS_APP_ID"]) == ("2", "app-1")
        assert made["network"] == world.fake.made_networks[0].name == "themis-01234567"
        assert [mount["Target"] for mount in made["mounts"]] == [str(tmp_path / "app-1"), "/var/run/docker.sock"]
        assert made["volumes"] == ["/data:/data:ro"]
        assert made["user"] == f"{os.getuid()}:{os.getgid()}"
        assert made["command"][-4:] == ["python", "-P", "-m", "am.main"]
        # What one side writes the other reads.
        reported = json.loads(environment["THEMIS_ENGINE_SETTINGS"])
        tasks = TaskContainers(**reported, run_id="r", app_id="a", attempt=1, checkpoints="/c")
        assert (tasks.network, list(tasks.machines_with_cards)) == ("themis-01234567", ["real"])
        assert list(tasks.volumes) == ["/data:/data:ro"]

    run(scenario)


def test_given_address_is_kept(run):
    async def scenario(world):
        await world.launcher.launch(world.order(address="rm.example:8650"))
        assert world.master().create["environment"]["THEMIS_RM_ADDRESS"] == "rm.example:8650"

    run(scenario)


def test_end_is_reported_once_after_tasks_ended(run):
    async def scenario(world):
        await world.launcher.launch(world.order())
        world.add_task()
        other = world.add_task("app-2")
        world.master().end(7)
        await world.until(lambda: world.exits)
        assert list(world.fake.boxes.values()) == [other]
        await asyncio.sleep(0.05)
        assert world.exits == [("app-1", 1, 7)]

    run(scenario)


@pytest.mark.parametrize(("code", "words"), [(2, "app master: package torch is missing"), (0, "")])
def test_end_of_an_app_master_that_failed_has_the_last_words_of_its_log(run, code, words):
    async def scenario(world):
        order = world.order()
        await world.launcher.launch(order)
        *_, shell, log = world.master().create["command"][:4]
        assert shell.startswith("exec")
        (order.working_dir / log).write_text("starting\napp master: package torch is missing\n")
        world.master().end(code)
        await world.until(lambda: world.exits)
        assert world.last_words == words

    run(scenario)


def test_next_attempt_ends_previous_one(run):
    async def scenario(world):
        await world.launcher.launch(world.order())
        task = world.add_task()
        await world.launcher.launch(world.order(attempt=2))
        assert world.exits == [("app-1", 1, 137)]
        assert task.id not in world.fake.boxes
        assert world.master().create["labels"]["themis.attempt"] == "2"
        await world.launcher.kill("app-1")
        assert world.exits[1:] == [("app-1", 2, 137)]
        await world.launcher.kill("unknown")

    run(scenario)


def test_without_the_lock_no_container_is_started_or_removed(run):
    async def scenario(world):
        launcher = world.launcher
        await launcher.launch(world.order())
        leftover = world.add_task("app-2")
        world.lock.left = 0
        for act in (
            launcher.launch(world.order(attempt=2)),
            launcher.kill("app-1"),
            launcher.adopt("app-2", 1, 1001),
            launcher.shutdown(),
        ):
            with pytest.raises(LockLostError):
                await act
        assert set(world.fake.boxes) == {world.master().id, leftover.id}
        assert world.master().create["labels"]["themis.attempt"] == "1"
        world.lock.left = math.inf

    run(scenario)


@pytest.mark.parametrize("confirmed", [0, 1])
def test_container_is_not_started_if_the_lock_is_lost_meanwhile(run, confirmed):
    async def scenario(world):
        world.lock.left = confirmed
        with pytest.raises(LockLostError):
            await world.launcher.launch(world.order())
        assert world.fake.boxes == {}
        world.lock.left = math.inf

    run(scenario)


def test_containers_left_of_an_attempt_stay_until_the_lock_is_confirmed(run, monkeypatch):
    monkeypatch.setattr(docker_launcher, "_AGAIN_S", 0.01)

    async def scenario(world):
        await world.launcher.launch(world.order())
        task = world.add_task()
        world.lock.left, asked = 0, world.lock.asked
        world.master().end(7)
        await world.until(lambda: world.lock.asked >= asked + 2)
        assert (world.exits, task.id in world.fake.boxes) == ([], True)
        world.lock.left = math.inf
        await world.until(lambda: world.exits)

    run(scenario)


def test_living_app_master_is_adopted(run):
    async def scenario(world):
        await world.launcher.launch(world.order())
        world.add_task()
        again = DockerAppLauncher(world.host, "0123456789ab", world.on_exit, world.launcher._containers)
        assert not await again.adopt("app-2", 1, 1001)
        assert not await DockerAppLauncher(world.host, "ffff", world.on_exit, again._containers).adopt("app-1", 1, 1001)
        # The earlier ResourceManager is no more, and follows nothing.
        for watcher in world.launcher._watchers:
            watcher.cancel()
        assert await again.adopt("app-1", 1, 1001)
        world.master().end(0)
        await world.until(lambda: world.exits)
        assert world.exits == [("app-1", 1, 0)]
        await again.shutdown()

    run(scenario)


def test_ended_app_master_is_not_adopted_and_is_removed(run):
    async def scenario(world):
        world.launcher._host.ensure_network("themis-01234567", world.launcher._run)
        labels = {**world.launcher._app_master("app-1"), "themis.attempt": "1"}
        box = world.fake.make({"name": "old", "labels": labels})
        box.start()
        box.end(1)
        world.add_task()
        assert not await world.launcher.adopt("app-1", 1, 1001)
        assert (world.fake.boxes, world.exits) == ({}, [])

    run(scenario)


def test_failed_start_is_an_error_and_leaves_no_container(run):
    async def scenario(world):
        world.fake.refuse_start = "no space left"
        with pytest.raises(DockerError, match="no space left"):
            await world.launcher.launch(world.order())
        assert world.fake.boxes == {}

    run(scenario)


def test_folder_that_cannot_be_written_is_an_error_of_the_start(run, tmp_path):
    (tmp_path / "app-1").write_text("a file in the place of the folder")

    async def scenario(world):
        with pytest.raises(DockerError, match="cannot be written") as raised:
            await world.launcher.launch(world.order())
        # By its cause the service knows whether this machine lacks space for now.
        assert isinstance(raised.value.__cause__, FileExistsError)

    run(scenario)


def test_network_in_use_does_not_prevent_the_end(run):
    async def scenario(world):
        await world.launcher.launch(world.order())
        (network,) = world.fake.made_networks
        world.fake.networks.list = lambda **_: [NetworkInUse()]
        await world.launcher.shutdown()
        assert world.fake.boxes == {}
        network.remove()
        world.fake.networks.list = lambda **_: []

    run(scenario)


class NetworkInUse:
    def remove(self):
        raise api_error(403, "it has active endpoints")


def test_shutdown_reports_no_end(run):
    worlds = []

    async def scenario(world):
        worlds.append(world)
        await world.launcher.launch(world.order())
        world.add_task()

    run(scenario)
    assert worlds[0].exits == []


def test_shutdown_leaves_and_names_containers_that_cannot_be_removed(run, monkeypatch):
    monkeypatch.setattr(docker_launcher, "_AGAIN_S", 0.01)

    async def scenario(world):
        await world.launcher.launch(world.order())
        await world.launcher.launch(world.order("app-2"))
        await world.launcher.kill("app-1")

        def refuse(labels):
            raise DockerError("the engine cannot remove it")

        with monkeypatch.context() as patched:
            patched.setattr(docker_launcher, "STOP_LIMIT_S", 0.2)
            patched.setattr(world.host, "remove_all", refuse)
            with pytest.raises(UnreachableError, match="not all containers could be removed: 'app-2'"):
                await world.launcher.shutdown()
        # Now the engine removes it.
        await world.launcher.shutdown()
        assert not world.launcher._gone, "the second call did not wait"

    run(scenario)


@pytest.mark.parametrize(("user", "shown"), [("1234:5678", "1234:5678"), ("", f"{os.getuid()}:{os.getgid()}")])
def test_start_says_that_the_apps_of_all_users_share_one(monkeypatch, caplog, user, shown):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(DockerHost, "connect", lambda url: DockerHost(FakeDocker()))
    caplog.set_level("INFO")
    asyncio.run(DockerEngine(settings(docker={"image": "image", "user": user}), cluster()).open())
    assert f"app masters and tasks of all users run as {shown} in their containers" in caplog.text


# ---- what cannot be used --------------------------------------------------------------------------------------------


def test_missing_sdk_error_has_remedy():
    script = (
        "import sys; sys.modules['docker'] = None\n"
        "from themis.errors import InputError\n"
        "try:\n    import rm_plugin.engines.docker\n"
        "except InputError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "pip install 'themis-scheduler[docker]'" in said


@pytest.mark.parametrize("listen", ["127.0.0.1:8650", "localhost:8650", "[::1]:8650"])
def test_unreachable_rm_address_is_refused(listen, monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    with pytest.raises(InputError, match=r"listens on loopback.*172\.17\.0\.1:PORT"):
        DockerEngine(settings(listen=listen), cluster())
    DockerEngine(settings(listen=listen, advertise="10.0.0.1"), cluster())


def test_remote_engine_requires_rm_address(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://gpu-host:2375")
    with pytest.raises(InputError, match="set `advertise`"):
        DockerEngine(settings(), cluster())
    DockerEngine(settings(advertise="rm-host"), cluster())
    with pytest.raises(InputError, match="set `advertise`"):
        DockerEngine(settings(docker={"host": "ssh://other", "socket": "/run/docker.sock"}), cluster())


@pytest.mark.parametrize(
    ("socket", "url", "mounted"),
    [
        ("", "", "/var/run/docker.sock"),
        ("", "unix:///run/user/1000/docker.sock", "/run/user/1000/docker.sock"),
        ("", "tcp://gpu-host:2375", ""),
        ("/run/docker.sock", "ssh://gpu-host", "/run/docker.sock"),
    ],
)
def test_app_masters_mount_socket_or_use_url(socket, url, mounted):
    assert socket_to_mount(socket, url) == mounted


def test_engine_unreachable_for_app_masters_is_refused():
    with pytest.raises(InputError, match=r"set docker\.socket"):
        socket_to_mount("", "ssh://gpu-host")


@pytest.mark.parametrize(
    ("docker", "said"),
    [
        ({"volumes": ["data:/data"]}, "write SOURCE:TARGET"),
        ({"user": "me"}, "write UID:GID in numbers"),
        ({"imag": "x"}, "image"),
    ],
)
def test_unusable_settings_are_refused(docker, said):
    with pytest.raises(InputError, match=said):
        fit(RmSettings, {"cluster": "c.yaml", "docker": docker}, "rm.yaml")
