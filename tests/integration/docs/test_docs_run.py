"""The commands in the documents, run in order against a ResourceManager, and what they print.

One ResourceManager on 8 emulated GPUs serves all documents, with short leases and replayed jobs sixty times faster. It
is started by the command that users type, in a folder that looks like the project's.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from documents import ROOT, Block, blocks, commands, missing, whole

from rm_plugin.service.store_sqlite import SqliteReader
from themis.processes import find_marked

RUN = re.compile(r"run(?:: (?:exit (\d+)|(exact)))?")
"""A block to run: with its exit code, or with every figure that it prints."""

FILE = re.compile(r"(?:.*; )?file: (\S+)")
PAGES = (
    "README.md",
    "docs/tutorials/first-app.md",
    "docs/tutorials/keras.md",
    "docs/tutorials/pytorch.md",
    "docs/tutorials/hugging-face.md",
    "docs/tutorials/optuna.md",
    "docs/reference/group-files.md",
    "docs/explanation/auction.md",
    "docs/how-to/audit.md",
    "docs/reference/benchmarks.md",
    "docs/explanation/simulator.md",
    "docs/explanation/reproduction.md",
    "docs/reference/tuners.md",
)
SETTINGS = """\
cluster: conf/clusters/small-8.yaml
state_dir: state
listen: 127.0.0.1:0
time_scale: 60
lease: {duration_s: 4, checkpoint_lead_s: 1, grace_s: 5}
coalesce_s: 0.1
heartbeat_s: 0.3
rm_absence_s: 60
validate_state: true
"""


class Workplace:
    """A folder with the project's examples in it, and a ResourceManager that serves it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "conf").symlink_to(ROOT / "conf")
        (folder / "rm.yaml").write_text(SETTINGS)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path}
        self.environment.pop("THEMIS_RM", None)
        with (folder / "rm.log").open("wb") as log:
            self.rm = subprocess.Popen(
                ["themis", "rm", "start", "-c", "rm.yaml"], cwd=folder, env=self.environment, stdout=log, stderr=log
            )
        self.environment["THEMIS_RM"] = self._address()

    def _address(self) -> str:
        address = self.folder / "state" / "address"
        deadline_s = time.monotonic() + 60
        while not address.is_file():
            assert self.rm.poll() is None, (self.folder / "rm.log").read_text()
            assert time.monotonic() < deadline_s, "the ResourceManager does not come up"
            time.sleep(0.05)
        return address.read_text().strip()

    def run(
        self, line: str, *, timeout_s: float = 150, stderr: int = subprocess.STDOUT
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def close(self) -> None:
        store = SqliteReader(self.folder / "state" / "rm.sqlite")
        run_id = store.meta("run_id")
        store.close()
        self.rm.send_signal(signal.SIGTERM)
        assert self.rm.wait(60) == 0
        assert find_marked({"THEMIS_RUN_ID": run_id or "?"}) == ()


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    place = Workplace(tmp_path_factory.mktemp("documents"))
    try:
        yield place
    finally:
        if place.rm.poll() is None:
            place.close()


def make_file(part: Block, place: Workplace) -> None:
    name = FILE.fullmatch(part.mark)[1]
    (place.folder / name).write_text(part.body.replace("/path/to", str(place.folder)))


def run_block(part: Block, place: Workplace) -> None:
    wanted = int(RUN.fullmatch(part.mark)[1] or 0)
    if RUN.fullmatch(part.mark)[2]:
        run_exact(part, place)
        return
    for command in commands(part):
        ended = place.run(command.line)
        output = f"$ {command.line}\n{ended.stdout}"
        assert ended.returncode == wanted, output
        line = missing(command.shown, ended.stdout)
        assert line is None, f"shown, but not printed: {line}\n{output}"


def run_exact(part: Block, place: Workplace) -> None:
    for command in commands(part):
        # Progress goes to standard error, on a slow machine only.
        ended = place.run(command.line, stderr=subprocess.PIPE)
        output = f"$ {command.line}\n{ended.stdout}{ended.stderr}"
        assert ended.returncode == 0, output
        assert whole(command.shown, ended.stdout), (
            f"not what is shown; python tests/write_examples.py brings figures up to date\n{output}"
        )


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_document_do_what_it_shows(page, workplace):
    ran = 0
    for part in blocks(page):
        if FILE.fullmatch(part.mark):
            make_file(part, workplace)
        elif RUN.fullmatch(part.mark):
            run_block(part, workplace)
            ran += 1
    assert ran


def test_a_command_that_logs_nothing_is_done_when_it_exits_0(workplace):
    """docs/reference/group-files.md: a job whose command says nothing of iterations has one."""
    line = (
        "submarine job run --name quiet --input_path . --worker_resources memory=256M,vcores=1,gpu=1"
        " --worker_launch_cmd true --wait_job_finish"
    )
    try:
        assert workplace.run(line).returncode == 0
    finally:
        workplace.run("submarine job kill --name quiet")
