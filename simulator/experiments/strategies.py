"""Agents for cells: functions of a module with plain arguments, so that runs with them cross to other processes."""

from __future__ import annotations

from rm_plugin.arbiter.seeds import child_seed
from simulator.agents import Agent, ErringAgent, HonestAgent, LyingAgent, lie_named
from simulator.workload import AppTrace


def erring_agent(app: AppTrace, error: float, seed: int) -> Agent:
    """An honest agent that errs by up to `error`; each app errs on its own."""
    return ErringAgent(HonestAgent(), error, child_seed(seed, "error", app.name))


def lying_agent(app: AppTrace, liar: str, lie: str, amount: float) -> Agent:
    """A liar for the app of that name, honest agents for all others.

    Args:
        app: Whose agent is wanted.
        liar: The name of the app that lies.
        lie: A key of `simulator.agents.LIES`.
        amount: What the lie takes.
    """
    told = lie_named(lie, amount)
    return LyingAgent(HonestAgent(), told) if app.name == liar else HonestAgent()
