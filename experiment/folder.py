"""The folder of an experiment: a run of the testbed for each policy, and beside them what they show together."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from testbed.run_folder import RunFolder
from themis.errors import InputError

FORMAT = "themis testbed experiment"
RUNS = "runs"


@dataclass(frozen=True, slots=True)
class ExperimentFolder:
    """Paths of one experiment."""

    root: Path

    @property
    def plan(self) -> Path:
        """What is run here: made first, so that the folder is known for what it is."""
        return self.root / "experiment.json"

    @property
    def cluster(self) -> Path:
        """The cluster file of every run."""
        return self.root / "cluster.yaml"

    @property
    def report(self) -> Path:
        """The findings for programs."""
        return self.root / "report.json"

    @property
    def page(self) -> Path:
        """The findings for people."""
        return self.root / "report.html"

    @property
    def markdown(self) -> Path:
        """The tables of the findings, as docs/testbed.md shows them."""
        return self.root / "report.md"

    def run(self, policy: str) -> RunFolder:
        """The run of one policy."""
        return RunFolder(self.root / RUNS / policy)


def is_experiment(root: Path) -> bool:
    """Whether a folder holds an experiment."""
    return ExperimentFolder(root).plan.is_file()


def open_folder(root: Path, plan: dict[str, object]) -> ExperimentFolder:
    """The folder of an experiment: a new one, or the one of the same experiment, which then goes on.

    Raises:
        InputError: It holds something else, or another experiment.
    """
    folder = ExperimentFolder(root)
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError("cannot make the output folder", value=str(root), remedy=str(error.strerror)) from None
        folder.plan.write_text(json.dumps({"format": FORMAT, **plan}, indent=1) + "\n", encoding="utf-8")
        return folder
    if not is_experiment(root):
        remedy = "it holds something else, which is left alone; name another with --out"
        raise InputError("the output folder is in use", value=str(root), remedy=remedy)
    if read_plan(folder)["fingerprint"] != plan["fingerprint"]:
        remedy = "name another with --out, or remove it"
        raise InputError("the output folder holds another experiment", value=str(root), remedy=remedy)
    return folder


def read_plan(folder: ExperimentFolder) -> dict[str, object]:
    """What `open_folder` wrote; raises InputError where it is no such thing."""
    try:
        plan = json.loads(folder.plan.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {folder.plan}", value=str(error)) from None
    if not isinstance(plan, dict) or plan.get("format") != FORMAT or "fingerprint" not in plan:
        raise InputError(f"{folder.plan} is of no experiment", remedy="name the folder of one")
    return plan
