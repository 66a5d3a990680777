"""Hadoop daemons of a run end with its driver in any case. Sleeping processes represent them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from themis.errors import InputError
from themis.processes import find_marked, kill_marked
from themis_lab.devcluster.addresses import Addresses
from themis_lab.devcluster.cluster import new_identity
from themis_lab.devcluster.configuration import MARK
from themis_lab.devcluster.daemons import Deployment, Programs
from themis_lab.devcluster.layout import Layout
from themis_lab.devcluster.processes import spawn
from themis_lab.devcluster.spec import NAMENODE, ClusterSpec
from themis_lab.devcluster.state import write_state
from themis_lab.testbed.run_folder import fresh_folder

DRIVER = """
import os, sys, time
from pathlib import Path
from rich.console import Console
from themis_lab.devcluster.cluster import DevCluster
from themis_lab.devcluster.configuration import MARK
from themis_lab.devcluster.processes import spawn
from themis_lab.testbed.engines import running_engine
from themis_lab.testbed.run_folder import RunFolder
from themis.cluster import Cluster, DeviceType, Machine

class Sleeping:
    exports = {}

    @classmethod
    def start(cls, spec, folder, *, say, identity):
        spawn(["sleep", "600"], {**os.environ, MARK: identity}, folder, folder / "log")
        print(identity, flush=True)
        if sys.argv[2] == "starting":
            time.sleep(600)
        return cls()

    def stop(self):
        pass

DevCluster.start = Sleeping.start
folder = Path(sys.argv[1])
machine = Machine(machine_id="m0", rack_id="r", slots=(1,))
cluster = Cluster(name="one", machines=(machine,), devices={"gpu": DeviceType(name="gpu", emulated=True)})
with running_engine("yarn", cluster, RunFolder(folder.parent), Console()):
    time.sleep(600)
"""


@pytest.fixture
def identity():
    value = new_identity()
    yield value
    kill_marked({MARK: value})


def gone_within(identity: str, limit_s: float) -> bool:
    deadline_s = time.monotonic() + limit_s
    while find_marked({MARK: identity}) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return find_marked({MARK: identity}) == ()


@pytest.mark.parametrize("moment", ["starting", "running"])
def test_daemons_end_with_killed_driver(tmp_path: Path, moment: str):
    (tmp_path / "hadoop").mkdir()
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "hadoop"), moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        identity = driver.stdout.readline().strip()
        try:
            assert len(find_marked({MARK: identity})) == 1
            driver.kill()
            assert gone_within(identity, 60)
        finally:
            driver.kill()
            kill_marked({MARK: identity})


def old_run(out: Path, identity: str) -> Layout:
    """Make a run whose driver was killed and one of whose daemons lives."""
    layout = Layout(out / "hadoop")
    (layout.root / "nodes").mkdir(parents=True)
    (out / "rm.yaml").touch()
    daemon = spawn(["sleep", "600"], {**os.environ, MARK: identity}, layout.root, layout.root / "log")
    deployment = Deployment(
        identity=identity,
        spec=ClusterSpec(gpus=(1,)),
        addresses=Addresses(network="127.18.52", first_port=20000, nodes=1),
        layout=layout,
        programs=Programs(java=Path("/java/bin/java"), jars=Path("/jars")),
    )
    write_state(deployment, {NAMENODE: daemon})
    return layout


def test_daemons_of_old_run_end_before_folder_is_removed(tmp_path: Path, identity: str):
    old_run(tmp_path / "out", identity)
    with fresh_folder(tmp_path / "out"):
        assert find_marked({MARK: identity}) == ()
        assert {path.name for path in (tmp_path / "out").iterdir()} == {"lock"}


def test_folder_with_unknown_daemons_is_kept(tmp_path: Path, identity: str):
    layout = old_run(tmp_path / "out", identity)
    layout.state.write_text("{}")
    with pytest.raises(InputError, match="unreadable"), fresh_folder(tmp_path / "out"):
        pass
    assert layout.state.exists()
    assert len(find_marked({MARK: identity})) == 1
