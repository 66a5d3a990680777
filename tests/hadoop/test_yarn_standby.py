"""A second ResourceManager on YARN takes over with the state from HDFS when the first one is killed."""

import pytest
from free_ports import free_port
from themis_on_yarn import ThemisOnYarn

from submarine_client.admin import Admin

HOST = "127.0.0.1"


@pytest.fixture
def pair(cluster, tmp_path):
    """An active ResourceManager, and a standby that waits."""
    addresses = [f"{HOST}:{free_port(HOST)}" for _ in range(2)]
    made = []
    for address in addresses:
        folder = tmp_path / address.rpartition(":")[2]
        folder.mkdir()
        themis = ThemisOnYarn(cluster, folder)
        themis.settings |= {"listen": address, "standby": {"enabled": True, "addresses": addresses}}
        themis.options = ("--standby",)
        made.append(themis)
    active, standby = made
    active.start()
    standby.launch()
    standby.until(lambda: "standby of process" in standby.log(), "the second one waits", 60)
    yield active, standby
    for themis in (active, standby):
        if themis.process.poll() is None:
            themis.process.kill()
            themis.process.wait()


def test_standby_takes_over_apps_that_run_on(pair):
    active, standby = pair
    with Admin(active.client.address) as admin:
        waits = f"process {standby.process.pid} of "
        active.until(lambda: any(waits in each for each in admin.status().standbys), "the active one knows it", 30)
    app_id = active.submit(jobs=2, job={"tasks": 1, "gpus_per_task": 1, "iterations": 400})
    active.wait_until_iterating(app_id, limit_s=150.0)
    before = active.app_masters(app_id)
    active.kill()
    standby.wait_until_it_answers()
    assert standby.app_masters(app_id) == before
    app = standby.wait_until_ended(app_id)
    assert (app.state, app.attempts) == ("FINISHED", 1)
    assert standby.audit() == ()
    assert standby.kinds()["rm_started"] == 2
    standby.stop()
