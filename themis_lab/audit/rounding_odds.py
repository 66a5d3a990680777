"""The outcomes of rounding payments, with their probabilities."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

from rm_plugin.arbiter.rounding import keep_share
from themis.apps import CRUDE_SLOWDOWN
from themis.bids import GangDemand, PlacedGang
from themis.choices import Rounding

Odds = Mapping[tuple[PlacedGang, ...], float]
"""Probability by the gangs kept."""

_NARROWEST = 2.0**-30
"""Random numbers closer than this count as equal."""


class _Draws(random.Random):
    """A random source that returns given numbers and records that one more was requested."""

    numbers: tuple[float, ...] = ()
    asked = 0

    def random(self) -> float:
        self.asked += 1
        return self.numbers[self.asked - 1] if self.asked <= len(self.numbers) else 0.0


def kept_odds(
    gangs: Sequence[PlacedGang],
    share: float,
    rounding: Rounding = Rounding.PROBABILISTIC,
    demands: Sequence[GangDemand] = (),
) -> Odds:
    """Return all outcomes of a rounding with their probabilities.

    The gangs kept are a step function of each uniform random number, given the previous ones. Bisection finds the
    steps.

    Args:
        gangs: Gangs won.
        share: The kept share c_i.
        rounding: The rounding.
        demands: The demands of the app's jobs.
    """
    return _odds(lambda draws: keep_share(gangs, share, CRUDE_SLOWDOWN, draws, rounding, demands), ())


def expected(odds: Odds, worth: Callable[[tuple[PlacedGang, ...]], float]) -> float:
    """The expected value of `worth` over the gangs kept."""
    return math.fsum(probability * worth(kept) for kept, probability in odds.items())


def _odds(keep: Callable[[_Draws], tuple[PlacedGang, ...]], numbers: tuple[float, ...]) -> Odds:
    """The outcomes given the first random numbers."""
    draws = _Draws(0)
    draws.numbers = numbers
    kept = keep(draws)
    if draws.asked <= len(numbers):
        return {kept: 1.0}

    def at(number: float) -> Odds:
        return _odds(keep, (*numbers, number))

    def between(low: float, high: float, at_low: Odds, at_high: Odds) -> Odds:
        if at_low == at_high or high - low < _NARROWEST:
            return {kept: (high - low) * probability for kept, probability in at_low.items()}
        middle = (low + high) / 2
        at_middle = at(middle)
        lower, upper = between(low, middle, at_low, at_middle), between(middle, high, at_middle, at_high)
        return {kept: lower.get(kept, 0.0) + upper.get(kept, 0.0) for kept in (*lower, *upper)}

    return between(0.0, 1.0, at(0.0), at(1.0 - _NARROWEST))
