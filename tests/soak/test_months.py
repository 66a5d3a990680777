"""Thousands of short apps in virtual time, with kill -9: start, memory, handles and store stay bounded, all is kept.

`make test-soak` plays 30,000 apps and prints the table; `make test-slow` plays a few.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from event_log_cases import read_archive
from service_over_months import BATCH, KEEP_APPS, REPORT_EVERY

from rm_plugin.service.store_sqlite import SqliteStore
from themis.lifecycle import AppState

APPS = int(os.environ.get("THEMIS_SOAK_APPS", "1600"))
SEED = int(os.environ.get("THEMIS_SOAK_SEED", "0"))
KILLS = max(3, APPS // 1500)
MAX_START_CPU_S = 2.0
MAX_GROWTH_MB = 12.0
MAX_STORE_MB = 10.0
MAX_ROW_KB = 1.5
"""What an archived app may leave in the store."""


@pytest.fixture(scope="module")
def soaked(tmp_path_factory):
    """The folder after all apps, and the rows that the processes printed."""
    folder = tmp_path_factory.mktemp("soak")
    rng = random.Random(SEED)
    rows = []
    kill_at = sorted(rng.sample(range(BATCH, APPS - BATCH), KILLS))
    while not rows or not rows[-1].get("done"):
        due = next((apps for apps in kill_at if not rows or apps > rows[-1]["apps"]), None)
        rows += until_killed(folder, due, rng)
    for row in rows:
        shown = {key: f"{value:.2f}" if isinstance(value, float) else value for key, value in row.items()}
        print(" ".join(f"{key}={value}" for key, value in shown.items()))
    return folder, rows


def until_killed(folder, kill_at, rng):
    """The rows of a process that is killed some time after it reported `kill_at` apps, or plays to the end."""
    command = [sys.executable, str(Path(__file__).with_name("service_over_months.py")), str(folder), str(APPS)]
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            rows.append(json.loads(line))
            if kill_at is not None and rows[-1]["apps"] + REPORT_EVERY > kill_at:
                time.sleep(rng.uniform(0.05, 1.5))
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode in (0, -signal.SIGKILL), rows
    return rows


pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + APPS // 5)]


def starts(rows):
    return [row for row in rows if "start_cpu_s" in row]


def test_start_stays_short(soaked):
    _, rows = soaked
    assert len(starts(rows)) > KILLS / 2
    assert max(row["start_cpu_s"] for row in starts(rows)) < MAX_START_CPU_S


def test_memory_and_handles_stay_bounded(soaked):
    _, rows = soaked
    full = [row for row in rows if row["apps"] > 2 * KEEP_APPS]
    assert max(row["rss_mb"] for row in full) - min(row["rss_mb"] for row in full) < MAX_GROWTH_MB
    assert len({row["handles"] for row in rows}) <= 2
    # A start has what was killed before its apps were archived; the other rows were printed right after a pass.
    assert max(row["in_memory"] for row in rows if row not in starts(rows)) <= KEEP_APPS


def test_store_grows_by_rows_of_apps_only(soaked):
    _, rows = soaked
    for row in rows:
        assert row["store_mb"] < MAX_STORE_MB + row["apps"] * MAX_ROW_KB / 1024


def test_every_app_finished_once_and_every_event_is_there(soaked):
    folder, _ = soaked
    store = SqliteStore(folder / "rm.sqlite")
    apps = [*store.apps(), *store.archived_apps(limit=10 * APPS)]
    log = [event.sequence for event in store.events()]
    store.close()
    assert len(apps) >= APPS
    assert sorted(app.app_id for app in apps) == sorted({f"app-{number:04d}" for number in range(1, len(apps) + 1)})
    assert {app.state for app in apps} == {AppState.FINISHED}
    archived = {event.sequence for path in (folder / "archive").iterdir() for event in read_archive(path)}
    assert len(set(log)) == len(log)
    assert archived | set(log) == set(range(1, log[-1] + 1))
    assert not archived & set(log)
