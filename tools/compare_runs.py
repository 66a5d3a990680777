"""Simulate runs with this checkout and another one; report whether decisions are equal, and the CPU time of each.

`python tools/compare_runs.py OTHER [--repeats N] [--only NAME ..]`: OTHER is a checkout of another commit (`git
worktree add`) whose extensions are built. Each case is recorded by both; the recordings must be the same bytes, and so
must the documents be, but for seconds and memory. With `--repeats N` both then run the case N times in turn, and
the smallest CPU seconds are printed. The exit code is 1 if a case differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from themis_lab.bench.simulator_trace import write_trace
from themis_lab.simulator.workloads.gavel_sample import draw_jobs

HERE = Path(__file__).resolve().parents[1]

_OF_THE_MACHINE = ("wall_s", "peak_memory_mb", "overheads")
"""Keys of a run's document that differ from run to run."""

_STAGGERED = ("--lease-ends", "staggered")


def _cases(traces: Path) -> Mapping[str, tuple[str, ...]]:
    """Arguments of `themis simulate` by the name of a case. Random traces are written into the folder."""
    small = {name: ("--workload", name, "--cluster", "testbed") for name in ("w1-small", "w2-small")}
    cases = {name: (*_policy("themis"), *arguments) for name, arguments in small.items()}
    cases |= {f"{name}-staggered": (*arguments, *_STAGGERED) for name, arguments in list(cases.items())}
    others = ("fair_finish", "tiresias", "gandiva")
    cases |= {f"w1-small-{name}": (*_policy(name), *small["w1-small"]) for name in others}
    for jobs, gpus in ((120, 32), (900, 256)):
        trace, table = write_trace(draw_jobs(jobs, gpus, 1), traces, f"gavel-{jobs}")
        drawn = ("--workload", str(trace), "--throughputs", str(table), "--cluster", f"{gpus // 4}x4")
        cases |= {f"gavel-{jobs}-{name}": (*_policy(name), *drawn) for name in ("themis", "fair_finish")}
    large = {name: (*_policy("themis"), "--workload", name, "--cluster", "paper-168") for name in ("w1", "w2")}
    cases |= {"w1-15-apps": (*large["w1"], "--apps", "15"), "w2-8-apps": (*large["w2"], "--apps", "8")}
    return cases | {"w1": large["w1"]}


def _policy(name: str) -> tuple[str, ...]:
    return "--policy", name


def main(arguments: Sequence[str]) -> int:
    """Compare the cases that are named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=())
    options = parser.parse_args(arguments)
    if not (options.other / "themis_cli").is_dir():
        parser.error(f"{options.other} is no checkout of Themis; make one with: git worktree add")
    other, differ = options.other.resolve(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = _cases(folder)
        for unknown in set(options.only).difference(cases):
            parser.error(f"unknown case {unknown}; known are {', '.join(cases)}")
        for case in options.only or cases:
            same = _recorded(HERE, cases[case], folder) == _recorded(other, cases[case], folder)
            differ += not same
            before_s, after_s = _in_turn(other, cases[case], options.repeats)
            seconds = f", CPU {before_s:.2f} s there, {after_s:.2f} s here" if options.repeats else ""
            sys.stdout.write(f"{case}: {'the same' if same else 'DIFFERS'}{seconds}\n")
            sys.stdout.flush()
    return 1 if differ else 0


def _recorded(checkout: Path, arguments: Sequence[str], folder: Path) -> tuple[bytes, list[Mapping[str, Any]]]:
    """The recording of a run, and documents without what is of the machine: of that run and of one without recording.

    Without a recording, apps leave out every rho that no decision depends on.
    """
    recording = folder / "run.jsonl"
    printed = [_simulate(checkout, (*arguments, *more))[0] for more in (("--record", str(recording)), ())]
    documents = [json.loads(each) for each in printed]
    return recording.read_bytes(), [
        {key: value for key, value in document.items() if key not in _OF_THE_MACHINE} for document in documents
    ]


def _in_turn(other: Path, arguments: Sequence[str], repeats: int) -> tuple[float, float]:
    """The smallest CPU seconds of the other checkout and of this one."""
    took = [[_simulate(checkout, arguments)[1] for checkout in (other, HERE)] for _ in range(repeats)]
    return min([before_s for before_s, _ in took], default=0.0), min([after_s for _, after_s in took], default=0.0)


def _simulate(checkout: Path, arguments: Sequence[str]) -> tuple[bytes, float]:
    """The output of a run in a new process, and its CPU seconds from start to end."""
    command = (sys.executable, "-m", "themis_cli.main", "simulate", *arguments, "--json")
    before = os.times()
    ended = subprocess.run(
        command,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = os.times()
    spent_s = after.children_user + after.children_system - before.children_user - before.children_system
    return ended.stdout, spent_s


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
