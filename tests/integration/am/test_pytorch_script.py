"""The script of docs/tutorials/pytorch.md with a real PyTorch: stops, sizes and torchrun.

PyTorch is no dependency of the project. These tests use the first interpreter of `THEMIS_TORCH_PYTHON`, this one and
`/usr/bin/python3` that can import torch and scikit-learn, and are skipped if there is none.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from documents import block

from am.jobs.environment import JobIncarnation, task_environment
from am.runtimes.local import free_addresses
from am.runtimes.task_process import inherited_environment
from themis.cluster import GpuId, Level

VARIABLE = "THEMIS_TORCH_PYTHON"
LINE = re.compile(r"step=(\d+) loss=([0-9.]+)")
LIMIT_S = 120
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@functools.cache
def torch_python() -> str:
    tried = [path for path in (os.environ.get(VARIABLE), sys.executable, "/usr/bin/python3") if path]
    for python in tried:
        found = subprocess.run([python, "-c", "import torch.distributed, sklearn"], capture_output=True, check=False)
        if found.returncode == 0:
            return python
    pytest.skip(f"needs PyTorch and scikit-learn; none in {', '.join(tried)}; name an interpreter in {VARIABLE}")


def start(folder: Path, command: list[str], *, tasks: int, gpus_per_task: int = 1) -> list[subprocess.Popen[str]]:
    """Start a gang as an app master does."""
    gpus = tuple(tuple(GpuId(f"m{task}", card) for card in range(gpus_per_task)) for task in range(tasks))
    gang = JobIncarnation(
        app_id="app-1", job_id="job-00", incarnation=1, gpus=gpus, level=Level.MACHINE, checkpoint_uri=str(folder),
        job_dir=str(folder), addresses=free_addresses(tasks), emulated=True, framework="pytorch",
        environment={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return [
        subprocess.Popen(
            [torch_python(), *command],
            env={**inherited_environment(os.environ), **task_environment(gang, task)},
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for task in range(tasks)
    ]


def outputs(gang: list[subprocess.Popen[str]], code: int = 0) -> list[str]:
    try:
        texts = [task.communicate(timeout=LIMIT_S)[0] for task in gang]
    finally:
        for task in gang:
            task.kill()
    assert [task.returncode for task in gang] == [code] * len(gang), texts
    return texts


def curve(text: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in LINE.findall(text)}


@pytest.fixture
def script(tmp_path) -> str:
    torch_python()
    path = tmp_path / "train.py"
    path.write_text(block("docs/tutorials/pytorch.md", "file: train.py").body)
    return str(path)


def test_loss_curve_is_the_same_over_a_stop_and_a_resize(tmp_path, script):
    gang = start(tmp_path, [script, "1000000", str(tmp_path / "resized")], tasks=2)
    first_line = gang[0].stdout.readline()
    time.sleep(0.2)
    for task in gang:
        os.killpg(task.pid, signal.SIGTERM)
    before = curve(first_line + outputs(gang, code=75)[0])
    target = str(max(before) + 200)
    (after,) = outputs(start(tmp_path, [script, target, str(tmp_path / "resized")], tasks=1))
    (whole,) = outputs(start(tmp_path, [script, target, str(tmp_path / "whole")], tasks=1))
    resized = {**before, **curve(after)}
    assert min(curve(after)) > max(before), "it did not resume"
    assert resized == pytest.approx(curve(whole), abs=2e-3)


def test_torchrun_in_the_command_makes_a_process_for_each_card(tmp_path, script):
    # PyTorch 1.13 fails under Python 3.11 with the defaults of these two options.
    options = ["--redirects", "0:1,1:1", "--tee", "0:1,1:1"]
    command = ["-m", "torch.distributed.run", *options, script, "40", str(tmp_path / "checkpoints")]
    first, second = outputs(start(tmp_path, command, tasks=2, gpus_per_task=2))
    (alone,) = outputs(start(tmp_path, [script, "40", str(tmp_path / "alone")], tasks=1))
    assert curve(first) == pytest.approx(curve(alone), abs=2e-3)
    assert curve(second) == {}
