"""Apps of Themis in containers: run, killed in every part, adopted, refused; each time nothing is left behind."""

import json
import os
import uuid

import pytest
import yaml
from themis_on_docker import ENDED, ThemisOnDocker
from travelling_code import check_that_code_travels, check_that_packages_are_installed

from themis.docker_host import CONTAINER_SOCKET, RUN_LABEL, ContainerSpec, DockerError

CARDS = {
    "name": "cards",
    "devices": {"gpu": {"kind": "gpu"}},
    "machines": [{"prefix": "host", "count": 1, "slots": [2], "device": "gpu", "racks": ["rack0"]}],
}


@pytest.fixture
def themis(image, tmp_path):
    with ThemisOnDocker(tmp_path, image) as themis:
        yield themis
    nothing_is_left(themis)


def nothing_is_left(themis):
    """After the ResourceManager was stopped in good order."""
    assert themis.containers(every=True) == []
    assert themis.networks() == []


def test_an_app_runs_to_its_end_by_the_commands(image, tmp_path):
    with ThemisOnDocker(tmp_path, image, listen="0.0.0.0:0") as themis:
        job = {"tasks": 2, "gpus_per_task": 1, "iterations": 120}
        done = themis.submarine("app", "submit", str(themis.group(job=job)), "--wait")
        assert done.returncode == 0, done.stdout + done.stderr + themis.log()
        (app_id,) = {line.split()[0] for line in done.stdout.splitlines()}
        # Where the local engine has them, and ours to delete.
        folder = tmp_path / "state" / "apps" / app_id
        log = next(folder.glob("jobs/*/task-0.log"))
        assert "120" in log.read_text()
        assert "tasks_started" not in log.read_text()
        assert (folder / "am-1.log").exists()
        assert list(folder.glob("checkpoints/*/*/manifest.json"))
        assert {path.stat().st_uid for path in folder.rglob("*")} == {os.getuid()}
        assert "120" in themis.submarine("app", "logs", app_id).stdout
        assert len(themis.networks()) == 1
    nothing_is_left(themis)


def test_containers_have_limits_labels_and_only_their_folders(themis):
    app_id = themis.submit(resources={"memory_mb": 200, "vcores": 1})
    themis.wait_until_iterating(app_id, 5)
    (master,), (task,) = themis.masters(app_id), themis.tasks(app_id)
    assert master.name.startswith(f"themis-{app_id}-1-")
    assert master.labels["themis.attempt"] == "1"
    assert task.labels["themis.emulated"] == "true"
    host = task.attrs["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (200 << 20, 200 << 20, 10**9)
    assert not host["DeviceRequests"]
    # The users' programs have no way to the engine, their app master has.
    targets = {each.id: {mount["Destination"] for mount in each.attrs["Mounts"]} for each in (master, task)}
    folder = str(themis.folder / "state" / "apps" / app_id)
    assert targets[master.id] == {folder, CONTAINER_SOCKET}
    assert targets[task.id] == {f"{folder}/checkpoints"}
    shown = dict(line.split("=", 1) for line in task.exec_run("env").output.decode().splitlines())
    assert shown["NVIDIA_VISIBLE_DEVICES"] == "void"
    themis.client.kill(app_id)


def test_code_travels_into_containers(themis):
    check_that_code_travels(themis.folder, themis.address)


def test_packages_are_installed_in_containers(themis):
    check_that_packages_are_installed(themis.folder, themis.address)


def test_a_task_that_is_killed(themis):
    app_id = themis.submit()
    themis.wait_until_iterating(app_id)
    (task,) = themis.tasks(app_id)
    task.kill()
    app = themis.ends_well(app_id)
    assert (app.attempts, [job.restarts for job in app.jobs]) == (1, [1])


def test_an_app_master_that_is_killed(themis):
    app_id = themis.submit(jobs=2)
    themis.wait_until_iterating(app_id)
    old = {each.id for each in themis.tasks(app_id)}
    (master,) = themis.masters(app_id)
    master.kill()
    themis.until(lambda: themis.app(app_id).attempts == 2, "the next attempt starts")
    assert not old & {each.id for each in themis.containers(every=True)}, "tasks outlived their app master"
    app = themis.ends_well(app_id)
    again = [event.detail for event in themis.events() if event.kind == "tasks_started"][2:]
    assert len(again) == 2
    assert all(detail["iteration"] >= 10 for detail in again), "not every job went on from its checkpoint"
    assert [job.iteration for job in app.jobs] == [250, 250]


def test_an_app_master_that_is_stopped_ends_its_app(themis):
    app_id = themis.submit()
    themis.wait_until_iterating(app_id)
    (master,) = themis.masters(app_id)
    master.stop(timeout=60)
    themis.until(lambda: themis.state(app_id) == "KILLED", "its app ends")
    app = themis.app(app_id)
    assert app.jobs[0].iteration >= 30, "the job did not save before it ended"
    themis.until(lambda: themis.containers(app_id, every=True) == [], "nothing of the app is left")


def test_a_resource_manager_that_is_killed(themis):
    app_id = themis.submit(job={"tasks": 1, "gpus_per_task": 1, "iterations": 400})
    themis.wait_until_iterating(app_id)
    before = {each.id for each in themis.containers(app_id)}
    themis.kill()
    themis.start()
    themis.until(lambda: themis.state(app_id) == "RUNNING", "the app master comes back")
    assert {each.id for each in themis.containers(app_id)} == before
    app = themis.ends_well(app_id)
    assert (app.attempts, [job.restarts for job in app.jobs]) == (1, [0])
    # Its exit is seen by the ResourceManager that did not start it.
    themis.until(lambda: themis.containers(app_id, every=True) == [], "nothing of the app is left")


def test_an_app_that_is_killed(themis):
    app_id = themis.submit(jobs=2)
    themis.wait_until_iterating(app_id)
    assert len(themis.containers(app_id)) == 3
    assert themis.submarine("app", "kill", app_id).returncode == 0
    themis.until(lambda: themis.state(app_id) == "KILLED", "the app is killed")
    themis.until(lambda: themis.containers(app_id, every=True) == [], "nothing of the app is left")
    assert len(themis.networks()) == 1


def test_stopping_the_resource_manager_ends_its_containers(themis):
    app_id = themis.submit(jobs=2)
    themis.wait_until_iterating(app_id)
    assert len(themis.containers(app_id)) == 3
    # The fixture stops it, and looks that nothing is left.


def test_a_task_that_takes_more_memory_than_its_container_has(themis):
    greedy = "python -c 'import time; time.sleep(1); taken = b\"1\" * (600 << 20); time.sleep(60)'"
    limits = {"memory_mb": 150, "vcores": 1}
    app_id = themis.submit(program=None, arguments=None, search_space=None, command=greedy, resources=limits)
    themis.until(lambda: themis.containers(app_id), "it starts")
    themis.until(lambda: themis.state(app_id) in ENDED, "it is given up", 120)
    app = themis.app(app_id)
    assert app.state == "FAILED"
    assert "used more than 150 MB" in app.diagnostics


# ---- cards, on an engine that has no driver for them ----------------------------------------------------------------


@pytest.fixture
def no_cards(docker_host, image):
    """An engine on which a container with cards cannot be started."""
    labels = {RUN_LABEL: uuid.uuid4().hex}
    spec = ContainerSpec(
        name=f"themis-test-{labels[RUN_LABEL][:8]}", image=image, command=("true",), environment={}, labels=labels,
        network="none", working_dir="/tmp", user="0:0", memory_mb=64, device_ids=("0", "1"),
    )  # fmt: skip
    try:
        docker_host.start(spec)
    except DockerError as error:
        return str(error), docker_host.find(labels)
    docker_host.remove_all(labels)
    pytest.skip("NOT TESTED: this engine has a driver for cards")


def test_a_container_that_cannot_be_started_is_removed(no_cards):
    said, left = no_cards
    assert "could not select device driver" in said
    assert left == ()


def reported(themis):
    return json.dumps([dict(event.detail) for event in themis.events()])


def test_an_app_whose_cards_the_engine_lacks_waits_and_leaves_nothing(image, no_cards, tmp_path):
    path = tmp_path / "cards.yaml"
    path.write_text(yaml.safe_dump(CARDS))
    with ThemisOnDocker(tmp_path, image, cluster=path) as themis:
        app_id = themis.submit(job={"tasks": 1, "gpus_per_task": 2, "iterations": 50})
        themis.until(lambda: themis.masters(app_id), "its app master runs")
        themis.until(lambda: "device driver" in reported(themis), "its GPUs are given back with the reason")
        assert themis.containers(app_id, "task", every=True) == []
        app = themis.app(app_id)
        assert (app.state in ENDED, [job.restarts for job in app.jobs]) == (False, [0])
    nothing_is_left(themis)
