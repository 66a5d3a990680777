"""A run: its workload, settings, and the agents that err or lie; and the function that makes it."""

from __future__ import annotations

import resource

from msgspec import field
from msgspec.structs import replace

from rm_plugin.arbiter.seeds import child_seed
from themis.errors import InputError, UnknownNameError
from themis.garbage import few_collections
from themis.values import Value
from themis_lab.simulator.agents import LIES, Agent, ErringAgent, HonestAgent, LyingAgent, lie_named
from themis_lab.simulator.observer import Observer
from themis_lab.simulator.record import RunRecord
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import MakeAgent, Simulation, Watch
from themis_lab.simulator.workload import AppTrace, Workload, unknown_app

MAX_LIED = 1e6
"""The maximum factor. Larger ones have no further effect, and values would overflow."""

_KIB = 1024.0
ALLOCATIONS = 500_000


class LieChoice(Value, frozen=True, kw_only=True):
    """An app whose agent lies: the kind, a key of `themis_lab.simulator.agents.LIES`, and its factor."""

    app: str
    kind: str
    factor: float

    def __post_init__(self) -> None:
        if self.kind not in LIES:
            raise UnknownNameError("lie", self.kind, LIES)
        # The factor of a lie about S is a share; 0 is the truth.
        of_share = self.kind == "slowdown"
        least, range_start = (0.0, "0") if of_share else (1.0 / MAX_LIED, f"1/{MAX_LIED:,.0f}")
        if not least <= self.factor <= MAX_LIED:
            what = f"the factor of a lie must be from {range_start} to {MAX_LIED:,.0f}"
            raise InputError(what, value=self.factor, remedy=f"{0 if of_share else 1} is the truth")


class Run(Value, frozen=True, kw_only=True):
    """A run to make. `error` is X of every app's ErringAgent, 0 for exact agents.

    Raises:
        InputError: An app is to lie twice, or the workload does not have it.
    """

    workload: Workload
    settings: Settings
    error: float = 0.0
    lies: tuple[LieChoice, ...] = field(default=())

    def __post_init__(self) -> None:
        if not 0.0 <= self.error < 1.0:
            raise InputError("an error must be 0 or more and less than 1", value=self.error)
        names = [app.name for app in self.workload.apps]
        liars = [lie.app for lie in self.lies]
        for name in liars:
            if name not in names:
                raise unknown_app(name, names)
            if liars.count(name) > 1:
                raise InputError("an app can have one lie only", value=name)

    @property
    def make_agent(self) -> MakeAgent:
        """Return the agent of each app."""
        lies = {lie.app: lie_named(lie.kind, lie.factor) for lie in self.lies}

        def make(app: AppTrace) -> Agent:
            agent: Agent = HonestAgent()
            if self.error:
                agent = ErringAgent(agent, self.error, child_seed(self.settings.seed, "errors", app.name))
            return LyingAgent(agent, lies[app.name]) if app.name in lies else agent

        return make


def make_run(run: Run, watch: Watch | None = None, observer: Observer | None = None) -> RunRecord:
    """Make the run. An observer gets its rounds and lease changes.

    `peak_memory_mb` of the record is the peak of this process so far, in MiB.
    """
    with few_collections(ALLOCATIONS):
        record = Simulation(run.workload, run.settings, run.make_agent, observer=observer).run(watch)
    return replace(record, peak_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB)
