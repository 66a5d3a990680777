"""The interface of an experiment: a plan of runs, an evaluation of their metrics, and a figure in the paper's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from msgspec import field

from themis.values import Value
from themis_lab.simulator.agents import Agent
from themis_lab.simulator.record import RunRecord
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import AppTrace, Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Scale(StrEnum):
    """The size of the runs: small enough for all experiments in a quarter of an hour, or the paper's."""

    QUICK = "quick"
    PAPER = "paper"


class Cell(Value, frozen=True, kw_only=True):
    """One run to make. Cells are sent to other processes, so their functions must be module-level.

    Attributes:
        labels: Distinguish the run from others of its experiment, for example policy, seed and f.
        make_workload: Makes the workload; called with `workload_arguments`.
        workload_arguments: Keyword arguments.
        settings: All other settings of the run.
        make_agent: Makes the agent of an app; called with the app and `agent_arguments`. None for honest agents.
        agent_arguments: Keyword arguments.
    """

    labels: Mapping[str, str | float]
    make_workload: Callable[..., Workload]
    workload_arguments: Mapping[str, object] = field(default_factory=dict)
    settings: Settings
    make_agent: Callable[..., Agent] | None = None
    agent_arguments: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Identifies the run in every process. It does not depend on the labels."""
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


class Done(Value, frozen=True, kw_only=True):
    """A cell with the record of its run."""

    cell: Cell
    record: RunRecord


class Comparison(Value, frozen=True, kw_only=True):
    """A line of the table that compares our results with the paper.

    Attributes:
        what: The quantity, with its unit.
        paper: The paper's value as printed; empty if it prints none.
        paper_value: The same as a number; None if there is none to divide by.
        ours: Our value, the median over seeds.
        spread: Smallest and largest value over seeds.
        remark: A sentence if the two differ, else empty.
    """

    what: str
    paper: str = ""
    paper_value: float | None = None
    ours: float
    spread: tuple[float, float] | None = None
    remark: str = ""

    @property
    def ratio(self) -> float | None:
        """Our value over the paper's."""
        return None if not self.paper_value else self.ours / self.paper_value


class PaperClaim(Value, frozen=True, kw_only=True):
    """A row of the overview.

    Attributes:
        paper: The claim, in the paper's words and numbers.
        here: Our result, in a sentence with its numbers.
        ratio: Our number over the paper's; empty if there is none to divide by.
        fluid: The same claim by the fluid fair cluster, which no schedule can change; empty if it is not about rho.
    """

    paper: str
    here: str
    ratio: str = ""
    fluid: str = ""


class Findings(Value, frozen=True, kw_only=True):
    """The findings of an experiment.

    Attributes:
        rows: Rows of its CSV, all with the same columns.
        comparisons: Lines that compare our results with the paper.
        table: Headings and rows of its table if it compares nothing with a paper; then there are no `comparisons`.
        remarks: Sentences on the whole experiment.
        claims: Rows of the overview of all experiments.
        causes: Paragraphs on why numbers differ from the paper's, as far as this experiment shows it.
    """

    rows: tuple[Mapping[str, str | float], ...]
    comparisons: tuple[Comparison, ...]
    remarks: tuple[str, ...] = ()
    claims: tuple[PaperClaim, ...] = ()
    causes: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


class Shown(Protocol):
    """What the files of an experiment need, however its runs are made."""

    @property
    def name(self) -> str:
        """Names its files."""
        ...

    @property
    def title(self) -> str:
        """What it shows."""
        ...

    def draw(self, findings: Findings) -> Figure:
        """Draw the figure in the paper's form, from the rows only."""
        ...


class Experiment(Shown, Protocol):
    """One experiment of the reproduction (docs/explanation/reproduction.md, The experiments)."""

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """The runs to make. Equal cells of several experiments are run once."""
        ...

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Evaluate the runs."""
        ...
