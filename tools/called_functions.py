"""A pytest plugin that records which test files call which functions, and how long each file takes.

`CALLS_FILE=PATH python -m pytest -p called_functions ..` writes, for each test file, its seconds and the functions of
`CALLS_IN` (packages, separated by commas) that ran in the process of the tests, each as its file and its first line.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_ROOT = Path.cwd()
_PREFIXES = tuple(f"{_ROOT / package}{os.sep}" for package in os.environ.get("CALLS_IN", "").split(",") if package)


class _Recorder:
    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.called: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self._now: set[tuple[str, int]] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        # By file, not by test: the first test of a file runs the fixtures that its others share.
        self._now = self.called[item.nodeid.partition("::")[0]]
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(_PREFIXES):
            self._now.add((code.co_filename, code.co_firstlineno))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        found = {
            test: {
                "seconds": self.seconds[test],
                "calls": sorted((str(Path(name).relative_to(_ROOT)), line) for name, line in called),
            }
            for test, called in self.called.items()
        }
        Path(os.environ["CALLS_FILE"]).write_text(json.dumps(found), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder."""
    config.pluginmanager.register(_Recorder())
