"""The Policy port: one small class, one method."""

from __future__ import annotations

from typing import Protocol

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from themis.bids import RhoOf


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
