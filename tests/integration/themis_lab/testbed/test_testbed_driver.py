"""The driver against a stand-in for the ResourceManager: how runs end, and that nothing is left behind."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from themis.errors import InputError
from themis_lab.testbed import driver, rm_process
from themis_lab.testbed.driver import drive, plan_run
from themis_lab.testbed.events import read_events
from themis_lab.testbed.facts import Ending, RunFacts
from themis_lab.testbed.interruption import Interruption
from themis_lab.testbed.mix import load_mix
from themis_lab.testbed.outcome import failed_conditions
from themis_lab.testbed.reporting import make_report
from themis_lab.testbed.run_folder import RunFolder, fresh_folder
from themis_lab.testbed.statuses import read_statuses

FAKE = Path(__file__).with_name("fake_rm.py")
GROUP = """
name: {name}
program: {program}
{arguments}
job: {{iterations: 10}}
hyper_parameters:
  - {{learning_rate: 0.1}}
"""
MIX = """
name: tiny
time_scale: 30
time_limit_s: {limit}
cluster: cluster.yaml
lease: {{duration_s: 5, checkpoint_lead_s: 1, grace_s: 2}}
apps:
  - {{group: real.yaml, at_s: 0}}
  - {{group: replay.yaml, at_s: 0.4}}
"""
CLUSTER = """
name: one
devices: {gpu: {kind: gpu, emulated: true}}
machines: [{prefix: m, count: 1, slots: [2], racks: [r]}]
"""


class Place:
    """A mix in a folder of its own, and the processes that a run of it leaves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.out = path / "out"
        self.text = io.StringIO()
        (path / "cluster.yaml").write_text(CLUSTER)
        (path / "real.yaml").write_text(GROUP.format(name="real", program="digits_dense", arguments=""))
        replay = GROUP.format(name="replay", program="replay", arguments="arguments: {model: resnet50}")
        (path / "replay.yaml").write_text(replay)

    def run(self, mode: str, *, limit_s: float = 100.0, interruption: Interruption | None = None) -> RunFacts:
        (self.path / "mix.yaml").write_text(MIX.format(limit=limit_s))
        plan = plan_run(load_mix(self.path / "mix.yaml"), "themis", None)

        def command(settings: Path) -> list[str]:
            return [sys.executable, str(FAKE), str(settings.parent / "state"), mode]

        console = Console(file=self.text, width=120)
        with fresh_folder(self.out) as folder:
            return drive(plan, folder, console, interruption or Interruption(), command)

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.out)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(driver, "SETTLE_S", 0.3)
    monkeypatch.setattr(driver, "POLL_S", 0.2)
    monkeypatch.setenv("TESTBED_TEST", str(tmp_path))
    yield Place(tmp_path)
    left = [process.cmdline() for process in processes_of(tmp_path)]
    for process in processes_of(tmp_path):
        process.kill()
    assert not left, "a run left processes behind"


def processes_of(path: Path) -> list[psutil.Process]:
    """Living processes that a test started, its own excepted."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("TESTBED_TEST") == str(path):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_run_ends_when_every_app_has_and_is_reported(place: Place):
    facts = place.run("well")
    assert (facts.ending, facts.left_over, facts.trouble) == (Ending.ALL_ENDED, (), "")
    assert facts.processes.count >= 2
    assert facts.processes.rss_bytes >= facts.processes.pss_bytes > 0
    events = read_events(place.folder.events)
    # The stream broke after every second event, and yet each is there once.
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [app.name for app in read_statuses(place.folder.apps)] == ["real", "replay"]
    report = make_report(place.folder)
    assert failed_conditions(report) == []
    assert report["apps"][0]["best"]["accuracy"] == pytest.approx(0.9)
    assert place.folder.page.stat().st_size > 10_000
    assert "2 GPUs leased" in place.text.getvalue()


def test_a_failed_app_fails_the_run(place: Place):
    assert place.run("fail").ending is Ending.ALL_ENDED
    failed = failed_conditions(make_report(place.folder))
    assert "real is FAILED (on purpose)" in failed
    assert len(failed) == 2


def test_a_run_past_its_time_limit_is_stopped_and_reported(place: Place):
    facts = place.run("silent", limit_s=1.5)
    assert facts.ending is Ending.TIME_LIMIT
    assert any("the time limit" in text for text in failed_conditions(make_report(place.folder)))


def test_a_resource_manager_that_ignores_sigterm_is_killed(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rm_process, "STOP_GRACE_S", 1.0)
    begun_s = time.monotonic()
    assert place.run("stubborn", limit_s=1.0).ending is Ending.TIME_LIMIT
    assert time.monotonic() - begun_s < 60.0


def test_a_resource_manager_that_dies_ends_the_run(place: Place):
    facts = place.run("die")
    assert facts.ending is Ending.RM_FAILED
    assert "ended with code 7" in facts.trouble
    assert any("the ResourceManager failed" in text for text in failed_conditions(make_report(place.folder)))


def test_a_silent_resource_manager_is_reported_with_its_log(place: Place):
    facts = place.run("mute")
    assert facts.ending is Ending.RM_FAILED
    assert "cannot listen, on purpose" in facts.trouble


def test_an_app_that_is_refused_is_the_users_to_mend(place: Place):
    with pytest.raises(InputError, match="no room for it"):
        place.run("refuse")


def test_an_interruption_stops_everything(place: Place):
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        assert place.run("silent", interruption=interruption).ending is Ending.INTERRUPTED


def test_a_run_in_progress_is_not_replaced(place: Place):
    with fresh_folder(place.out) as folder:
        folder.settings.touch()
        with pytest.raises(InputError, match="a run is going on"), fresh_folder(place.out):
            pass


def driver_process(place: Place, mode: str) -> subprocess.Popen[bytes]:
    """A driver in a process of its own, with everything started."""
    (place.path / "mix.yaml").write_text(MIX.format(limit=60))
    code = (
        "import sys; from pathlib import Path; from themis_lab.testbed import cli, driver\n"
        f"driver.drive.__defaults__ = (lambda s: [sys.executable, {str(FAKE)!r}, str(s.parent / 'state'), {mode!r}],)\n"
        "from themis_cli.main import main\n"
        f"sys.exit(main(['testbed', 'run', {str(place.path / 'mix.yaml')!r}, '--out', {str(place.out)!r}]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # The driver, its reaper, the ResourceManager and what that started.
    wait_until(lambda: place.folder.events.is_file() and len(processes_of(place.path)) == 4, process)
    return process


def wait_until(condition, process: subprocess.Popen[bytes] | None = None, limit_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come about"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_with_code_3(place: Place, number: signal.Signals):
    process = driver_process(place, "silent")
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 3, output
    assert b"interrupted: everything was stopped" in output


def test_nothing_outlives_a_driver_that_is_killed(place: Place):
    process = driver_process(place, "stubborn")
    process.kill()
    process.communicate()
    wait_until(lambda: not processes_of(place.path))
