"""The testbed run under fire: kill -9 of an app master, of a task and of a client, and Ctrl-C.

`make test` plays it on the small mix, `make test-slow` on the whole testbed of 64 emulated GPUs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from testbed_run import SUBMARINE, TestbedRun, first_event, started_testbed, until

from submarine_client.connection import Connection

KEYS = {
    "apps",
    "max_rho",
    "rounds",
    "overheads",
    "invariants",
    "cluster",
    "policy",
    "time_scale",
    "seed",
}
APP_KEYS = {
    "name",
    "tuner",
    "kind",
    "jobs",
    "state",
    "rho",
    "gpu_time_s",
    "placement_score",
    "restarts",
    "best",
}

SMALL = pytest.param("conf/testbed/small.yaml", 200, id="small")
# 73 processes: beside another test its app masters miss the ends of leases.
ALONE = (pytest.mark.slow, pytest.mark.alone)
MAIN = pytest.param("conf/testbed/main.yaml", 420, id="main", marks=[*ALONE, pytest.mark.timeout(500)])


@pytest.mark.parametrize(("mix", "limit_s"), [SMALL, MAIN])
def test_the_main_job_survives_kills_of_a_master_a_task_and_a_client(tmp_path: Path, mix: str, limit_s: int) -> None:
    with started_testbed(mix, tmp_path / "out") as run:
        with Connection(run.address) as client:
            victim = kill_a_master(client)
            shot, job_id = kill_a_task(client, not_of=victim)
            kill_a_client(run, shot)
        assert run.finish(limit_s) == 0, run.log.read_text()[-3000:]
        report = run.report()
    check_report(report)
    apps = {app["app_id"]: app for app in report["apps"]}
    assert apps[shot]["restarts"] >= 1
    masters = [event for event in run.events() if event["kind"] == "am_registered" and event["app_id"] == victim]
    assert [event["detail"]["attempt"] for event in masters] == [1, 2]
    check_search_went_on(run, victim)
    restarted = [event for event in run.events() if event["kind"] == "job_restarted" and event["app_id"] == shot]
    assert job_id in {event["detail"]["job_id"] for event in restarted}


@pytest.mark.parametrize("after_s", [0.0, 8.0])
def test_ctrl_c_leaves_nothing_running(tmp_path: Path, after_s: float) -> None:
    with started_testbed("conf/testbed/small.yaml", tmp_path / "out") as run:
        until(run.out.exists, "the run begins")
        time.sleep(after_s)
        run.process.send_signal(signal.SIGINT)
        assert run.finish(60) == 3
        # The context manager asserts that no process is left.


def test_a_killed_driver_takes_everything_with_it(tmp_path: Path) -> None:
    with started_testbed("conf/testbed/small.yaml", tmp_path / "out") as run:
        with Connection(run.address) as client:
            first_event(client, lambda event, _: event.kind == "tasks_started")
        run.process.send_signal(signal.SIGKILL)
        run.process.wait(60)


def test_the_same_runs_under_tiresias(tmp_path: Path) -> None:
    with started_testbed("conf/testbed/small.yaml", tmp_path / "out", policy="tiresias") as run:
        assert run.finish(200) == 0, run.log.read_text()[-3000:]
        report = run.report()
    assert report["policy"] == "tiresias"
    check_report(report)


def check_report(report: dict) -> None:
    assert report.keys() >= KEYS
    assert sum(report["invariants"]["checks"].values()) > 100
    assert report["invariants"]["violations"] == []
    assert report["overheads"].keys() >= {"bid_ms", "auction_ms", "resize_s", "checkpoint_s"}
    for app in report["apps"]:
        assert app.keys() >= APP_KEYS
        assert app["state"] == "FINISHED"
        assert app["kind"] in ("real", "replay")
        if app["kind"] == "real":
            assert app["best"]["accuracy"] > 0.85
            assert Path(app["best"]["checkpoint"]).name.isdigit()


def kill_a_master(client: Connection) -> str:
    """Kill the app master of the first app that has a checkpoint; returns the app's id."""
    app_id, _ = first_event(client, lambda event, _: event.kind == "checkpoint")
    _, master = first_event(client, lambda event, _: event.kind == "am_registered" and event.app_id == app_id)
    os.kill(int(master["pid"]), signal.SIGKILL)
    return app_id


def kill_a_task(client: Connection, not_of: str) -> tuple[str, str]:
    """Kill a task that made its first step, of another app than the victim; returns app and job.

    A task may be ending or stopping just then, so that its kill has no effect. Then another one is killed.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for app_id, job_id, pid in running_tasks(client):
            if app_id != not_of and psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
                if is_restarted(client, app_id, job_id):
                    return app_id, job_id
                break
        time.sleep(0.05)
    raise AssertionError("no task to kill")


def is_restarted(client: Connection, app_id: str, job_id: str) -> bool:
    """Whether a job whose task was shot is said to be restarted soon."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        for event in client.watch(follow=False):
            if (event.kind, event.app_id) == ("job_restarted", app_id) and json.loads(event.detail)["job_id"] == job_id:
                return True
        time.sleep(0.05)
    return False


def running_tasks(client: Connection) -> list[tuple[str, str, int]]:
    """Tasks that have been started and made their first step but have not ended, by the events so far."""
    started: dict[tuple[str, str], list[int]] = {}
    stepped: set[tuple[str, str]] = set()
    for event in client.watch(follow=False):
        detail = json.loads(event.detail)
        key = (event.app_id, str(detail.get("job_id", "")))
        if event.kind == "tasks_started":
            started[key] = detail["pids"]
        elif event.kind == "first_step":
            stepped.add(key)
        elif event.kind == "tasks_ended":
            started.pop(key, None)
            stepped.discard(key)
    return [(*key, pids[0]) for key, pids in started.items() if key in stepped]


def kill_a_client(run: TestbedRun, app_id: str) -> None:
    """Killing a client that waits for an app has no effect."""
    waiting = subprocess.Popen(
        [*SUBMARINE, "--rm", run.address, "app", "wait", app_id], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(1.5)
    waiting.kill()
    assert waiting.wait() in (0, -signal.SIGKILL)


def check_search_went_on(run: TestbedRun, app_id: str) -> None:
    """The second attempt resumed jobs from checkpoints and did not begin the search again."""
    events = [event for event in run.events() if event["app_id"] == app_id]
    lost = next(number for number, event in enumerate(events) if event["kind"] == "am_lost")
    before = [event["detail"] for event in events[:lost] if event["kind"] == "tuner"]
    after = [event["detail"] for event in events[lost:] if event["kind"] == "tuner"]
    assert set(before[-1]["stopped"]) <= set(after[0]["stopped"])
    assert after[0]["phase"] >= before[-1]["phase"]
    saved: dict[str, int] = {}
    for event in events[:lost]:
        if event["kind"] == "checkpoint":
            job_id = event["detail"]["job_id"]
            saved[job_id] = max(saved.get(job_id, 0), event["detail"]["iteration"])
    resumed = [event["detail"] for event in events[lost:] if event["kind"] == "tasks_started"]
    for detail in resumed:
        assert detail["iteration"] >= saved.get(detail["job_id"], 0)
