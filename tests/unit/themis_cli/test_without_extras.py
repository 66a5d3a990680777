"""Without the packages of the extras, commands that need one exit 2 at once and name it."""

import subprocess
import sys

import pytest

HIDDEN = ("cvxpy", "docker", "ecos", "gurobipy", "hdfs", "jpype", "keras", "optuna", "sklearn", "tensorflow")
COMMAND = f"""
import sys

sys.modules.update(dict.fromkeys({HIDDEN}))
from themis_cli.main import main

sys.exit(main(sys.argv[1:]))
"""
TRAINS = "themis: apps train with TensorFlow, which is not installed: "


def run(cwd, *words):
    command = (sys.executable, "-c", COMMAND, *words)
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "error", "extra"),
    [
        ("testbed run small", f"{TRAINS}'digits-small'; ", "tf"),
        ("testbed --workload w1", f"{TRAINS}'digits-dense, digits-cnn'; ", "tf"),
        ("bench oef --peers 5", "themis: --peers needs cvxpy and ecos: ", "peers"),
        ("checkpoints list hdfs://h:1/x", "themis: HDFS needs the package `hdfs`: ", "hdfs"),
        ("auction --market three-apps --solver gurobi", "themis: the solver gurobi needs gurobipy: ", "gurobi"),
        ("rm start -c themis-yarn", "themis: the engine yarn needs Hadoop's clients: ", "hdfs,yarn"),
    ],
)
def test_command_that_needs_an_extra_exits_2_and_writes_nothing(words, error, extra, tmp_path):
    ended = run(tmp_path, *words.split())
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    assert ended.stderr.startswith(error)
    assert f"pip install 'themis-scheduler[{extra}]'" in ended.stderr
    assert not list(tmp_path.iterdir())
