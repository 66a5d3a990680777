"""The Policy port: one small class, one method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from themis.bids import RhoOf
from themis.values import Value


class Policy(Protocol):
    """Decides a round from its snapshot alone.

    A policy that needs bids or an auction returns that request, and is called again with the answer in the snapshot.
    Finally it returns its decision.
    """

    name: str
    rho_of: RhoOf
    """The apps whose rho the policy uses. If a run is neither recorded nor watched, reports lack all other rho, and
    `phases_left` of apps without demand."""

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """Return the next step of the round."""
        ...


class PolicyTraits(Value, frozen=True, kw_only=True):
    """What holds for every decision of a policy.

    Attributes:
        work_conserving: No GPU stays idle that a job could use. Otherwise a job may wait for a better one.
        gangs: A job can get several devices. Otherwise each job gets one, and apps are refused whose jobs need more.
    """

    work_conserving: bool = True
    gangs: bool = True


USUAL_TRAITS = PolicyTraits()


def traits_of(policy: Policy) -> PolicyTraits:
    """The traits of a policy: its attribute `traits`, or the usual ones. Asked for each job that is submitted."""
    traits: PolicyTraits = getattr(policy, "traits", USUAL_TRAITS)
    return traits


@runtime_checkable
class PolicyWithMemory(Policy, Protocol):
    """A policy that must know something of earlier rounds, such as what it still owes to whom.

    Policy objects hold no state. What such a policy puts into `Decision.memory` is in `RoundSnapshot.memory` of the
    next round. It is None in the first round, and if the stored memory cannot be read at a restart. A round that is
    abandoned leaves the memory as it was.
    """

    memory_type: type[Value]
    """The class of its memory. msgspec must be able to convert it to JSON and back; numbers must be finite, and a
    field may be None only if that is its default."""


Explanation = tuple[tuple[str, str], ...]
"""Labels and texts, in the order in which a user reads them."""


@runtime_checkable
class ExplainingPolicy(PolicyWithMemory, Protocol):
    """A policy that explains to users why an app has its GPUs, from what it remembers."""

    def explain(self, memory: Value, app_id: str) -> Explanation:
        """Return what decides about an app; empty if the policy does not know it (yet)."""
        ...


class Figure(Value, frozen=True, kw_only=True):
    """A number that a policy publishes for operators, or several with labels.

    Attributes:
        name: What it measures, with its unit, in lower case. A total ends in `_total`.
        what: One sentence for operators.
        values: Labels and values.
        is_total: Whether it only grows, until the policy's memory begins again.
    """

    name: str
    what: str
    values: tuple[tuple[Mapping[str, str], float], ...]
    is_total: bool = False

    @classmethod
    def one(cls, name: str, what: str, value: float, *, is_total: bool = False) -> Figure:
        """A figure of one value without labels."""
        return cls(name=name, what=what, values=(({}, float(value)),), is_total=is_total)


@runtime_checkable
class MeasuredPolicy(PolicyWithMemory, Protocol):
    """A policy that publishes figures, from what it remembers."""

    def figures(self, memory: Value) -> tuple[Figure, ...]:
        """Return the figures after the newest round; empty if the memory is not its own."""
        ...
