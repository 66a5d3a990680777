"""How many states the searches of one market may keep: it falls with failures and rises with proofs."""

from __future__ import annotations

import math

_STATES_PER_PAIR, _MAX_STATES = 5_000, 8_000_000
"""Limit on the states of one search, by pairs of bidders. Past it HiGHS decides, which takes about as long for a
problem of that size. Most problems keep a few hundred per bidder; a million takes 0.2 to 0.5 s, eight some 300 MB."""

_FIRST_DIVISOR, _LAST_DIVISOR = 20, 320
"""A search first keeps this fraction of the limit, until a beam search has found the cuts that narrow it. The second
divisor is the least budget after many failures in a market that shares one."""

_SHRINK = 4
"""A failure divides the budget by this. It falls faster than it grows again (twofold), because a search that fails has
used up its whole budget for nothing. Chosen, not tuned."""


class StateBudget:
    """The budget of one market. Counted in states, not seconds, so that answers are the same on every machine.

    Args:
        bidders: Number of bidders.
        shared: Whether all problems together may exceed `first` by the limit of one search only. True for markets too
            large for HiGHS, in which one problem after the other may be too wide.

    Attributes:
        first: States of a problem's first search.
        states: States of its later searches; at most `first` once the shared allowance is spent.
    """

    def __init__(self, bidders: int, *, shared: bool) -> None:
        self.states = min(_STATES_PER_PAIR * bidders**2, _MAX_STATES)
        self._few = max(1, self.states // _FIRST_DIVISOR)
        self._least = max(1, self.states // (_LAST_DIVISOR if shared else _FIRST_DIVISOR))
        self._spare = self.states if shared else math.inf

    @property
    def first(self) -> int:
        """States of a problem's first search."""
        return min(self._few, self.states)

    def spend(self, states: int) -> None:
        """Note what a search kept: what exceeds the first budget comes out of the shared allowance."""
        self._spare -= max(0, states - self._few)
        if self._spare <= 0:
            self.states = min(self.states, self._few)

    def shrink(self) -> None:
        """A problem was too wide; the others of its market are similar."""
        self.states = max(self.states // _SHRINK, self._least)

    def grow(self) -> None:
        """A problem was solved within its budget: back towards the first budget."""
        self.states = max(self.states, min(self.states * 2, self._few))
