"""Apps of Themis on YARN and HDFS: what a user of Hadoop sees of them, and how they share GPUs."""

import json
import subprocess
import urllib.request

import pytest
from themis_on_yarn import ENDED, ITERATIONS, ThemisOnYarn
from travelling_code import check_that_code_travels, check_that_packages_are_installed

from am.checkpoints.uri import open_store


@pytest.fixture(scope="module")
def themis(cluster, tmp_path_factory):
    with ThemisOnYarn(cluster, tmp_path_factory.mktemp("themis")) as themis:
        yield themis
        assert themis.audit() == ()
    assert themis.processes("am.main") | themis.tasks() == {}


def yarn(themis, *arguments):
    """Hadoop's own command."""
    command = [str(themis.cluster.bin_dir / "yarn"), *arguments]
    done = subprocess.run(command, env=themis.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_app_runs_to_its_end_in_containers_and_leaves_its_checkpoints_on_hdfs(themis, monkeypatch):
    app_id = themis.submit(name="whole", jobs=3)
    app = themis.wait_until_ended(app_id)
    assert (app.state, app.attempts, app.progress) == ("FINISHED", 1, 1.0), themis.log()
    for name, value in themis.cluster.exports.items():
        monkeypatch.setenv(name, value)
    uri = app.best_checkpoint.partition("/checkpoints/")[0] + "/checkpoints"
    assert uri.startswith("hdfs://")
    store = open_store(uri)
    assert {store.latest_iteration(job.job_id) for job in app.jobs} == {ITERATIONS}
    themis.until(lambda: themis.yarn_app(app_id)["state"] == "FINISHED", "YARN knows that it is over")
    seen = themis.yarn_app(app_id)
    assert (seen["finalStatus"], seen["applicationType"]) == ("SUCCEEDED", "THEMIS")
    assert seen["queue"].split(".")[-1] == "default"
    assert f"themis-app:{app_id}" in seen["applicationTags"].split(",")
    themis.until(lambda: not themis.gpus_in_use(), "nothing of it runs")


def test_jobs_follow_one_another_in_containers_which_end_before_their_app(themis):
    jobs = sum(themis.cluster.node_gpus.values()) + 2
    app_id = themis.submit(name="following", jobs=jobs, job={"tasks": 1, "gpus_per_task": 1, "iterations": 60})
    themis.until(lambda: themis.state(app_id) in ENDED, "it ends", 120)
    assert themis.processes("task_host", app_id=app_id) == {}, "it was said to be over while containers idled"
    app = themis.app(app_id)
    assert (app.state, {job.iteration for job in app.jobs}) == ("FINISHED", {60}), themis.log()
    started = [event.detail for event in themis.events() if event.kind == "tasks_started" and event.app_id == app_id]
    assert sum(detail["reused"] for detail in started) >= 2
    # A task that reuses a container makes no request to YARN.
    assert all(not detail["seconds"].get("grant") for detail in started if detail["reused"])


def test_code_travels_into_containers_of_yarn(themis, tmp_path):
    address = (themis.folder / "state/address").read_text().strip()
    check_that_code_travels(tmp_path, address, themis.environment)


def test_packages_are_installed_in_containers_of_yarn(themis, tmp_path):
    address = (themis.folder / "state/address").read_text().strip()
    check_that_packages_are_installed(tmp_path, address, themis.environment)


def test_logs_are_available_while_an_app_runs_and_after_its_end(themis):
    app_id = themis.submit(name="logging", jobs=1)
    themis.wait_until_iterating(app_id)
    running = "".join(chunk.text for chunk in themis.client.logs(app_id))
    assert "loss = " in running
    assert themis.wait_until_ended(app_id).state == "FINISHED"
    ended = "".join(chunk.text for chunk in themis.client.logs(app_id))
    last = f"step = {ITERATIONS}"
    assert ended.startswith(running[:200]) and last in ended
    engine_id = themis.app(app_id).engine_id

    def of_yarn():
        return yarn(themis, "logs", "-applicationId", engine_id)

    # YARN gathers the logs of containers once they have ended, in its own time.
    themis.until(lambda: last in of_yarn(), "YARN has gathered the tasks' logs")
    assert "am.main" in of_yarn()


def test_yarns_own_command_lists_an_app_and_its_logs_and_kills_it(themis):
    app_id = themis.submit(name="hadoop-style", job={"tasks": 1, "gpus_per_task": 1, "iterations": 100_000})
    themis.wait_until_iterating(app_id)
    yarn_app_id = themis.app(app_id).engine_id
    (line,) = [line for line in yarn(themis, "application", "-list").splitlines() if yarn_app_id in line]
    assert {"hadoop-style", "THEMIS", "RUNNING"} <= {word.strip() for word in line.split("\t")}
    yarn(themis, "application", "-kill", yarn_app_id)
    app = themis.wait_until_ended(app_id)
    assert app.state == "KILLED" and "killed" in app.diagnostics.lower()
    assert themis.client.cluster().gpus_leased == 0
    assert themis.tasks(app_id) == {}, "it was said to be over while tasks ran"


def test_an_app_that_its_user_kills_is_killed_for_yarn_too(themis):
    app_id = themis.submit(name="unwanted", job={"tasks": 1, "gpus_per_task": 1, "iterations": 100_000})
    themis.wait_until_iterating(app_id)
    themis.client.kill(app_id, "changed my mind")
    assert themis.wait_until_ended(app_id).state == "KILLED"
    themis.until(lambda: themis.yarn_app(app_id)["finalStatus"] == "KILLED", "YARN knows that it was killed")
    themis.until(lambda: not themis.tasks(app_id), "nothing of it runs")


def test_a_gang_over_several_nodes_trains(themis):
    app_id = themis.submit(name="gang", jobs=1, job={"tasks": 6, "min_tasks": 6, "gpus_per_task": 1, "iterations": 400})
    themis.until(lambda: len(themis.gpus_in_use()) > 1, "it runs on two nodes", 60)
    assert themis.wait_until_ended(app_id).state == "FINISHED"


def test_the_app_masters_page_answers_behind_yarns_proxy(themis):
    app_id = themis.submit(name="paged", job={"tasks": 1, "gpus_per_task": 1, "iterations": 100_000})
    themis.wait_until_iterating(app_id)
    base = f"{themis.cluster.rm_web}/proxy/{themis.app(app_id).engine_id}/"
    with urllib.request.urlopen(base, timeout=60) as answer:
        page = answer.read().decode()
    assert "paged" in page and "job-00" in page
    with urllib.request.urlopen(base + "status.json", timeout=60) as answer:
        assert json.load(answer)["app_id"] == app_id
    themis.client.kill(app_id)
    themis.wait_until_ended(app_id)


def test_gpus_used_by_other_applications_are_not_leased(themis, stranger):
    stranger.granted(allocation_request_id=1, host="gpu-node-3", gpus=2)
    themis.until(lambda: themis.page("api/v1/cluster")["gpus_closed"] == 2, "the two GPUs are not given out")
    app_id = themis.submit(name="beside", jobs=10, job={"tasks": 1, "gpus_per_task": 1, "iterations": 80})
    assert themis.wait_until_ended(app_id).state == "FINISHED"
    leased = {
        event.detail["gpu"] for event in themis.events() if event.kind == "lease_granted" and event.app_id == app_id
    }
    assert {gpu.split("/")[0] for gpu in leased} == {"gpu-node-1", "gpu-node-2"}


@pytest.mark.parametrize(("what", "field"), [("memory", "memory_mb"), ("virtual cores", "vcores")])
def test_gpus_of_a_node_without_room_for_tasks_are_not_leased(themis, stranger, what, field):
    left = dict(zip(("memory_mb", "vcores"), themis.left_of("gpu-node-3"), strict=True))
    stranger.granted(allocation_request_id=1, host="gpu-node-3", gpus=0, **{field: left[field]})
    app_id = themis.submit(name="beside", jobs=10, job={"tasks": 1, "gpus_per_task": 1, "iterations": 600})
    limit = f"gpu-node-3 has no {what} for tasks on 2 of its GPUs"
    themis.until(lambda: limit in themis.app(app_id).waits_for, "app show says why", 60)
    themis.until(lambda: themis.gpus_in_use().total() == 8, "the other GPUs are in use", 60)
    assert "gpu-node-3" not in themis.gpus_in_use()
    themis.client.kill(app_id)
    themis.wait_until_ended(app_id)


def test_an_ask_that_yarn_never_grants_goes_back_to_the_arbiter(themis, stranger):
    """The node has cores for a task of one app, but not of the other: YARN says nothing, for ever."""
    small = themis.submit(name="small", jobs=1, job={"tasks": 4, "gpus_per_task": 1, "iterations": 20000})
    themis.wait_until_iterating(small)
    _, vcores = themis.left_of("gpu-node-3")
    # The other app's master may run there, too.
    stranger.granted(allocation_request_id=1, host="gpu-node-3", gpus=0, vcores=vcores - 3)
    app_id = themis.submit(
        name="elsewhere",
        jobs=10,
        job={"tasks": 1, "gpus_per_task": 1, "iterations": 240},
        resources={"memory_mb": 256, "vcores": 4},
    )
    themis.until(lambda: "lease_released" in themis.kinds(app_id), "what cannot be used goes back", 60)
    themis.client.kill(small)
    reasons = [event.detail.get("reason", "") for event in themis.events() if event.kind == "lease_released"]
    assert any("YARN granted no container within" in reason for reason in reasons)
    assert themis.wait_until_ended(app_id, 240).state == "FINISHED"
