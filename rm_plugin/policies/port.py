"""The Policy port: one small class, one method."""

from __future__ import annotations

from typing import Protocol

from rm_plugin.arbiter.round_values import AskBids, Decision, RoundSnapshot, SolveAuction
from themis.bids import RhoOf


class Policy(Protocol):
    """Decides a round on its snapshot alone.

    A policy that needs bids or an auction says so and is asked again with the answer in the snapshot; the last thing
    it returns is its decision.
    """

    name: str
    rho_of: RhoOf
    """By whose rho it goes. Where nobody records or watches a run it sees no other; nor, of apps that want no more
    GPUs, `phases_left`."""

    def decide(self, snapshot: RoundSnapshot) -> AskBids | SolveAuction | Decision:
        """The next step of the round."""
        ...
