"""The lower bound of a restart: processes that only start, import TensorFlow and restore a checkpoint, timed.

Run as a program, this module is one such process. It prints its own times as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tf_jobs.process_age import process_age_s
from themis.errors import ThemisError
from themis.python_programs import module_command
from themis.values import Value

LIMIT_S = 120.0
NOTHING = "nothing"
"""Imported instead of TensorFlow for a replayed job, which imports none."""


class BareStart(Value, frozen=True, kw_only=True):
    """`tasks` bare processes at once: seconds until the last is done, and its parts."""

    total_s: float
    seconds: Mapping[str, float]
    tasks: int


def bare_start(uri: str, job_id: str, *, tasks: int, tensorflow: bool, environment: Mapping[str, str]) -> BareStart:
    """Start `tasks` processes at once, as a gang does, and wait for all.

    Args:
        uri: Location of the checkpoints.
        job_id: The job whose newest checkpoint is restored.
        tasks: Number of processes.
        tensorflow: Whether they import TensorFlow.
        environment: Additional variables for them.

    Raises:
        ThemisError: A process failed; its output is the remedy.
    """
    with tempfile.TemporaryDirectory(prefix="themis-bench-") as folder:
        begun_s = time.perf_counter()
        started = [
            subprocess.Popen(
                module_command(__name__, uri, job_id, f"{folder}/{index}", "tf" if tensorflow else NOTHING),
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index in range(tasks)
        ]
        try:
            lines = [_printed_times(process) for process in started]
            total_s = time.perf_counter() - begun_s
            for process in started:
                _check(process)
        finally:
            for process in started:
                process.kill()
                process.communicate()
    slowest = max(lines, key=lambda seconds: sum(seconds.values()))
    return BareStart(total_s=total_s, seconds=slowest, tasks=tasks)


def _printed_times(process: subprocess.Popen[str]) -> dict[str, float]:
    """Read the times that a process prints after restoring. The process then exits, unlike a training job."""
    assert process.stdout is not None
    line = process.stdout.readline()
    return {str(name): float(seconds) for name, seconds in json.loads(line).items()} if line else {}


def _check(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate(timeout=LIMIT_S)
    if process.returncode != 0:
        raise ThemisError("a bare process failed", value=process.returncode, remedy=said.strip()[-500:])


def main(uri: str, job_id: str, folder: str, framework: str) -> None:
    """Import and restore, then print the time of each."""
    process_s = process_age_s()
    if framework != NOTHING:
        from tf_jobs.tensorflow_setup import load_tensorflow

        load_tensorflow()
    import_s = process_age_s() - process_s
    begun_s = time.monotonic()
    from am.checkpoints.uri import open_store

    store = open_store(uri)
    if store.fetch_latest(job_id, Path(folder)) is None:
        raise ThemisError("no checkpoint", value=f"{uri}/{job_id}")
    _read_arrays(Path(folder))
    restore_s = time.monotonic() - begun_s
    sys.stdout.write(json.dumps({"process": process_s, "import": import_s, "restore": restore_s}) + "\n")
    sys.stdout.flush()
    # Exit as our programs do: tearing TensorFlow down takes a while.
    os._exit(0)


def _read_arrays(folder: Path) -> None:
    for path in sorted(folder.glob("*.npz")):
        import numpy as np

        with np.load(path, allow_pickle=False) as arrays:
            for name in arrays.files:
                arrays[name].sum()


if __name__ == "__main__":
    main(*sys.argv[1:])
