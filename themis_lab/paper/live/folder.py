"""The folder of an experiment: a testbed run for each policy, and the results of all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, Literal

from themis.config.loader import Section, fit
from themis.errors import InputError
from themis.values import Value
from themis_lab.paper.live.scale import ScaleFile
from themis_lab.testbed.run_folder import RunFolder

FORMAT: Final = "themis testbed experiment"
RUNS = "runs"


class ExperimentFolder(Value, frozen=True):
    """Paths of one experiment."""

    root: Path

    @property
    def plan(self) -> Path:
        """The plan, written first to identify the folder."""
        return self.root / "experiment.json"

    @property
    def cluster(self) -> Path:
        """The cluster file of every run."""
        return self.root / "cluster.yaml"

    @property
    def report(self) -> Path:
        """The results for programs."""
        return self.root / "report.json"

    @property
    def page(self) -> Path:
        """The results for readers."""
        return self.root / "report.html"

    @property
    def markdown(self) -> Path:
        """The tables of the results, as docs/how-to/testbed.md shows them."""
        return self.root / "report.md"

    def run(self, policy: str) -> RunFolder:
        """The run of one policy."""
        return RunFolder(self.root / RUNS / policy)


class PlanFile(Section):
    """The stored plan of an experiment: enough to continue it, and to report it again."""

    format: Literal["themis testbed experiment"] = FORMAT
    fingerprint: str
    workload: str
    seed: int
    policies: tuple[str, ...]
    scale: ScaleFile


def is_experiment(root: Path) -> bool:
    """Whether a folder holds an experiment."""
    return ExperimentFolder(root).plan.is_file()


def check_folder(root: Path, plan: PlanFile) -> ExperimentFolder:
    """Return the folder of an experiment, which need not exist yet. Writes nothing.

    Raises:
        InputError: The folder holds something else, or another experiment.
    """
    folder = ExperimentFolder(root)
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return folder
    if not is_experiment(root):
        remedy = "it holds something else, which is left alone; name another with --out"
        raise InputError("the output folder is in use", value=str(root), remedy=remedy)
    if read_plan(folder).fingerprint != plan.fingerprint:
        remedy = "name another with --out, or remove it"
        raise InputError("the output folder holds another experiment", value=str(root), remedy=remedy)
    return folder


def make_folder(folder: ExperimentFolder, plan: PlanFile) -> None:
    """Make the folder, or continue the experiment in it. Raises InputError if it cannot be made."""
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = str(error.strerror)
        raise InputError("cannot make the output folder", value=str(folder.root), remedy=remedy) from None
    if not folder.plan.is_file():
        folder.plan.write_text(plan.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_plan(folder: ExperimentFolder) -> PlanFile:
    """Read what `make_folder` wrote. Raises InputError if the file is not a plan."""
    try:
        content = json.loads(folder.plan.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {folder.plan}", value=str(error), remedy="name another folder") from None
    if not isinstance(content, dict):
        raise InputError(f"{folder.plan} is of no experiment", remedy="name the folder of one")
    return fit(PlanFile, content, str(folder.plan))
