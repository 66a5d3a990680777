"""`themis rm status`, `stop`, `drain` and `undrain` on a real ResourceManager."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from live_rm import live, replay_app, settings, start_process

from submarine_client.connection import Connection
from themis.config.rm_settings import RmSettings
from themis.processes import kill_marked
from themis_cli.main import main

RUN_ID = "run-of-operators"


class Operated:
    """A ResourceManager as a process, and its operator."""

    def __init__(self, configured: RmSettings, capsys: pytest.CaptureFixture[str]) -> None:
        self.configured, self._capsys = configured, capsys
        self.process = start_process(configured)
        path = configured.state_dir / "address"
        self.until(path.exists)
        self.address = path.read_text().strip()
        self.client = Connection(self.address)

    def until(self, condition) -> None:  # type: ignore[no-untyped-def]
        deadline_s = time.monotonic() + 60.0
        while not condition():
            assert time.monotonic() < deadline_s, (self.configured.state_dir / "rm.log").read_text()[-3000:]
            time.sleep(0.05)

    def rm(self, *words: str) -> tuple[int, str]:
        """Run `themis rm` in this process. Returns the exit code and all output."""
        self._capsys.readouterr()
        code = main(["rm", *words, "--rm", self.address])
        printed = self._capsys.readouterr()
        return code, printed.out + printed.err

    def node(self, machine_id: str) -> dict[str, object]:
        code, text = self.rm("status", "--json")
        assert code == 0
        return next(node for node in json.loads(text)["nodes"] if node["machine_id"] == machine_id)


@pytest.fixture
def operated(tmp_path, capsys, monkeypatch) -> Iterator[Operated]:
    monkeypatch.setenv("THEMIS_RUN_ID", RUN_ID + tmp_path.name)
    rm = Operated(settings(tmp_path, page="127.0.0.1:0"), capsys)
    monkeypatch.delenv("THEMIS_RUN_ID")
    try:
        yield rm
    finally:
        rm.client.close()
        if rm.process.poll() is None:
            rm.process.terminate()
            rm.process.wait(30)
        kill_marked({"THEMIS_RUN_ID": RUN_ID + tmp_path.name}, wait_s=30.0)


def masters(operated: Operated) -> set[int]:
    return {each.pid for each in operated.process.children() if "am.main" in " ".join(each.cmdline())}


def test_log_of_a_run_says_where_it_listens_and_what_ctrl_c_stops_and_the_next_start_resumes(operated):
    folder = operated.configured.state_dir
    submitted = operated.client.submission(replay_app("resumed", iterations=400, tasks=4))
    operated.until(lambda: operated.client.show(submitted.app_id).state == "RUNNING")
    operated.process.send_signal(signal.SIGINT)
    assert operated.process.wait(30) == 0
    log = (folder / "rm.log").read_text()
    assert f"listening on {operated.address}, state in {folder}\n" in log
    (page,) = re.findall(r"the page is at (http://127.0.0.1:\d+/)\n", log)
    assert submitted.page_url == f"{page}apps/{submitted.app_id}"
    assert f"stopping; these apps are stopped; the next start resumes them: {submitted.app_id}\n" in log
    again = start_process(operated.configured)
    try:
        operated.until(lambda: "apps of an earlier run: 0 run on, 1 start again\n" in (folder / "rm.log").read_text())
    finally:
        again.terminate()
        again.wait(30)


def test_stop_with_keep_apps_leaves_apps_running_for_the_next_start(operated):
    app_id = operated.client.submit(replay_app("survivor", iterations=400, tasks=4))
    operated.until(lambda: operated.client.show(app_id).progress > 0)
    before = masters(operated)
    assert len(before) == 1
    code, text = operated.rm("stop", "--keep-apps")
    assert (code, "its apps run on" in text) == (0, True)
    assert operated.process.wait(60) == 0
    assert all(psutil.pid_exists(pid) for pid in before)

    async def scenario() -> None:
        async with live(operated.configured) as rm:
            await rm.event("am_registered", app_id, count=2)
            status = await rm.ended(app_id)
            assert (status.state, status.attempts) == ("FINISHED", 1)

    asyncio.run(scenario())


def test_stop_ends_apps(operated):
    app_id = operated.client.submit(replay_app("ended", iterations=4000))
    operated.until(lambda: operated.client.show(app_id).progress > 0)
    before = masters(operated)
    code, text = operated.rm("stop")
    assert (code, "its apps have ended" in text) == (0, True)
    operated.until(lambda: not any(psutil.pid_exists(pid) for pid in before))
    assert operated.rm("status")[0] == 2


def test_drained_machine_gets_no_leases_also_after_a_restart(operated, capsys):
    (first, *others) = [machine["machine_id"] for machine in json.loads(operated.rm("status", "--json")[1])["nodes"]]
    code, text = operated.rm("drain", first)
    assert (code, text) == (0, f"{first} is drained: no GPU is leased\n")
    assert operated.rm("drain", "nowhere")[0] == 2
    app_id = operated.client.submit(replay_app("elsewhere", iterations=4000, jobs=8))
    operated.until(lambda: operated.client.show(app_id).gpus > 0)
    leased = {lease.machine_id for lease in operated.client.show(app_id).leases}
    assert leased and first not in leased and leased <= set(others)
    assert operated.rm("stop", "--keep-apps")[0] == 0
    operated.process.wait(60)
    operated.__init__(operated.configured, capsys)
    assert operated.node(first)["state"] == "drained"
    assert operated.rm("undrain", first) == (0, f"{first} is used again\n")
    operated.until(lambda: operated.node(first)["gpus_leased"])
    kinds = [event.kind for event in operated.client.watch(follow=False)]
    assert [kind for kind in kinds if kind in ("machine_drained", "machine_opened")] == [
        "machine_drained",
        "machine_opened",
    ]


def test_status_without_a_resource_manager_exits_2(capsys):
    assert main(["rm", "status", "--rm", "127.0.0.1:9"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith("themis: no ResourceManager answers at")


def test_drain_reports_the_leases_of_the_machine(operated: Operated, tmp_path: Path) -> None:
    app_id = operated.client.submit(replay_app("busy", iterations=4000, jobs=8))
    operated.until(lambda: operated.client.show(app_id).gpus == 8)
    leased = operated.client.show(app_id).leases[0].machine_id
    code, text = operated.rm("drain", leased)
    assert code == 0 and f"{leased} drains: " in text and "GPUs are leased until" in text
    operated.until(lambda: operated.node(leased)["gpus_leased"] == 0)
