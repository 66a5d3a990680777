"""Two users on a YARN that checks access: whose an application is, and who may look at it and end it."""

import subprocess
import sys
from pathlib import Path

import pytest
from secure_cluster import SHELL
from themis_on_yarn import ThemisOnYarn

from themis_lab.devcluster.cluster import DevCluster
from themis_lab.devcluster.spec import ClusterSpec

ROOT = Path(__file__).parents[2]
KILL = """with YarnClient(connect_wait_s=10.0) as yarn:
        yarn.kill({app!r})
        print("ended")"""


@pytest.fixture(scope="module")
def checked_cluster(hadoop_programs, tmp_path_factory):
    """Two nodes of 2 GPUs; nobody but the user of the test administers YARN."""
    cluster = DevCluster.start(ClusterSpec(gpus=(2, 2), acls=True), tmp_path_factory.mktemp("hadoop"))
    try:
        yield cluster
    finally:
        cluster.stop()


def ask(cluster, user, code):
    """What code prints that a user runs with our clients; of an error its class and text."""
    kept = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", SHELL.format(code=code)],
        env={**kept, **cluster.exports, "HADOOP_USER_NAME": user},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_user_ends_own_applications_on_yarn_and_no_others(checked_cluster, tmp_path):
    with ThemisOnYarn(checked_cluster, tmp_path, as_submitter=True) as manager:
        engine_ids = {}
        for user in ("alice", "bob"):
            app_id = manager.submit(user=user, jobs=1, job={"tasks": 1, "gpus_per_task": 1, "iterations": 100_000})
            manager.until(lambda app_id=app_id: manager.app(app_id).engine_id, f"{app_id} is at YARN", 120)
            assert manager.yarn_app(app_id)["user"] == user
            engine_ids[user] = manager.app(app_id).engine_id

        refused = ask(checked_cluster, "bob", KILL.format(app=engine_ids["alice"]))
        assert refused.startswith("YarnError") and "bob" in refused
        assert ask(checked_cluster, "eve", KILL.format(app=engine_ids["bob"])).startswith("YarnError")
        assert all(manager.yarn_says(f"apps/{each}")["app"]["state"] != "KILLED" for each in engine_ids.values())
        assert ask(checked_cluster, "alice", KILL.format(app=engine_ids["alice"])) == "ended"
