"""Facts of a run that its events do not hold: how it ended, how long it took, and its resources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import field, to_builtins

from themis.errors import InputError
from themis.values import Value
from themis_lab.testbed.sampler import ProcessPeaks


class Ending(StrEnum):
    """Why a run ended."""

    ALL_ENDED = "every app ended"
    TIME_LIMIT = "the time limit was reached"
    INTERRUPTED = "interrupted"
    RM_FAILED = "the ResourceManager failed"


class RunFacts(Value, frozen=True, kw_only=True):
    """The facts of a run. `expected_apps` is the mix's number of apps; `left_over` are processes that did not end.

    `environment` comes from `themis_lab.testbed.environment`. It is empty for older runs.
    """

    mix: str
    policy: str
    seed: int
    time_scale: float
    expected_apps: int
    ending: Ending
    wall_s: float
    time_limit_s: float
    processes: ProcessPeaks = field(default_factory=ProcessPeaks)
    left_over: tuple[int, ...] = ()
    trouble: str = ""
    engine: str = "local"
    environment: Mapping[str, Any] = field(default_factory=dict)


def write_facts(path: Path, facts: RunFacts) -> None:
    """Write the facts of a run."""
    path.write_text(json.dumps(to_builtins(facts), indent=1) + "\n", encoding="utf-8")


def read_facts(path: Path) -> RunFacts:
    """The inverse of write_facts. Raises InputError for an invalid file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        content["ending"] = Ending(content["ending"])
        content["processes"] = ProcessPeaks(**content["processes"])
        content["left_over"] = tuple(content["left_over"])
        return RunFacts(**content)
    except OSError as error:
        raise InputError(f"cannot read {path}", value=error.strerror) from None
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} holds no facts of a run", value=str(error)) from None
