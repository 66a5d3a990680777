"""What an experiment is: a plan of runs, an evaluation of their metrics, and a figure in the paper's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from themis_lab.simulator.agents import Agent
from themis_lab.simulator.record import RunRecord
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import AppTrace, Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Scale(StrEnum):
    """How large the runs are: small enough for all experiments in a quarter of an hour, or the paper's."""

    QUICK = "quick"
    PAPER = "paper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run to make. Cells cross to other processes, so functions in them must be those of a module.

    Attributes:
        labels: What tells this run from the others of its experiment, for instance policy, seed and f.
        make_workload: Draws the workload; called with `workload_arguments`.
        workload_arguments: By keyword.
        settings: Everything else of the run.
        make_agent: The agent of each app, called with the app and `agent_arguments`; None for honest agents.
        agent_arguments: By keyword.
    """

    labels: Mapping[str, str | float]
    make_workload: Callable[..., Workload]
    workload_arguments: Mapping[str, object] = field(default_factory=dict)
    settings: Settings
    make_agent: Callable[..., Agent] | None = None
    agent_arguments: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What tells runs apart, in this process as in any other; labels do not."""
        makers = _name(self.make_workload), _name(self.make_agent)
        return repr((*makers, self.workload_arguments, self.settings, self.agent_arguments))

    def workload(self) -> Workload:
        """The apps of the run."""
        return self.make_workload(**self.workload_arguments)

    def agents(self) -> Callable[[AppTrace], Agent] | None:
        """The agents of the run; None for honest ones."""
        if self.make_agent is None:
            return None
        make, arguments = self.make_agent, dict(self.agent_arguments)
        return lambda app: make(app, **arguments)


def _name(function: Callable[..., object] | None) -> str:
    return "" if function is None else f"{function.__module__}.{function.__qualname__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A cell with what came out of it."""

    cell: Cell
    record: RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A line of the table that sets the paper beside us.

    Attributes:
        what: The quantity, with its unit.
        paper: The paper's value as it prints it; empty where it prints none.
        paper_value: The same as a number, None where there is none to divide by.
        ours: Our value, the median over seeds.
        spread: Least and largest over seeds.
        remark: A sentence where the two differ, else empty.
    """

    what: str
    paper: str = ""
    paper_value: float | None = None
    ours: float
    spread: tuple[float, float] | None = None
    remark: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's."""
        return None if not self.paper_value else self.ours / self.paper_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim of the paper as it words it, and in a few words of numbers what came out here: a row of the overview."""

    paper: str
    here: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an experiment found.

    Attributes:
        rows: Of its CSV, all with the same columns.
        comparisons: The lines that set the paper beside us.
        remarks: Sentences on the whole.
        claims: What the overview of all experiments says of this one.
        causes: Paragraphs on why numbers are not the paper's, as far as this experiment tells them apart.
    """

    rows: tuple[Mapping[str, str | float], ...]
    comparisons: tuple[Comparison, ...]
    remarks: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    causes: tuple[str, ...] = ()


class Experiment(Protocol):
    """One row of themis.md, section 9."""

    name: str
    title: str

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """The runs to make. Like cells of several experiments are run once."""
        ...

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """The numbers."""
        ...

    def draw(self, findings: Findings) -> Figure:
        """The figure, in the paper's form, from the rows alone."""
        ...
