"""Run `bench resize`: a job grows and shrinks as another app comes and goes, in turn with bare processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path

from themis.errors import InputError
from themis.values import Value
from themis_lab.bench.resize_apps import Program, other_app, resized_app
from themis_lab.bench.resize_bare import BareStart, bare_start
from themis_lab.bench.resize_phases import Change, changes
from themis_lab.bench.resize_world import GPUS, World, local_world, yarn_world
from themis_lab.testbed.events import Event
from themis_lab.testbed.spans import is_final

STEP_LIMIT_S = 300.0
"""Time limit of each step of a round, on a busy machine."""
MAX_REPEATS = 1000
_JOB = "job-00"


class EngineName(StrEnum):
    """The engine of the benchmark."""

    LOCAL = "local"
    YARN = "yarn"


class ResizeBenchPlan(Value, frozen=True, kw_only=True):
    """The plan of the benchmark.

    Attributes:
        engine: The engine.
        program: The program that is resized.
        repeat: Number of rounds. In each the job shrinks once and grows once, and bare processes start once.
        heartbeat_s: Heartbeat interval of app masters to YARN, and of the nodes of a cluster that the benchmark starts.
    """

    engine: EngineName = EngineName.LOCAL
    program: Program = Program.DIGITS_DENSE
    repeat: int = 5
    heartbeat_s: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.repeat <= MAX_REPEATS:
            raise InputError(f"--repeat must be 1 to {MAX_REPEATS}", value=self.repeat)
        if not 0.05 <= self.heartbeat_s <= 60.0:
            raise InputError("--heartbeat-s must be 0.05 to 60", value=self.heartbeat_s)


class Round(Value, frozen=True, kw_only=True):
    """The results of one round, and the machine's load (1 min) after it."""

    changes: tuple[Change, ...]
    bare: BareStart
    load_1min: float


def run_rounds(plan: ResizeBenchPlan) -> Iterator[str | Round]:
    """Yield a message before each round, and then its results.

    Raises:
        ThemisError: The ResourceManager, the cluster or a job failed, or a step took too long.
    """
    with tempfile.TemporaryDirectory(prefix="themis-bench-") as name:
        yield f"starting a ResourceManager, engine {plan.engine}"
        with _world(plan, Path(name)) as world:
            for number in range(1, plan.repeat + 1):
                yield f"round {number} of {plan.repeat}"
                yield _round(plan, world, number)


def _world(plan: ResizeBenchPlan, folder: Path) -> AbstractContextManager[World]:
    return local_world(folder) if plan.engine is EngineName.LOCAL else yarn_world(folder, plan.heartbeat_s)


def _round(plan: ResizeBenchPlan, world: World, number: int) -> Round:
    """The job gets both GPUs, gives one to another app, gets it back, and ends. Then the bare processes start."""
    uri = f"{world.storage}/checkpoints-{number}"
    resized = world.client.submit(resized_app(plan.program, GPUS, uri))
    _wait_for_gang(world, resized, GPUS)
    world.wait("a checkpoint is there", STEP_LIMIT_S, lambda events: _saved(events, resized))
    other = world.client.submit(other_app())
    _wait_for_gang(world, resized, GPUS - 1)
    world.client.kill(other, "the benchmark goes on")
    _wait_for_gang(world, resized, GPUS)
    world.client.kill(resized, "the benchmark goes on")
    world.wait("both apps have ended", STEP_LIMIT_S, lambda events: _ended(events, resized) and _ended(events, other))
    found = changes(world.events(), resized)
    bare = bare_start(
        uri,
        _JOB,
        tasks=GPUS,
        tensorflow=plan.program is Program.DIGITS_DENSE,
        environment=world.environment,
    )
    return Round(changes=tuple(found), bare=bare, load_1min=os.getloadavg()[0])


def _wait_for_gang(world: World, app_id: str, gpus: int) -> None:
    world.wait(f"{app_id} trains on {gpus} GPUs", STEP_LIMIT_S, lambda events: _trains_on(events, app_id) == gpus)


def _trains_on(events: Sequence[Event], app_id: str) -> int:
    """GPUs of the job's newest incarnation after its first step; 0 before."""
    held = trains = 0
    for event in events:
        if event.app_id != app_id:
            continue
        if event.kind == "tasks_started":
            held, trains = len(event.detail["gpus"]), 0
        elif event.kind == "first_step":
            trains = held
        elif event.kind == "tasks_ended":
            held = trains = 0
    return trains


def _saved(events: Sequence[Event], app_id: str) -> bool:
    return any(event.kind == "checkpoint" and event.app_id == app_id for event in events)


def _ended(events: Sequence[Event], app_id: str) -> bool:
    return any(event.app_id == app_id and is_final(event) for event in events)
