"""A pytest plugin that tries mutants in forks of one session, so that the tests are imported and collected once.

A first fork runs all tests without a mutant, and records which functions each of them calls. The fork of a mutant
replaces the code of the changed function and runs the tests that call it, until one fails: those whose file names the
module first, then the quickest files. A test that fails without a mutant decides nothing.

`MUTANTS` is a JSON file: a list of mutants, each with its `path`, the `line` of the change, and the mutated `source`.
`MUTANTS_RESULTS` gets one JSON line for each, in their order: its result, its seconds, and the test that failed.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import os
import select
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

KILLED, TIMED_OUT, SURVIVED, UNDECIDED = "killed", "time out", "SURVIVED", "undecided"
"""`UNDECIDED`: no test calls the function in this process, or the change is outside functions."""

_ALL_LIMIT_S = 3_600.0
_ROOT = Path.cwd()
_PACKAGES = (f"{_ROOT / 'am'}{os.sep}", f"{_ROOT / 'rm_plugin'}{os.sep}")

Function = tuple[str, int]
"""The file and the first line of a function's code."""


class _Forks:
    def __init__(self) -> None:
        self._failed: list[str] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        baseline = _in_fork(lambda: self._baseline(session.items), _ALL_LIMIT_S)
        if baseline is None:
            raise pytest.UsageError(f"the tests did not end in {_ALL_LIMIT_S:g} s without a mutant")
        with Path(os.environ["MUTANTS_RESULTS"]).open("a", encoding="utf-8", buffering=1) as results:
            for mutant in json.loads(Path(os.environ["MUTANTS"]).read_text(encoding="utf-8")):
                begun_s = time.monotonic()
                result, test = self._tried(session.items, baseline, mutant)
                found = {"result": result, "seconds": time.monotonic() - begun_s, "test": test}
                results.write(f"{json.dumps(found)}\n")
        return True

    def _baseline(self, items: Sequence[pytest.Item]) -> dict[str, Any]:
        """Run all tests. Returns the functions and the seconds of each, and those that failed."""
        calls: dict[str, set[Function]] = {item.nodeid: set() for item in items}

        def before(item: pytest.Item) -> None:
            called = calls[item.nodeid]

            def trace(frame: FrameType, _event: str, _argument: object) -> None:
                if frame.f_code.co_filename.startswith(_PACKAGES):
                    called.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

            threading.settrace(trace)
            sys.settrace(trace)

        for _ in self._run(items, before):
            sys.settrace(None)
            threading.settrace(None)
        calls_of = {test: sorted(called) for test, called in calls.items()}
        return {"calls": calls_of, "seconds": self._seconds, "failed": self._failed}

    def _run(self, items: Sequence[pytest.Item], before: Callable[[pytest.Item], None] | None = None) -> Iterator[None]:
        for item, following in zip(items, [*items[1:], None], strict=True):
            if before is not None:
                before(item)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield

    def _failure(self, items: Sequence[pytest.Item]) -> list[str]:
        """Run tests until one fails. Returns that test, or nothing."""
        for _ in self._run(items):
            if self._failed:
                break
        return self._failed[:1]

    def _tried(self, items: Sequence[pytest.Item], baseline: dict[str, Any], mutant: dict[str, Any]) -> tuple[str, str]:
        path, line = _ROOT / mutant["path"], mutant["line"]
        function = _function_around(path, line)
        near = [item for item in items if [*function] in baseline["calls"][item.nodeid]] if function else []
        shared = {item.path for item in near if "scope=" in item.path.read_text(encoding="utf-8")}
        # The first test of a file also runs the fixtures that its others share.
        near += [item for item in items if item.path in shared and item not in near]
        near = [item for item in near if item.nodeid not in baseline["failed"]]
        code = compile(mutant["source"], str(path), "exec", dont_inherit=True)
        if not near or not function or not _functions(function):
            return UNDECIDED, ""
        seconds: defaultdict[Path, float] = defaultdict(float)
        for item in near:
            seconds[item.path] += baseline["seconds"].get(item.nodeid, 0.0)
        near.sort(key=lambda item: (path.stem not in item.path.stem, seconds[item.path], item.path))

        def work() -> list[str]:
            _replace(function, code)
            return self._failure(near)

        failed = _in_fork(work, float(os.environ["MUTANTS_LIMIT_S"]))
        if failed is None:
            return TIMED_OUT, ""
        if not failed:
            return SURVIVED, ""
        again = [item for item in near if item.nodeid == failed[0]]
        is_flaky = _in_fork(lambda: self._failure(again), _ALL_LIMIT_S) != []
        return (UNDECIDED if is_flaky else KILLED), failed[0]


def _function_around(path: Path, line: int) -> Function | None:
    """Return the innermost function whose body has a line, by the first line of its code, decorators included."""
    found = [
        min([node.lineno, *(each.lineno for each in node.decorator_list)])
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body[0].lineno <= line <= (node.end_lineno or 0)
    ]
    return (str(path), max(found)) if found else None


def _functions(inner: Function) -> list[FunctionType]:
    """Return the function objects with this code in them, at any depth."""

    def has(code: CodeType) -> bool:
        return code.co_firstlineno == inner[1] or any(
            isinstance(each, CodeType) and has(each) for each in code.co_consts
        )

    # The collector finds functions below decorators, properties and partial objects too.
    everything = (each for each in gc.get_objects() if isinstance(each, FunctionType))
    return [each for each in everything if each.__code__.co_filename == inner[0] and has(each.__code__)]


def _replace(inner: Function, module: CodeType) -> None:
    """Give functions the code that they have in another version of their module."""
    codes: dict[tuple[str, int], CodeType] = {}

    def collect(code: CodeType) -> None:
        for each in code.co_consts:
            if isinstance(each, CodeType):
                codes[each.co_qualname, each.co_firstlineno] = each
                collect(each)

    collect(module)
    for function in _functions(inner):
        function.__code__ = codes[function.__code__.co_qualname, function.__code__.co_firstlineno]


def _in_fork(work: Callable[[], Any], limit_s: float) -> Any:
    """Return what `work` returns in a fork, as JSON; None if it does not end in time or raises."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            with os.fdopen(writing, "wb") as stream:
                stream.write(json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    content, end_s = b"", time.monotonic() + limit_s
    try:
        while (left_s := end_s - time.monotonic()) > 0.0 and select.select([reading], [], [], left_s)[0]:
            if not (part := os.read(reading, 2**16)):
                break
            content += part
    finally:
        os.close(reading)
        # Also what a test has started and left behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    try:
        return json.loads(content)
    except ValueError:
        return None


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    config.pluginmanager.register(_Forks())
