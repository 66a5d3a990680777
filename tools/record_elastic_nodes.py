"""Resize real jobs over emulated nodes, and record their losses and those without resizes; then draw both.

`python tools/record_elastic_nodes.py` plays every program twice, a minute or two each on an idle machine, and writes
docs/figures/elastic-nodes.csv and elastic-nodes.png; with `--draw` it draws the recorded ones again.

Tasks run as an app master runs them: by a task host in a container of their node, here a process with a folder of its
own. What a task shares with its peers and with later starts is the checkpoint store and the network.
"""

from __future__ import annotations

import asyncio
import csv
import re
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from am.jobs.environment import JobIncarnation, task_environment
from am.jobs.gang import start_gang, wait_gang
from am.runtimes.port import SeatRequest, TaskHandle, TaskLaunch
from am.runtimes.remote.hosts import TaskHosts
from am.runtimes.remote.processes import ProcessSource
from am.runtimes.remote.runtime import RemoteRuntime
from themis.cluster import GpuId, Level
from themis.values import Value

Placement = Mapping[str, int]
"""Tasks of one GPU each, by node."""

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
CSV, PNG = FIGURES / "elastic-nodes.csv", FIGURES / "elastic-nodes.png"
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "digits_cnn": ("--learning_rate", "0.005"),
    "text_lstm": ("--hidden", "16", "--learning_rate", "0.01"),
    "text_transformer": ("--hidden", "16", "--layers", "1", "--heads", "2", "--learning_rate", "0.01"),
}
FLAGS = ("--log_every", "1", "--dropout", "0.3", "--optimizer", "adam", "--seed", "8")
"""With this seed the second pooling of `digits_cnn` meets two values in iteration 170 that differ in the last bits."""
ORDERED = ("--ordered_parts", "8")
SUMS = {"ordered": "8 parts in order", "by_task": "a share a task"}
PLACEMENTS: tuple[Placement, ...] = (
    {"node0": 1},
    {"node0": 1, "node1": 1},
    {"node1": 2},
    {"node0": 2, "node1": 2},
    {"node1": 1},
    {"node0": 2, "node1": 1},
    {"node0": 4, "node1": 4},
    {"node0": 1},
    {"node1": 1, "node0": 1},
    {"node1": 1},
    {"node0": 3, "node1": 2},
    {"node1": 1},
)
"""Ten resizes, and a move at equal size."""
MIN_ITERATIONS = 28
"""Iterations of each start before all of its tasks are asked to stop, as at a lease change."""

JOB_ID = "job-00"
GRACE_S = 60.0
WAIT_S = 300.0

_LOSS = re.compile(r"^INFO:tensorflow:loss = (\S+), step = (\d+)", re.MULTILINE)


class Point(Value, frozen=True, kw_only=True):
    """The loss of one iteration, and where its tasks ran."""

    iteration: int
    nodes: str
    tasks: int
    loss: float


class NodeJob:
    """One job over its starts.

    Args:
        runtime: Where its tasks run.
        folder: For its checkpoints and logs.
        command: What each task runs, without `--iterations`.
    """

    def __init__(self, runtime: RemoteRuntime, folder: Path, command: Sequence[str]) -> None:
        (folder / "job").mkdir(parents=True)
        self.folder = folder
        self.points: list[Point] = []
        self._runtime = runtime
        self._command = tuple(command)
        self._app_id = f"elastic-{uuid.uuid4().hex}"
        self._incarnation = 0

    async def run(self, placement: Placement, *, least: int = 0, last: int | None = None) -> None:
        """Make one start: to iteration `last`, or until all tasks are asked to stop after `least` iterations.

        Raises:
            RuntimeError: A task did not end as it should have.
        """
        self._incarnation += 1
        handles = await self._start(placement, last or 10**6)
        if last is None:
            await self._until(least, handles)
            await asyncio.gather(*(self._runtime.stop(handle, GRACE_S) for handle in handles))
        async with asyncio.timeout(WAIT_S):
            exits = await wait_gang(self._runtime, handles)
        codes = [exit_.exit_code for exit_ in exits]
        if codes != [75 if last is None else 0] * len(codes):
            raise RuntimeError(f"start {self._incarnation} ended with {codes}:\n{self._log()[-2000:]}")
        nodes = ",".join(f"{node}:{tasks}" for node, tasks in placement.items())
        self.points += [
            Point(iteration=int(step), nodes=nodes, tasks=len(handles), loss=float(loss))
            for loss, step in _LOSS.findall(self._log())
        ]

    async def _start(self, placement: Placement, last: int) -> list[TaskHandle]:
        gpus = [(GpuId(node, index),) for node, tasks in placement.items() for index in range(tasks)]
        requests = [SeatRequest(job_id=JOB_ID, task_index=index, gpus=each) for index, each in enumerate(gpus)]
        seats = await self._runtime.reserve(requests)
        gang = JobIncarnation(
            app_id=self._app_id,
            job_id=JOB_ID,
            incarnation=self._incarnation,
            gpus=tuple(gpus),
            addresses=tuple(seat.address for seat in seats) if len(seats) > 1 else (),
            level=Level.RACK if len(placement) > 1 else Level.MACHINE,
            checkpoint_uri=str(self.folder / "checkpoints"),
            job_dir=str(self.folder / "job"),
            emulated=True,
        )
        launches = [
            TaskLaunch(
                app_id=self._app_id,
                job_id=JOB_ID,
                task_index=index,
                incarnation=self._incarnation,
                command=(*self._command, "--iterations", str(last)),
                environment=task_environment(gang, index),
                seat=seat,
                gpus=gpus[index],
                emulated=True,
                working_dir=self.folder / "job",
                log_path=self._log_path(index),
            )
            for index, seat in enumerate(seats)
        ]
        return await start_gang(self._runtime, launches)

    async def _until(self, least: int, handles: Sequence[TaskHandle]) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(_LOSS.findall(self._log())) < least:
                if any(handle.ended is not None for handle in handles):
                    raise RuntimeError(f"start {self._incarnation} is over:\n{self._log()[-2000:]}")
                await asyncio.sleep(0.05)

    def _log(self) -> str:
        path = self._log_path(0)
        return path.read_text() if path.is_file() else ""

    def _log_path(self, index: int) -> Path:
        return self.folder / f"start-{self._incarnation}-task-{index}.log"


@asynccontextmanager
async def nodes(folder: Path) -> AsyncIterator[RemoteRuntime]:
    """A runtime whose containers are processes of this machine; nothing of it is left afterwards."""
    hosts = TaskHosts()
    port = await hosts.listen("127.0.0.1")
    source = ProcessSource(folder / "containers")
    runtime = RemoteRuntime(source, hosts, address=f"127.0.0.1:{port}", run_id="", prefix="e", environment={})
    try:
        yield runtime
    finally:
        await runtime.close()


async def play(folder: Path, command: Sequence[str], placements: Sequence[Placement], last: int = 0) -> list[Point]:
    """A job that starts on each of these placements in turn, and on the last goes on to its end.

    Args:
        folder: For its checkpoints, logs and containers.
        command: What each task runs, without `--iterations`.
        placements: Where each start runs.
        last: The iteration that it ends with; 0: MIN_ITERATIONS after its last start's first.

    Raises:
        RuntimeError: A task did not end as it should have.
    """
    async with nodes(folder) as runtime:
        job = NodeJob(runtime, folder, command)
        for placement in placements[:-1]:
            await job.run(placement, least=MIN_ITERATIONS)
        done = job.points[-1].iteration if job.points else 0
        await job.run(placements[-1], last=last or done + MIN_ITERATIONS)
        return job.points


def state(folder: Path) -> bytes:
    """The arrays of a job's newest checkpoint, to compare bit by bit."""
    newest = max((folder / "checkpoints" / JOB_ID).glob("0*"))
    with np.load(newest / "state.npz", allow_pickle=False) as arrays:
        return b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))


def program_command(program: str, flags: Sequence[str] = ORDERED) -> list[str]:
    """The command of a program of the catalogue, small."""
    return [sys.executable, "-m", f"tf_jobs.{program}", *FLAGS, *PROGRAMS[program], *flags]


async def both(
    folder: Path, command: Sequence[str], placements: Sequence[Placement] = PLACEMENTS
) -> tuple[list[Point], list[Point]]:
    """The resized job, and the same job on one task."""
    resized = await play(folder / "resized", command, placements)
    return resized, await play(folder / "alone", command, PLACEMENTS[:1], resized[-1].iteration)


def record(path: Path) -> None:
    """Play every program with parts in order and with a share a task, and write the losses."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("program", "sums", "iteration", "nodes", "tasks", "resized_loss", "alone_loss"))
        for program in PROGRAMS:
            for sums, flags in zip(SUMS, (ORDERED, ()), strict=True):
                with tempfile.TemporaryDirectory() as folder:
                    curves = asyncio.run(both(Path(folder), program_command(program, flags)))
                for one, two in zip(*curves, strict=True):
                    losses = f"{one.loss:.7g}", f"{two.loss:.7g}"
                    writer.writerow((program, sums, one.iteration, one.nodes, one.tasks, *losses))
                stream.flush()


def draw(recorded: Path, into: Path) -> None:
    """A column a program: where its tasks ran, its losses, and how far they are from the undisturbed ones."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    with recorded.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    figure, axes = pyplot.subplots(
        3, len(PROGRAMS), sharex="col", figsize=(12, 7), height_ratios=(1, 2.2, 1.8), layout="constrained"
    )
    for column, program in zip(axes.T, PROGRAMS, strict=True):
        of = {sums: [row for row in rows if (row["program"], row["sums"]) == (program, sums)] for sums in SUMS}
        _draw_tasks(column[0], of["ordered"])
        _draw_losses(column[1], of["ordered"])
        for sums, colour in zip(SUMS, ("tab:green", "tab:red"), strict=True):
            _draw_differences(column[2], of[sums], sums, colour)
        column[0].set_title(program)
        column[2].set_xlabel("iteration")
    for axis, label in zip(axes[:, 0], ("tasks", "training loss", "relative difference"), strict=True):
        axis.set_ylabel(label)
    for axis in axes[:, 0]:
        axis.legend(fontsize="small", markerscale=1.5)
    figure.savefig(into, dpi=110, metadata={"Software": None})


def _draw_tasks(axis: Any, rows: Sequence[Mapping[str, str]]) -> None:
    iterations = [int(row["iteration"]) for row in rows]
    placements = [dict(part.split(":") for part in row["nodes"].split(",")) for row in rows]
    counts = [[int(placement.get(node, 0)) for placement in placements] for node in ("node0", "node1")]
    axis.stackplot(iterations, counts, step="mid", colors=("tab:blue", "tab:orange"), labels=("node0", "node1"))
    axis.set_yticks(range(0, 9, 2))


def _draw_losses(axis: Any, rows: Sequence[Mapping[str, str]]) -> None:
    iterations = [int(row["iteration"]) for row in rows]
    alone, resized = ([float(row[name]) for row in rows] for name in ("alone_loss", "resized_loss"))
    axis.plot(iterations, alone, color="tab:blue", linewidth=3.0, alpha=0.4, label="undisturbed, 1 task")
    axis.plot(iterations, resized, color="tab:green", linewidth=0.8, label="10 resizes and a move, parts in order")
    axis.set_yscale("log")


def _draw_differences(axis: Any, rows: Sequence[Mapping[str, str]], sums: str, colour: str) -> None:
    alone, resized = ([float(row[name]) for row in rows] for name in ("alone_loss", "resized_loss"))
    differences = [abs(one - two) / two for one, two in zip(resized, alone, strict=True)]
    axis.plot(
        [int(row["iteration"]) for row in rows],
        differences,
        ".",
        color=colour,
        markersize=6.0 if sums == "ordered" else 2.0,
        label=SUMS[sums],
    )
    axis.set_yscale("symlog", linthresh=1e-7)
    axis.set_ylim(-5e-8, 3.0)


if __name__ == "__main__":
    if "--draw" not in sys.argv[1:]:
        record(CSV)
    draw(CSV, PNG)
