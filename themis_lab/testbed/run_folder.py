"""The folder of one run: its files, and how a new run replaces an old one."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from themis.errors import InputError
from themis.values import Value
from themis_lab.devcluster.cluster import DevCluster
from themis_lab.devcluster.layout import Layout
from themis_lab.testbed.events import EVENTS_NAME

_NAMES = frozenset(
    (
        "apps.json",
        "cluster.yaml",
        EVENTS_NAME,
        "hadoop",
        "lock",
        "report.html",
        "report.json",
        "report.tmp",
        "rm.log",
        "rm.yaml",
        "run.json",
        "state",
    )
)
"""All names in a run's folder. If there is anything else, nothing is removed."""


class RunFolder(Value, frozen=True):
    """Paths of one run."""

    root: Path

    @property
    def events(self) -> Path:
        """Every event, one line each."""
        return self.root / EVENTS_NAME

    @property
    def apps(self) -> Path:
        """The apps' statuses at the end."""
        return self.root / "apps.json"

    @property
    def facts(self) -> Path:
        """Facts that the events do not hold."""
        return self.root / "run.json"

    @property
    def settings(self) -> Path:
        """Settings of the ResourceManager."""
        return self.root / "rm.yaml"

    @property
    def cluster(self) -> Path:
        """A copy of the cluster file."""
        return self.root / "cluster.yaml"

    @property
    def log(self) -> Path:
        """Output of the ResourceManager."""
        return self.root / "rm.log"

    @property
    def state(self) -> Path:
        """The ResourceManager's folder."""
        return self.root / "state"

    @property
    def report(self) -> Path:
        """The report for programs."""
        return self.root / "report.json"

    @property
    def page(self) -> Path:
        """The report for readers."""
        return self.root / "report.html"

    @property
    def hadoop(self) -> Path:
        """Hadoop's daemons, while they run."""
        return self.root / "hadoop"

    @property
    def lock(self) -> Path:
        """Locked by the driver while it runs."""
        return self.root / "lock"

    def history(self, app_id: str, job_id: str) -> Path:
        """The history written by a job's chief task."""
        return self.state / "apps" / app_id / "jobs" / job_id / "history.jsonl"


@contextmanager
def fresh_folder(out: Path) -> Iterator[RunFolder]:
    """Yield an empty folder for a run, locked while the block runs. An old run in it is removed.

    Hadoop daemons that an old run left there are stopped first.

    Raises:
        InputError: It holds something other than a run, or a run that is in progress.
    """
    folder = RunFolder(out)
    if out.exists():
        _check_ours(out)
        with _locked(folder):
            _end_hadoop(folder.hadoop)
            shutil.rmtree(out)
    try:
        out.mkdir(parents=True)
    except OSError as error:
        raise InputError("cannot make the output folder", value=str(out), remedy=str(error.strerror)) from None
    with _locked(folder):
        yield folder


def _end_hadoop(folder: Path) -> None:
    """Stop daemons that a killed driver may have left. Without their folder they could not be found."""
    if Layout(folder.absolute()).state.exists():
        DevCluster.attach(folder).stop(grace_s=0.0)


def run_folder(out: Path) -> RunFolder:
    """Return the folder of an existing run. Raises InputError if it holds none."""
    folder = RunFolder(out)
    if not folder.events.is_file():
        raise InputError("the folder holds no run", value=str(out), remedy="make one: themis testbed run MIX --out OUT")
    return folder


def _check_ours(out: Path) -> None:
    if out.is_symlink():
        raise InputError("the output folder is a link", value=str(out), remedy="name the folder itself with --out")
    if not out.is_dir():
        raise InputError("the output folder is a file", value=str(out), remedy="name another with --out")
    names = {path.name for path in out.iterdir()}
    settings = {RunFolder(out).settings.name, RunFolder(out).cluster.name}
    if not names <= _NAMES or (names - {RunFolder(out).lock.name} and names.isdisjoint(settings)):
        remedy = "it holds more than a run of the testbed, or none, and is left alone; name another with --out"
        raise InputError("the output folder is in use", value=str(out), remedy=remedy)
    if out.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise InputError("the output folder holds the working folder", value=str(out), remedy="name another with --out")


@contextmanager
def _locked(folder: RunFolder) -> Iterator[None]:
    with folder.lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "wait for it, or name another folder with --out"
            raise InputError("a run is going on in this folder", value=str(folder.root), remedy=remedy) from None
        yield
