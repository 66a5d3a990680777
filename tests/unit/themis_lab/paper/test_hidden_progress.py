"""An app master that claims fewer iterations than its jobs have done: nothing in the service contradicts it."""

from msgspec.structs import replace

from am.agent.model.views import AppView
from themis_lab.paper import lying
from themis_lab.paper.runner import run_cell
from themis_lab.simulator.agents import HonestAgent, Lie, LyingAgent
from themis_lab.simulator.workload import AppTrace


class HiddenProgress:
    """What the app master claims: each job is still at the iteration at which it was first seen."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def __call__(self, app: AppView) -> AppView:
        for job in app.jobs:
            self._first.setdefault(job.job_id, job.iterations_left)
        return replace(app, jobs=tuple(replace(job, iterations_left=self._first[job.job_id]) for job in app.jobs))


def agent(app: AppTrace, liar: str) -> LyingAgent | HonestAgent:
    if app.name != liar:
        return HonestAgent()
    return LyingAgent(HonestAgent(), Lie(name="hidden progress", view=HiddenProgress()))


def test_hiding_all_progress_gains_nothing_under_fair_finish() -> None:
    contender = next(each for each in lying.CONTENDERS if each.name == "fair_finish")
    gains = []
    for seed in (1, 2):
        cell = lying._cell(contender, seed, lying.HONEST, 1.0, "")
        honest = {app.name: app for app in run_cell(cell).apps}
        for name in honest:
            run = run_cell(replace(cell, make_agent=agent, agent_arguments={"liar": name}))
            ended = next(app for app in run.apps if app.name == name)
            before_s = honest[name].ended_at_s - honest[name].submitted_at_s
            gains.append((honest[name].ended_at_s - ended.ended_at_s) / before_s)
    assert len(gains) == 16
    assert max(gains) < 0.01, "an app that hides its progress ends more than 1 % earlier"
