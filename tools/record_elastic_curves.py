"""Resize a real job ten times, and record its losses and those of the same job without resizes; then draw both.

`python tools/record_elastic_curves.py` plays both runs, which takes a minute or two, and writes
docs/figures/elastic.csv and elastic.png; with `--draw` it draws the recorded ones again.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from themis.values import Value

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
CSV, PNG = FIGURES / "elastic.csv", FIGURES / "elastic.png"
PROGRAM = "digits_lstm"
"""Smooth throughout. Where a rectifier or a maximum decides, the last bit of a sum may choose another branch."""
FLAGS = ("--log_every", "1", "--dropout", "0.3", "--optimizer", "adam", "--learning_rate", "0.005", "--seed", "7")
TASKS = (1, 2, 4, 2, 1, 3, 1, 2, 1, 2, 1)
MIN_ITERATIONS = 25
"""Iterations of each start before one of its tasks is stopped."""
WAIT_S = 240.0

_LOSS = re.compile(r"^INFO:tensorflow:loss = (\S+), step = (\d+)", re.MULTILINE)


class Point(Value, frozen=True, kw_only=True):
    """The loss of one iteration, and how many tasks did it."""

    iteration: int
    tasks: int
    loss: float


class Gang:
    """Starts the tasks of one job as on machines of their own: each start of each task has a folder of its own.

    Task i listens on 127.0.0.(i + 1).

    Args:
        folder: For checkpoints, logs and the tasks' folders.
        command: What each task runs, without its flags.
    """

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.incarnation = 0
        self._command = command
        self._tasks: list[subprocess.Popen[bytes]] = []

    def start(self, *flags: str, tasks: int = 1) -> list[subprocess.Popen[bytes]]:
        """Start the next incarnation."""
        self.incarnation += 1
        workers = [f"{host}:{_free_port(host)}" for host in (f"127.0.0.{i + 1}" for i in range(tasks))]
        self._tasks = [self._start_task(index, workers, flags) for index in range(tasks)]
        return self._tasks

    def log(self, index: int = 0) -> str:
        """What a task of this incarnation has written."""
        return self._log_path(index).read_text()

    def losses(self) -> dict[int, float]:
        """Loss by iteration, of this incarnation."""
        return {int(step): float(loss) for loss, step in _LOSS.findall(self.log())}

    def until_iterations(self, count: int) -> None:
        """Wait until this incarnation has done `count` iterations."""
        deadline_s = time.monotonic() + WAIT_S
        while len(self.losses()) < count:
            if time.monotonic() > deadline_s or any(task.poll() is not None for task in self._tasks):
                raise RuntimeError(f"no {count} iterations:\n{self.log()[-2000:]}")
            time.sleep(0.02)

    def finish(self) -> list[int]:
        """Exit codes of this incarnation's tasks; none of them is left."""
        try:
            return [task.wait(WAIT_S) for task in self._tasks]
        finally:
            for task in self._tasks:
                task.kill()
                task.wait()

    def _start_task(self, index: int, workers: list[str], flags: Sequence[str]) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "THEMIS_JOB_ID": "j",
            "THEMIS_TASK_INDEX": str(index),
            "THEMIS_TASKS": str(len(workers)),
            "THEMIS_INCARNATION": str(self.incarnation),
            "THEMIS_CHECKPOINT_URI": str(self.folder / "checkpoints"),
            "THEMIS_JOB_DIR": str(self.folder / f"start-{self.incarnation}-task-{index}"),
            "CUDA_VISIBLE_DEVICES": "",
        }
        if len(workers) > 1:
            task = {"type": "worker", "index": index}
            environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
        with self._log_path(index).open("w") as log:
            return subprocess.Popen([*self._command, *flags], cwd=self.folder, env=environment, stdout=log, stderr=log)

    def _log_path(self, index: int) -> Path:
        return self.folder / f"log.{self.incarnation}.{index}"


def play(gang: Gang, tasks_by_start: Sequence[int], flags: Sequence[str] = FLAGS) -> list[Point]:
    """Start a job with each of these numbers of tasks in turn.

    Each start but the last is stopped through one of its tasks.

    Raises:
        RuntimeError: A task did not end as it should have.
    """
    points: list[Point] = []
    for number, tasks in enumerate(tasks_by_start):
        last = number == len(tasks_by_start) - 1
        done = points[-1].iteration if points else 0
        running = gang.start("--iterations", str(done + MIN_ITERATIONS if last else 10**6), *flags, tasks=tasks)
        if not last:
            gang.until_iterations(MIN_ITERATIONS)
            running[number % tasks].send_signal(signal.SIGTERM)
        codes = gang.finish()
        if codes != [0 if last else 75] * tasks:
            raise RuntimeError(f"start {number + 1} ended with {codes}:\n{gang.log()[-2000:]}")
        points += [Point(iteration=i, tasks=tasks, loss=loss) for i, loss in gang.losses().items()]
    return points


def alone(gang: Gang, iterations: int, flags: Sequence[str] = FLAGS) -> list[Point]:
    """The same job on one task, without resizes.

    Raises:
        RuntimeError: It did not end as it should have.
    """
    gang.start("--iterations", str(iterations), *flags)
    if gang.finish() != [0]:
        raise RuntimeError(gang.log()[-2000:])
    return [Point(iteration=i, tasks=1, loss=loss) for i, loss in gang.losses().items()]


def program_command(program: str = PROGRAM) -> list[str]:
    """The command of a program of the catalogue."""
    return [sys.executable, "-m", f"tf_jobs.{program}"]


def record(path: Path) -> None:
    """Play both runs and write their losses."""
    with tempfile.TemporaryDirectory() as folder:
        resized = play(Gang(Path(folder) / "resized", program_command()), TASKS)
        same = alone(Gang(Path(folder) / "alone", program_command()), resized[-1].iteration)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("iteration", "tasks", "resized_loss", "alone_loss"))
        for one, two in zip(resized, same, strict=True):
            writer.writerow((one.iteration, one.tasks, f"{one.loss:.7g}", f"{two.loss:.7g}"))


def draw(recorded: Path, into: Path) -> None:
    """Three rows over the iterations: tasks, both losses, and their difference."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    with recorded.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    iterations = [int(row["iteration"]) for row in rows]
    tasks = [int(row["tasks"]) for row in rows]
    resized, same = ([float(row[name]) for row in rows] for name in ("resized_loss", "alone_loss"))
    figure, (top, middle, bottom) = pyplot.subplots(
        3, 1, sharex=True, figsize=(8, 7), height_ratios=(1, 2.5, 1.5), constrained_layout=True
    )
    top.step(iterations, tasks, where="mid", color="tab:gray")
    top.set_ylabel("tasks")
    top.set_yticks(sorted(set(tasks)))
    middle.plot(iterations, same, color="tab:blue", linewidth=3.0, alpha=0.4, label="undisturbed, 1 task")
    middle.plot(iterations, resized, color="tab:red", linewidth=0.8, label=f"{_resizes(tasks)} resizes")
    middle.set_ylabel("training loss")
    middle.set_yscale("log")
    middle.legend()
    differences = [1e6 * (one - two) for one, two in zip(resized, same, strict=True)]
    bottom.plot(iterations, differences, color="tab:red", linewidth=0.8)
    bottom.set_ylim(-2.0, 2.0)
    bottom.set_ylabel("difference, millionths")
    bottom.set_xlabel("iteration")
    _mark_resizes((top, middle, bottom), iterations, tasks)
    figure.savefig(into, dpi=110, metadata={"Software": None})


def _resizes(tasks: Sequence[int]) -> int:
    return sum(one != two for one, two in pairwise(tasks))


def _mark_resizes(axes: Sequence[Any], iterations: Sequence[int], tasks: Sequence[int]) -> None:
    for number, iteration in enumerate(iterations[1:], 1):
        if tasks[number] != tasks[number - 1]:
            for axis in axes:
                axis.axvline(iteration - 0.5, color="black", linewidth=0.5, linestyle=":")


def _free_port(host: str) -> int:
    """A port below those that the kernel assigns: no connection takes it before the task listens, seconds later."""
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            return port
    raise OSError(f"no free port on {host}")


if __name__ == "__main__":
    if "--draw" not in sys.argv[1:]:
        record(CSV)
    draw(CSV, PNG)
