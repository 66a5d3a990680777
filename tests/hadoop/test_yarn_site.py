"""Themis at a site: a second ResourceManager by mistake, more apps than GPUs, smaller queues, other tenants, drains."""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from themis_on_yarn import ThemisOnYarn

from themis.errors import InputError
from themis_cli.main import main

JOB = {"tasks": 5, "min_tasks": 1, "gpus_per_task": 1, "iterations": 20000}


short_leases = pytest.mark.parametrize("themis", [15], indirect=True, ids=["short-leases"])
"""For tests that wait for the end of leases."""


@pytest.fixture
def themis(request, cluster, tmp_path):
    with ThemisOnYarn(cluster, tmp_path, lease_s=getattr(request, "param", 30)) as themis:
        yield themis
        if themis.kinds()["lease_granted"]:
            assert themis.audit() == ()


@pytest.fixture
def set_scheduler(cluster):
    """Set properties of YARN's queues, by their names after `root.`. Without any, as at the end, all are restored."""
    path = cluster.conf_dir / "capacity-scheduler.xml"
    former = path.read_text()

    def set_to(**values):
        text = former
        for name, value in values.items():
            name = name.replace("_", "-").replace("--", ".")
            text, found = re.subn(rf"(root\.{name}</name><value>)\d+", rf"\g<1>{value}", text)
            assert found == 1
        path.write_text(text)
        environment = {**os.environ, **cluster.exports}
        subprocess.run([cluster.bin_dir / "yarn", "rmadmin", "-refreshQueues"], env=environment, check=True)

    yield set_to
    set_to()


@pytest.fixture
def queue_limit(set_scheduler):
    """Set the share of the cluster that the queue `default` has and may use, in percent."""

    def limit(percent):
        others = 100 - percent
        set_scheduler(default__capacity=percent, default__maximum_capacity=percent, research__capacity=others)

    return limit


def operate(themis, capsys, *words):
    capsys.readouterr()
    code = main(["rm", *words, "--rm", themis.client.address])
    written = capsys.readouterr()
    return code, written.out + written.err


def test_second_resource_manager_on_the_same_storage_is_refused(themis, tmp_path_factory):
    second = ThemisOnYarn(themis.cluster, tmp_path_factory.mktemp("second"))
    with pytest.raises(AssertionError, match="the ResourceManager ended"):
        second.start()
    assert second.process.wait() == 2
    log = second.log()
    assert "another ResourceManager uses the same shared folder" in log and f"process {themis.process.pid} " in log
    assert str(themis.folder / "state") in log and "Traceback" not in log


def test_lock_of_a_killed_resource_manager_does_not_delay_its_restart(themis):
    themis.kill()
    themis.start()
    assert "waiting up to" not in themis.log()


def test_apps_outlive_a_stop_that_keeps_them(themis, capsys):
    app_id = themis.submit(jobs=2, job={"tasks": 1, "gpus_per_task": 1, "iterations": 200})
    themis.wait_until_iterating(app_id)
    before = themis.app_masters(app_id)
    assert operate(themis, capsys, "stop", "--keep-apps")[0] == 0
    assert themis.process.wait(30) == 0
    themis.client.close()
    assert themis.app_masters(app_id) == before and themis.tasks(app_id)
    themis.start()
    app = themis.wait_until_ended(app_id)
    assert (app.state, app.attempts) == ("FINISHED", 1)


@pytest.mark.parametrize("themis", [20], indirect=True, ids=["lease-20"])
def test_two_apps_that_want_all_gpus_share_them_and_none_has_two_owners(themis):
    # So long that leases end while both have much to do, also if YARN starts the second app's master late.
    wide = {"jobs": 10, "job": {"tasks": 1, "gpus_per_task": 1, "iterations": 500}}
    apps = [themis.submit(name="first", **wide)]
    themis.until(lambda: themis.client.cluster().gpus_leased == 10, "it has every GPU")
    apps.append(themis.submit(name="second", **wide))
    over = []

    def both_ended():
        used = themis.gpus_in_use()
        over.extend((host, count) for host, count in used.items() if count > themis.cluster.node_gpus[host])
        return {themis.state(app_id) for app_id in apps} == {"FINISHED"}

    themis.until(both_ended, "both end", 270)
    assert over == []
    assert themis.kinds()["resize"], "no job was ever moved"
    assert themis.kinds()["lease_expiring"]


@short_leases
def test_queue_that_shrinks_is_used_up_to_its_limit(themis, queue_limit, capsys):
    apps = [themis.submit(name=name, jobs=1, job=JOB) for name in ("one", "other")]
    themis.until(lambda: themis.gpus_in_use().total() == 10, "every GPU is in use", 90)
    queue_limit(30)
    limit = "YARN's queue default may use 3 of 10 GPUs"
    themis.until(lambda: limit in operate(themis, capsys, "status")[1], "the limit is known", 30)
    themis.until(lambda: themis.gpus_in_use().total() == 3, "three GPUs are in use", 90)
    themis.until(lambda: any(limit in themis.app(app_id).waits_for for app_id in apps), "app show says why", 30)
    queue_limit(50)
    themis.until(lambda: themis.gpus_in_use().total() == 5, "five GPUs are in use", 120)


def test_gang_beyond_the_limit_of_its_user_leaves_the_gpus_to_a_smaller_app(themis, set_scheduler):
    """The user of all apps may use the capacity of the queue, half of the GPUs. YARN's reports do not show that."""
    set_scheduler(default__user_limit_factor=1)
    gang = themis.submit(name="gang", jobs=1, job={**JOB, "tasks": 8, "min_tasks": 7})
    themis.until(lambda: "GPUs are leased to it for" in themis.app(gang).waits_for, "its request was not granted", 90)
    assert not themis.tasks(gang)
    small = themis.submit(name="small", jobs=1, job=JOB)
    themis.until(lambda: themis.gpus_in_use().total() >= 4 and themis.tasks(small), "the other app has the GPUs", 60)
    themis.client.kill(small)
    set_scheduler()
    themis.until(lambda: len(themis.tasks(gang)) >= 7, "it runs without the limit", 120)


def test_other_tenant_that_takes_gpus_at_the_end_of_leases_keeps_them(themis, stranger):
    """Two elastic apps have every GPU. The tenant waits for half of those of one app, and is faster when it ends.

    It does not wait for GPUs that stay in use: YARN would reserve them, and count them as used by the queue.
    """
    apps = [themis.submit(name=name, jobs=1, job={**JOB, "tasks": 8}) for name in ("one", "other")]
    themis.until(lambda: themis.gpus_in_use().total() == 10, "every GPU is in use", 90)
    ending, staying = sorted(apps, key=lambda app_id: -len(themis.tasks(app_id)))
    in_use = Counter(task["NM_HOST"] for task in themis.tasks(ending).values())
    hosts = [host for host, count in in_use.items() for _ in range(count // 2)]
    for number, host in enumerate(hosts, 1):
        stranger.ask(allocation_request_id=number, host=host, gpus=1)
    held, over = Counter(), []

    def settled():
        held.update(container["host"] for container in stranger.allocate().get("granted", ()))
        used = themis.gpus_in_use()
        over.extend(host for host, count in used.items() if count + held[host] > themis.cluster.node_gpus[host])
        # The other app may use at most eight.
        return held and used.total() == min(8, 10 - held.total())

    assert not settled()
    themis.client.kill(ending)
    themis.until(settled, "the tenant has GPUs, and the other app has the rest", 150)
    assert over == []
    assert themis.app(staying).attempts == 1


def test_app_in_an_unknown_queue_is_refused(themis):
    with pytest.raises(InputError, match="unknown YARN queue: 'reserach'; did you mean 'research'"):
        themis.submit(queue="reserach")


def test_app_that_yarns_operator_moves_is_shown_in_its_new_queue(themis):
    app_id = themis.submit(jobs=1, job={"tasks": 1, "gpus_per_task": 1, "iterations": 2000})
    themis.wait_until_iterating(app_id)
    command = ["yarn", "application", "-movetoqueue", themis.app(app_id).engine_id, "-queue", "research"]
    command[0] = str(themis.cluster.bin_dir / command[0])
    subprocess.run(command, env={**os.environ, **themis.cluster.exports}, check=True, stdout=sys.stderr)
    themis.until(lambda: themis.app(app_id).queue.endswith("research"), "app show has the queue", 30)


@short_leases
def test_drained_node_is_left_at_the_end_of_its_leases(themis, capsys):
    app_id = themis.submit(jobs=1, job=JOB)
    themis.until(lambda: themis.gpus_in_use(), "it runs", 60)
    host = next(iter(themis.gpus_in_use()))
    code, text = operate(themis, capsys, "drain", host)
    assert (code, text.startswith(f"{host} drains: ")) == (0, True)
    themis.until(lambda: host not in themis.gpus_in_use() and themis.gpus_in_use(), "it runs elsewhere", 120)
    assert themis.app(app_id).attempts == 1


@short_leases
def test_node_that_yarn_decommissions_gracefully_is_left_at_the_end_of_its_leases(breakable_cluster, themis):
    shape = {"tasks": 4, "min_tasks": 4, "gpus_per_task": 1, "iterations": 1500}
    app_id = themis.submit(jobs=1, job=shape)
    themis.wait_until_iterating(app_id)
    (host,) = themis.gpus_in_use()
    breakable_cluster.decommission(host, graceful_s=100)
    themis.until(lambda: host not in themis.gpus_in_use() and themis.gpus_in_use(), "its job runs elsewhere", 90)
    assert themis.app(app_id).state == "RUNNING" and themis.kinds()["lease_revoked"] == 0
    assert themis.wait_until_ended(app_id, 180).state == "FINISHED"
