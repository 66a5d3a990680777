"""`themis devcluster` as docs/how-to/devcluster.md shows it: interruptions, failures; nothing is left running."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from documents import blocks, commands, missing
from waiting import wait_until

from themis.processes import find_marked
from themis_lab.devcluster.configuration import MARK

PAGE = "docs/how-to/devcluster.md"
# The newest feature of the ResourceManager that has a jar of its own, without which it ends.
NEEDED_JAR = "hadoop-yarn-server-timelineservice-*.jar"


@pytest.fixture
def environment(hadoop_programs):
    _, jars = hadoop_programs
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "THEMIS_HADOOP_JARS": str(jars)}


@pytest.fixture
def themis(environment, tmp_path):
    """Runs a command in an empty folder; whatever cluster it leaves there is stopped."""

    def run(line, exit_code=0):
        done = subprocess.run(
            line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == exit_code, f"$ {line}\n{done.stdout}\n{done.stderr}"
        return done

    yield run
    if (tmp_path / "out/devcluster/devcluster.json").exists():
        run("themis devcluster stop")


def identity(folder):
    """The mark of the cluster that is in a folder; None before it is written."""
    state = folder / "out/devcluster/devcluster.json"
    return json.loads(state.read_text())["identity"] if state.exists() else None


def listening(network):
    """Lines of the kernel's table of sockets that listen on a network 127.x.y.*."""
    first, second, third = map(int, network.split("."))
    wanted = re.compile(rf"\s*\d+: [0-9A-F]{{2}}{third:02X}{second:02X}{first:02X}:[0-9A-F]{{4}} \S+ 0A ")
    return [line for line in Path("/proc/net/tcp").read_text().splitlines() if wanted.match(line)]


def test_the_commands_of_the_page_do_what_it_shows(themis, tmp_path, cluster):
    """Beside the cluster of the other tests: two do not get in each other's way."""
    mark = network = None
    for console in blocks(PAGE, "console"):
        for command in commands(console):
            if "test-hadoop" in command.line:
                continue
            done = themis(command.line)
            mark, network = mark or identity(tmp_path), network or re.search(r"127\.\d+\.\d+", done.stderr)[0]
            line = missing(command.shown, done.stdout + done.stderr)
            assert line is None, f"shown, but not printed: {line}\n{done.stdout}\n{done.stderr}"
    assert find_marked({MARK: mark}) == ()
    assert listening(network) == []
    assert not (tmp_path / "out/devcluster").exists()
    assert cluster.is_ready()
    assert listening(cluster.deployment.addresses.network)


def test_start_refuses_while_a_cluster_runs(themis, tmp_path):
    themis("themis devcluster start --gpus 1")
    document = json.loads(themis("themis devcluster status --json").stdout)
    assert document["ready"]
    assert [node["gpus"] for node in document["nodes"]] == [1]
    refused = themis("themis devcluster start", exit_code=2)
    assert "a development cluster is in this folder already" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert json.loads(themis("themis devcluster status --json").stdout)["daemons"] == document["daemons"]
    # A daemon that is gone is seen, and does not keep `stop` from its work.
    os.kill(document["daemons"]["datanode"], signal.SIGKILL)
    wait_until(lambda: json.loads(themis_status(themis))["daemons"]["datanode"] is None)
    mark = identity(tmp_path)
    themis("themis devcluster stop --keep-logs")
    assert find_marked({MARK: mark}) == ()
    assert [path.name for path in (tmp_path / "out/devcluster").iterdir()] == ["logs"]
    themis("themis devcluster stop", exit_code=2)


def themis_status(themis):
    return themis("themis devcluster status --json; true").stdout


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        pytest.param(signal.SIGINT, "starting Hadoop", id="SIGINT-early"),
        pytest.param(signal.SIGTERM, "HDFS: ", id="SIGTERM-late"),
    ],
)
def test_an_interrupted_start_leaves_only_logs(themis, environment, tmp_path, number, moment):
    start = subprocess.Popen(
        ["themis", "devcluster", "start", "--gpus", "4,2"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    with start:
        for line in start.stderr:
            if line.startswith(moment):
                break
        mark = identity(tmp_path)
        assert mark
        assert wait_until(lambda: find_marked({MARK: mark}))
        # Nor does impatience change that: when it goes on it finds two signals.
        start.send_signal(signal.SIGSTOP)
        for each in (number, signal.SIGHUP):
            start.send_signal(each)
        start.send_signal(signal.SIGCONT)
        said = start.stderr.read()
    assert start.returncode == 3, said
    assert "themis: interrupted" in said
    assert "Traceback" not in said
    assert find_marked({MARK: mark}) == ()
    assert [path.name for path in (tmp_path / "out/devcluster").iterdir()] == ["logs"]


@pytest.mark.nightly
def test_a_failed_daemon_is_reported_with_the_end_of_its_log(themis, environment, tmp_path):
    jars = Path(environment["THEMIS_HADOOP_JARS"])
    (tmp_path / "jars").mkdir()
    for jar in jars.glob("*.jar"):
        if not jar.match(NEEDED_JAR):
            (tmp_path / "jars" / jar.name).symlink_to(jar)
    failed = themis(f"THEMIS_HADOOP_JARS={tmp_path}/jars themis devcluster start", exit_code=1)
    assert "a daemon ended: 'resourcemanager'; end of " in failed.stderr
    assert "TimelineCollectorManager" in failed.stderr
    assert "Traceback" not in failed.stderr
    logs = tmp_path / "out/devcluster/logs"
    assert [path.name for path in logs.parent.iterdir()] == ["logs"]
    # The same folder serves again.
    themis("themis devcluster start --gpus 1")
