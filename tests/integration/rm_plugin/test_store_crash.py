"""A ResourceManager killed at any instruction: its store holds each committed transaction whole, and no half."""

import random
import subprocess
import sys
import time

import pytest

from rm_plugin.service.store_sqlite import SqliteReader, SqliteStore

# Each transaction writes three events, an app and a lease that all carry one number.
WRITER = """
import sys
from pathlib import Path
from rm_plugin.service.store import StoredApp
from rm_plugin.service.store_sqlite import SqliteStore
from themis.cluster import GpuId
from themis.leases import Lease
from themis.lifecycle import AppState

store = SqliteStore(Path(sys.argv[1]))
number = int(store.meta("number") or 0)
while True:
    number += 1
    with store.transaction() as changes:
        for part in range(3):
            changes.append_event("client", float(number), app_id="app-1", detail={"number": number, "part": part})
        changes.put_app(StoredApp(app_id="app-1", state=AppState.RUNNING, attempt=number, submitted_at_s=0.0))
        changes.put_lease(Lease(lease_id=1, gpu=GpuId("m0", number), app_id="a", granted_at_s=0.0, expires_at_s=1.0))
        changes.put_meta("number", str(number))
    print(number, flush=True)
"""


def kill_after(path, seconds):
    """Run a writer, kill it with SIGKILL; the last number it said it had committed."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        said = writer.stdout.readline()
        time.sleep(seconds)
        writer.kill()
        said += writer.stdout.read()
    whole = said[: said.rindex("\n")]
    return int(whole.split("\n")[-1])


def check(store, at_least):
    """One number everywhere, no smaller than what was reported as committed."""
    number = int(store.meta("number"))
    assert number >= at_least
    [app] = store.apps()
    [lease] = store.leases()
    assert (app.attempt, lease.gpu.index) == (number, number)
    events = store.events()
    assert [event.sequence for event in events] == list(range(1, 3 * number + 1))
    assert [(event.detail["number"], event.detail["part"]) for event in events[-3:]] == [(number, p) for p in range(3)]
    return number


def test_killed_writers_leave_whole_transactions(tmp_path):
    chooser = random.Random(4)
    path = tmp_path / "state.db"
    before = 0
    for _ in range(6):
        said = kill_after(path, chooser.uniform(0.0, 0.12))
        reader = SqliteReader(path)
        seen = check(reader, said)
        reader.close()
        # The lock died with its holder.
        store = SqliteStore(path)
        assert check(store, said) == seen
        store.close()
        assert seen > before
        before = seen


def test_a_reader_follows_a_living_writer(tmp_path):
    path = tmp_path / "state.db"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        writer.stdout.readline()
        reader = SqliteReader(path)
        # Each answer is one committed state; two answers may be of different ones, as the writer goes on.
        seen = [len(reader.events())]
        while seen[-1] < seen[0] + 30:
            writer.stdout.readline()
            events = reader.events()
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert len(events) % 3 == 0
            seen.append(len(events))
        assert seen == sorted(seen)
        reader.close()
        with pytest.raises(OSError, match="another ResourceManager"):
            SqliteStore(path)
        writer.kill()
        writer.stdout.read()
