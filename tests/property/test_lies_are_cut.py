"""What an app gains by lying in every round if the service checks its claims, over whole simulated runs.

Without the checks these lies shorten its completion time by about a tenth under `themis` and `worst_rho_first`.
Of a claim that all its work is a quarter, six seeds are in docs/explanation/security.md.
"""

import statistics
from functools import partial

import pytest
from msgspec.structs import replace
from test_honest_claims import Checked

from rm_plugin.arbiter.round_values import AskReports
from rm_plugin.service.claims import checked_bid
from themis_lab.paper import lying
from themis_lab.paper.strategies import lying_agent
from themis_lab.simulator.agents import HonestAgent, Lie, LyingAgent, with_work


class Cut(Checked):
    """A run in which the arbiter gets what is believed."""

    def _answer(self, snapshot, question):
        answers = super()._answer(snapshot, question)
        if isinstance(question, AskReports):
            return {app_id: self.believed[app_id] for app_id in answers}
        if not isinstance(answers, dict):
            return answers
        return {
            app_id: checked_bid(bid, self.believed[app_id], self._facts(snapshot, app_id))[0]
            for app_id, bid in answers.items()
        }


def completions_s(contender, agent=None, seed=1):
    """The completion time of each app, in seconds. `agent` returns the agent of an app; by default all are honest."""
    cell = lying._cell(contender, seed, lying.HONEST, 1.0, "")
    run = Cut(cell.workload(), cell.settings, agent or cell.agents())
    return {app.name: app.completion_s for app in run.run().apps}


def gains(policy, agent, seed=1):
    """What each app gains in completion time if it alone has the agent `agent(app, its name)`."""
    contender = next(each for each in lying.CONTENDERS if each.name == policy)
    honest = completions_s(contender, seed=seed)
    return [1.0 - completions_s(contender, partial(agent, liar=name), seed)[name] / honest[name] for name in honest]


def little_work(app, liar):
    """The agent of an app that claims a quarter of the work of its whole search in every round."""

    def view(true):
        return replace(with_work(true, 0.25), work_total_gpu_s=true.work_total_gpu_s * 0.25)

    return LyingAgent(HonestAgent(), Lie(name="a quarter", view=view)) if app.name == liar else HonestAgent()


def growing_work(app, liar):
    """The agent of a liar that also declares more whenever the meter would show more than it declared."""

    def view(true):
        left_s = sum(job.iterations_left * job.serial_iteration_s for job in true.jobs)
        left_s += sum(phase.jobs * phase.iterations for phase in true.later_phases) * true.median_job.serial_iteration_s
        done_s = max(0.0, true.work_total_gpu_s - left_s)
        factor = max(0.25, min(1.0, 1.3 * done_s / left_s))
        return replace(with_work(true, factor), work_total_gpu_s=done_s + factor * left_s)

    return LyingAgent(HonestAgent(), Lie(name="growing", view=view)) if app.name == liar else HonestAgent()


@pytest.mark.parametrize("policy", ["themis", "worst_rho_first"])
@pytest.mark.parametrize("lie", ["rho", "work"])
def test_quadrupled_claim_gains_little(policy, lie):
    found = gains(policy, partial(lying_agent, lie=lie, amount=4.0))
    assert statistics.mean(found) < 0.05, found


@pytest.mark.parametrize("liar", [little_work, growing_work])
def test_claim_of_little_work_gains_little(liar):
    found = gains("worst_rho_first", liar, seed=3)
    assert statistics.mean(found) < 0.0, found
