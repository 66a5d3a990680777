"""Agents for cells: functions of a module with plain arguments, so that runs with them cross to other processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rm_plugin.arbiter.seeds import child_seed
from simulator.agents import (
    Agent,
    ErringAgent,
    HonestAgent,
    Lie,
    LyingAgent,
    lie_about_rho,
    lie_about_slowdown,
    lie_about_work,
    lie_by_factor,
    lie_by_largest_row,
    lie_throughout,
)
from simulator.workload import AppTrace
from themis.errors import UnknownNameError

LIES: Mapping[str, Callable[[float], Lie]] = MappingProxyType(
    {
        "rows": lie_by_factor,
        "largest row": lie_by_largest_row,
        "rho": lie_about_rho,
        "throughout": lie_throughout,
        "work": lie_about_work,
        "slowdown": lie_about_slowdown,
    }
)
"""Lies by name. All take a factor but `slowdown`, which takes a share."""


def erring_agent(app: AppTrace, error: float, seed: int) -> Agent:
    """An honest agent that errs by up to `error`; each app errs on its own."""
    return ErringAgent(HonestAgent(), error, child_seed(seed, "error", app.name))


def lying_agent(app: AppTrace, liar: str, lie: str, amount: float) -> Agent:
    """A liar for the app of that name, honest agents for all others.

    Args:
        app: Whose agent is wanted.
        liar: The name of the app that lies.
        lie: A key of LIES.
        amount: What the lie takes.
    """
    if lie not in LIES:
        raise UnknownNameError("lie", lie, LIES)
    return LyingAgent(HonestAgent(), LIES[lie](amount)) if app.name == liar else HonestAgent()
