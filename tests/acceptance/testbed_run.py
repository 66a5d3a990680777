"""The testbed run as its user starts it: a process, watched from outside through the client library."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from submarine_client.connection import Connection
from themis.config.defaults import DEFAULT_POLICY
from themis.wire import themis_pb2 as pb

THEMIS = [sys.executable, "-m", "themis_cli.main"]
SUBMARINE = [sys.executable, "-m", "submarine_client.main"]


class TestbedRun:
    """`themis testbed run MIX` under way. `log` is what it printed."""

    __test__ = False

    def __init__(self, process: psutil.Popen, out: Path, log: Path) -> None:
        self.process, self.out, self.log = process, out, log

    @property
    def address(self) -> str:
        path = self.out / "state" / "address"
        until(lambda: path.exists() and path.read_text().strip() != "", "the ResourceManager listens")
        return path.read_text().strip()

    def report(self) -> dict:
        return json.loads((self.out / "report.json").read_text())

    def events(self) -> list[dict]:
        return [json.loads(line) for line in (self.out / "events.jsonl").read_text().splitlines()]

    def marked(self) -> set[int]:
        """Ids of all living processes of this run but the driver's own."""
        mine = str(self.out)
        found = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                folder = environment.get("THEMIS_APP_DIR", environment.get("THEMIS_JOB_DIR", ""))
                ours = folder.startswith(mine) or mine in " ".join(process.cmdline())
                if ours and process.pid != self.process.pid:
                    found.add(process.pid)
        return found

    def finish(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)


@contextlib.contextmanager
def started_testbed(mix: str, out: Path, policy: str = DEFAULT_POLICY) -> Iterator[TestbedRun]:
    log = out.parent / f"{out.name}.log"
    command = [*THEMIS, "testbed", "run", mix, "--policy", policy, "--out", str(out)]
    with log.open("wb") as file:
        process = psutil.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    run = TestbedRun(process, out, log)
    try:
        yield run
    finally:
        if process.is_running():
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(20)
        left = settle(run.marked)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"processes left behind: {left}\n{log.read_text()[-2000:]}"


def settle(look: Callable[[], set[int]], timeout_s: float = 30.0) -> set[int]:
    """What `look` still finds after a while."""
    end = time.monotonic() + timeout_s
    while (found := look()) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def until(condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)


def first_event(
    client: Connection, wanted: Callable[[pb.Event, dict], bool], timeout_s: float = 90.0
) -> tuple[str, dict]:
    """The app and the detail of the first event that is wanted, waiting for it."""
    end = time.monotonic() + timeout_s
    after = 0
    while time.monotonic() < end:
        for event in client.watch(after_sequence=after, follow=False):
            after = event.sequence
            detail = json.loads(event.detail)
            if wanted(event, detail):
                return event.app_id, detail
        time.sleep(0.2)
    raise AssertionError("the event did not come")
