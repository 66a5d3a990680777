"""The apps of `bench resize`: one that is resized, and one that comes and goes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from themis.apps import AppSpec
from themis.config.group_file import GroupFile, build_app
from themis.config.loader import fit

ENDLESS = 1_000_000
_SOURCE = "an app of the benchmark"


class Program(StrEnum):
    """The program of the resized job."""

    REPLAY = "replay"
    DIGITS_DENSE = "digits_dense"


def resized_app(program: Program, gpus: int, uri: str) -> AppSpec:
    """One job of one to `gpus` tasks that never ends by itself and keeps its checkpoints at `uri`."""
    own: dict[Program, dict[str, Any]] = {
        Program.REPLAY: {"arguments": {"serial_iteration_s": 0.1, "log_every": 1}, "checkpoint_every": 20},
        Program.DIGITS_DENSE: {"arguments": {"log_every": 20}, "checkpoint_every": 200},
    }
    group = {
        "name": "resized",
        "program": str(program),
        "tuner": {"name": "single"},
        "job": {"tasks": gpus, "min_tasks": 1, "gpus_per_task": 1, "iterations": ENDLESS},
        "hyper_parameters": [{"learning_rate": 0.01}],
        "resources": {"memory_mb": 2048, "vcores": 1},
        "checkpoint_uri": uri,
        "seed": 1,
        **own[program],
    }
    return build_app(fit(GroupFile, group, _SOURCE), _SOURCE)


def other_app() -> AppSpec:
    """A replayed job of one task, which leaves the resized job one GPU less."""
    group = {
        "name": "other",
        "program": "replay",
        "arguments": {"serial_iteration_s": 0.1, "log_every": 10},
        "tuner": {"name": "single"},
        "job": {"tasks": 1, "gpus_per_task": 1, "iterations": ENDLESS},
        "hyper_parameters": [{"learning_rate": 0.01}],
        "resources": {"memory_mb": 256, "vcores": 1},
        "estimate": {"serial_iteration_s": 0.1},
        "checkpoint_every": 50,
        "seed": 1,
    }
    return build_app(fit(GroupFile, group, _SOURCE), _SOURCE)
