"""kill -9 of everything that can be killed, while apps of Themis run on YARN and HDFS.

Each time the app goes on and ends well, no GPU is ever given twice, and nothing is left running.
"""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from themis_on_yarn import ENDED, ThemisOnYarn

from am.runtimes.yarn_source import YarnLimits

JOB = {"tasks": 1, "gpus_per_task": 1, "iterations": 300}
"""Half a minute of work: a lost node is reported a quarter of a minute after its end."""
SHORT = 200
"""Iterations where nothing has to be noticed by its absence."""


@pytest.fixture(scope="module")
def manager(cluster, tmp_path_factory):
    """One ResourceManager for all tests: each leaves it without apps."""
    with ThemisOnYarn(cluster, tmp_path_factory.mktemp("themis")) as manager:
        yield manager


@pytest.fixture
def themis(manager, breakable_cluster):
    """The ResourceManager, which forgets earlier tests and so reports the events of this test only."""
    manager.forget_events()
    yield manager
    try:
        assert manager.audit() == ()
        manager.until(lambda: not manager.processes(), "nothing of any app is left", 60)
    finally:
        for app in manager.client.list():
            if app.state not in ENDED:
                manager.client.kill(app.app_id, "its test failed")


def at_work(themis, iterations=JOB["iterations"]):
    """An app that iterates, and has every GPU: one that is given twice shows as a task too many on its node."""
    app_id = themis.submit(jobs=sum(themis.cluster.node_gpus.values()), job={**JOB, "iterations": iterations})
    themis.wait_until_iterating(app_id)
    return app_id


def end_well(themis, *app_ids, limit_s=200, iterations=JOB["iterations"]):
    """Wait for the ends, and watch meanwhile that no node runs more tasks than it has GPUs; the most that all ran."""
    over, most = [], 0

    def ended():
        nonlocal most
        used = themis.gpus_in_use()
        most = max(most, used.total())
        over.extend((host, count) for host, count in used.items() if count > themis.cluster.node_gpus[host])
        return all(themis.state(app_id) in ENDED for app_id in app_ids)

    themis.until(ended, f"{app_ids} end", limit_s)
    for app in map(themis.app, app_ids):
        assert app.state == "FINISHED", f"{app.diagnostics}\n{themis.log()}"
        assert {job.iteration for job in app.jobs} == {iterations}
    assert over == []
    return most


def ends_well(themis, app_id, iterations=JOB["iterations"]):
    """The app once it ended well, as `end_well` watches it."""
    end_well(themis, app_id, iterations=iterations)
    return themis.app(app_id)


def node_of(pid):
    return psutil.Process(pid).environ()["NM_HOST"]


def test_a_task_and_then_a_task_host(themis):
    """What YARN started is the task host. The task behind it is not killed: no orphan may stay on the GPU."""
    app_id = at_work(themis, SHORT)
    os.kill(next(iter(themis.tasks(app_id))), signal.SIGKILL)
    themis.until(lambda: themis.kinds(app_id)["job_restarted"] == 1, "the task's job restarts")
    above = psutil.Process(next(iter(themis.tasks(app_id)))).parents()
    next(each for each in above if any("task_host" in word for word in each.cmdline())).kill()
    themis.until(lambda: themis.kinds(app_id)["job_restarted"] == 2, "the task host's job restarts")
    app = ends_well(themis, app_id, SHORT)
    assert (sum(job.restarts for job in app.jobs), app.attempts) == (2, 1)


def test_an_app_master(themis):
    app_id = at_work(themis, SHORT)
    before = {job.job_id: job.iteration for job in themis.app(app_id).jobs}
    (victim,) = themis.app_masters(app_id)
    os.kill(victim, signal.SIGKILL)
    app = ends_well(themis, app_id, SHORT)
    assert app.attempts == 2
    started = [event for event in themis.events() if event.kind == "tasks_started" and event.detail["iteration"] > 0]
    assert {event.detail["job_id"] for event in started} == set(before), "not every job went on from its checkpoint"
    themis.until(lambda: themis.yarn_app(app_id)["finalStatus"] == "SUCCEEDED", "YARN knows that it went well")


def test_a_second_failure_of_the_app_master_ends_the_app_and_frees_its_gpus(themis):
    app_id = at_work(themis)
    for attempt in (1, 2):
        # In this order: the process of the attempt before may still be there while it ends.
        themis.until(lambda n=attempt: themis.app(app_id).attempts == n, "an attempt is counted")
        themis.until(lambda: themis.app_masters(app_id), "its app master runs")
        os.kill(themis.app_masters(app_id)[0], signal.SIGKILL)
    themis.until(lambda: themis.state(app_id) == "FAILED", "the app is given up", 60)
    themis.until(lambda: themis.client.cluster().gpus_leased == 0, "its GPUs are free", 60)
    themis.until(lambda: not themis.tasks(app_id), "its tasks are gone", 30)


def test_a_node_manager_alone(themis, breakable_cluster):
    """Its containers live on as orphans: they must end before the node reports to YARN again."""
    app_id = at_work(themis)
    (am,) = themis.app_masters(app_id)
    hosts = set(themis.gpus_in_use())
    host = next((host for host in sorted(hosts) if host != node_of(am)), node_of(am))
    breakable_cluster.kill(f"nodemanager-{host}")
    ends_well(themis, app_id)
    assert "machine_lost" in themis.kinds()


@pytest.mark.nightly
def test_a_whole_node_and_its_return(themis, breakable_cluster):
    app_id = at_work(themis)
    (am,) = themis.app_masters(app_id)
    host = next((host for host in sorted(themis.gpus_in_use()) if host != node_of(am)), None)
    host = host or node_of(am)
    breakable_cluster.kill_node(host)
    themis.until(lambda: "machine_lost" in themis.kinds(), "the node is lost", 60)
    breakable_cluster.start_daemon(f"nodemanager-{host}")
    themis.until(lambda: "machine_back" in themis.kinds(), "the node is back", 60)
    ends_well(themis, app_id)


def test_a_whole_node_while_two_apps_want_every_gpu(themis, breakable_cluster):
    gpus = sum(themis.cluster.node_gpus.values())
    apps = [themis.submit(name=name, jobs=gpus, job=JOB) for name in ("one", "other")]
    themis.until(lambda: themis.gpus_in_use().total() == gpus, "every GPU is in use", 60)
    hosts = {node_of(am) for am in themis.app_masters()}
    host = next((host for host in sorted(themis.cluster.node_gpus) if host not in hosts), min(hosts))
    breakable_cluster.kill_node(host)
    themis.until(lambda: "machine_lost" in themis.kinds(), "the node is lost", 60)
    breakable_cluster.start_daemon(f"nodemanager-{host}")
    most = end_well(themis, *apps, limit_s=250)
    assert most > gpus - themis.cluster.node_gpus[host], "the node's GPUs were not used again"


def test_a_node_manager_that_hangs(themis, breakable_cluster):
    """Its tasks live on without it, while YARN takes them for gone: they must end before others have their GPUs."""
    app_id = at_work(themis)
    (am,) = themis.app_masters(app_id)
    host = next((host for host in sorted(themis.gpus_in_use()) if host != node_of(am)), node_of(am))
    node_manager = breakable_cluster.daemons()[f"nodemanager-{host}"]
    os.kill(node_manager, signal.SIGSTOP)
    try:
        themis.until(lambda: "machine_lost" in themis.kinds(), "the node is lost", 60)
        themis.until(lambda: host not in themis.gpus_in_use(), "no task lives on there", 30)
    finally:
        os.kill(node_manager, signal.SIGCONT)
    ends_well(themis, app_id)


def test_the_node_of_an_app_master(themis, breakable_cluster):
    app_id = at_work(themis)
    (am,) = themis.app_masters(app_id)
    breakable_cluster.kill_node(node_of(am))
    themis.until(lambda: themis.app(app_id).attempts == 2 and themis.app_masters(app_id), "the next one runs", 90)
    # The lost node is no failure of the app: the next one may fail once, though two failures end an app.
    os.kill(themis.app_masters(app_id)[0], signal.SIGKILL)
    app = ends_well(themis, app_id)
    assert app.attempts == 3


@pytest.mark.nightly
def test_app_master_whose_node_yarn_does_not_take_for_lost_yet_is_no_failure(breakable_cluster, tmp_path):
    """Themis finds it silent first, as with YARN's default of ten minutes, and its node does not answer."""
    # Of its own, as another ResourceManager has the lock on the common one.
    storage = f"{breakable_cluster.fs_uri}/tmp/silent-node"
    manager = ThemisOnYarn(breakable_cluster, tmp_path, storage=storage)
    manager.settings["am_expiry_s"] = 3
    with manager:
        app_id = at_work(manager)
        (am,) = manager.app_masters(app_id)
        node_manager = breakable_cluster.daemons()[f"nodemanager-{node_of(am)}"]
        for process in (node_manager, am):
            os.kill(process, signal.SIGSTOP)
        try:
            manager.until(lambda: "am_lost" in manager.kinds(), "the app master is lost", 90)
        finally:
            os.kill(node_manager, signal.SIGCONT)
        (lost,) = [event.detail["reason"] for event in manager.events() if event.kind == "am_lost"]
        assert lost == "the app master is silent; not counted as its failure"
        manager.until(lambda: manager.app(app_id).attempts == 2, "the next attempt starts", 60)
        manager.client.kill(app_id, "seen")
        manager.until(lambda: not manager.processes(), "nothing of it is left", 60)


@pytest.mark.nightly
def test_yarns_resource_manager(themis, breakable_cluster):
    app_id = at_work(themis)
    breakable_cluster.kill("resourcemanager")
    breakable_cluster.start_daemon("resourcemanager")
    app = ends_well(themis, app_id)
    assert (app.attempts, themis.kinds()["machine_lost"]) == (1, 0)


def test_yarns_resource_manager_for_longer_than_an_ask_waits(themis, breakable_cluster):
    away_s = YarnLimits().pin_timeout_s + 5.0
    iterations = round((away_s + 15.0) / 0.1)
    app_id = at_work(themis, iterations)
    breakable_cluster.kill("resourcemanager")
    time.sleep(away_s)
    breakable_cluster.start_daemon("resourcemanager")
    app = ends_well(themis, app_id, iterations)
    assert (app.attempts, themis.kinds()["machine_lost"]) == (1, 0)


@pytest.mark.timeout(400)
@pytest.mark.nightly
def test_two_outages_of_yarns_resource_manager_beyond_the_ends_of_leases(themis, breakable_cluster):
    """Meanwhile no container can be reported as ended, so no lease can be given back."""
    gpus = sum(themis.cluster.node_gpus.values())
    apps = [themis.submit(name=name, jobs=gpus, job=JOB) for name in ("one", "other")]
    lease = themis.settings["lease"]
    for _ in range(2):
        themis.until(lambda: themis.gpus_in_use().total() == gpus, "every GPU is in use", 90)
        breakable_cluster.kill("resourcemanager")
        time.sleep(lease["duration_s"] + lease["grace_s"] + 10.0)
        breakable_cluster.start_daemon("resourcemanager")
    end_well(themis, *apps, limit_s=150)
    assert {themis.app(app_id).attempts for app_id in apps} == {1}
    assert themis.kinds()["machine_lost"] == 0


def test_the_resource_manager_of_themis(themis):
    app_id = at_work(themis, SHORT)
    (am,) = themis.app_masters(app_id)
    themis.kill()
    themis.start()
    assert themis.app_masters(app_id) == [am], "its app master was not taken back"
    app = ends_well(themis, app_id, SHORT)
    assert app.attempts == 1


def test_the_daemons_of_hdfs(themis, breakable_cluster):
    app_id = at_work(themis)
    for daemon in ("datanode", "namenode"):
        breakable_cluster.kill(daemon)
        breakable_cluster.start_daemon(daemon)
    ends_well(themis, app_id)


def test_a_start_waits_for_the_name_node(breakable_cluster, tmp_path):
    breakable_cluster.kill("namenode")
    # Beside the one of the other tests, which has the default storage.
    themis = ThemisOnYarn(breakable_cluster, tmp_path, storage=f"{breakable_cluster.fs_uri}/tmp/start-waits")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(themis.start)
        try:
            log = tmp_path / "rm.log"
            deadline_s = time.monotonic() + 90.0
            while not (log.exists() and "HDFS has been unreachable" in log.read_text()):
                assert time.monotonic() < deadline_s, "the start did not ask HDFS"
                time.sleep(0.2)
            # Longer than any single call waits for HDFS.
            time.sleep(20.0)
            assert not starting.done() and themis.process.poll() is None
            breakable_cluster.start_daemon("namenode")
            starting.result(150.0)
        finally:
            breakable_cluster.restore()
            themis.stop()
