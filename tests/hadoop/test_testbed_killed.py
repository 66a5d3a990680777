"""kill -9 of the testbed's driver, with real daemons: they end with it, and the next run finds its folder free."""

import os
import signal
import subprocess
import sys
import time

from documents import ROOT

from themis.processes import find_marked
from themis_lab.devcluster.configuration import MARK
from themis_lab.devcluster.state import read_state
from themis_lab.testbed.run_folder import fresh_folder

DRIVER = """
import sys, time
from pathlib import Path
from rich.console import Console
from themis_lab.testbed.engines import running_engine
from themis_lab.testbed.run_folder import RunFolder
from themis.cluster import Cluster, DeviceType, Machine

machine = Machine(machine_id="m0", rack_id="r", slots=(1,))
cluster = Cluster(name="one", machines=(machine,), devices={"gpu": DeviceType(name="gpu", emulated=True)})
with running_engine("yarn", cluster, RunFolder(Path(sys.argv[1])), Console(stderr=True)):
    print("ready", flush=True)
    time.sleep(600)
"""


def test_daemons_end_with_the_driver_and_their_folder_can_be_used_again(hadoop_programs, tmp_path):
    _, jars = hadoop_programs
    out = tmp_path / "out"
    out.mkdir()
    (out / "rm.yaml").touch()
    environment = {**os.environ, "THEMIS_HADOOP_JARS": str(jars), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(out)], env=environment, stdout=subprocess.PIPE) as driver:
        try:
            assert driver.stdout.readline() == b"ready\n"
            plan, daemons = read_state(out / "hadoop")
            assert len(daemons) == 4
            assert set(find_marked({MARK: plan.identity})) >= {daemon.pid for daemon in daemons.values()}
        finally:
            driver.send_signal(signal.SIGKILL)
    deadline_s = time.monotonic() + 60
    while find_marked({MARK: plan.identity}):
        assert time.monotonic() < deadline_s, "daemons outlive the driver"
        time.sleep(0.1)
    with fresh_folder(out):
        assert {path.name for path in out.iterdir()} == {"lock"}
