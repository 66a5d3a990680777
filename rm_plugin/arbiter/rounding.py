"""From a kept share to whole gangs: which of the gangs won an app keeps (themis.md, section 3, step 4)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

from rm_plugin.arbiter.seeds import child_seed
from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.bids import PlacedGang
from themis.choices import Rounding
from themis.cluster import Allocation
from themis.errors import InputError


def keep_shares(
    gangs: Mapping[str, Sequence[PlacedGang]],
    shares: Mapping[str, float],
    slowdowns: Mapping[str, Slowdown],
    seed: int,
    rounding: Rounding = Rounding.PROBABILISTIC,
) -> dict[str, tuple[PlacedGang, ...]]:
    """What every winner keeps of its gangs.

    Each app draws from its own child seed of (seed, app id), so the others and their order do not matter.

    Args:
        gangs: Gangs won by app id, pinned ones included.
        shares: c_i by app id.
        slowdowns: S by app id; the crude one where an app is absent.
        seed: The round's seed.
        rounding: How to round.
    """
    kept = {}
    for app_id in sorted(gangs):
        rng = random.Random(child_seed(seed, "rounding", app_id))
        slowdown = slowdowns.get(app_id, CRUDE_SLOWDOWN)
        kept[app_id] = keep_share(gangs[app_id], shares[app_id], slowdown, rng, rounding)
    return kept


def keep_share(
    gangs: Sequence[PlacedGang],
    share: float,
    slowdown: Slowdown,
    rng: random.Random,
    rounding: Rounding = Rounding.PROBABILISTIC,
) -> tuple[PlacedGang, ...]:
    """The gangs kept of those won, those of least S first.

    Ties in S go to the nearer level, then to pinned GPUs (they need no restart), then to the larger gang, then to the
    smaller machine ids and slot. Pinned GPUs count as a gang a machine.

    Args:
        gangs: Gangs won.
        share: c_i in [0, 1].
        slowdown: S of the app.
        rng: Drawn from once under `probabilistic` and `by_gpu`, also when the draw decides nothing.
        rounding: `probabilistic` keeps floor(c k) gangs and one more with the fractional probability; `nearest` rounds
            c k half up; `by_gpu` does as `probabilistic` but in GPUs, which may leave a part of one gang.
    """
    if not 0.0 <= share <= 1.0:
        raise InputError("a kept share must lie between 0 and 1", value=share)
    ranked = sorted(gangs, key=lambda gang: _preference(gang, slowdown))
    return _KEEP[rounding](ranked, share, rng)


def _preference(gang: PlacedGang, slowdown: Slowdown) -> tuple[object, ...]:
    slot = -1 if gang.slot is None else gang.slot
    return (slowdown.at(gang.level), gang.level, not gang.pinned, -gang.gpus.gpus, gang.gpus.counts, slot)


def _drawn(expected: float, rng: random.Random) -> int:
    """A whole number of that expectation, one of the two nearest."""
    whole = math.floor(expected)
    return whole + (rng.random() < expected - whole)


def _probabilistic(ranked: Sequence[PlacedGang], share: float, rng: random.Random) -> tuple[PlacedGang, ...]:
    return tuple(ranked[: _drawn(share * len(ranked), rng)])


def _nearest(
    ranked: Sequence[PlacedGang],
    share: float,
    rng: random.Random,  # noqa: ARG001 - one signature for all roundings
) -> tuple[PlacedGang, ...]:
    return tuple(ranked[: math.floor(share * len(ranked) + 0.5)])


def _by_gpu(ranked: Sequence[PlacedGang], share: float, rng: random.Random) -> tuple[PlacedGang, ...]:
    left = _drawn(share * sum(gang.gpus.gpus for gang in ranked), rng)
    kept = []
    for gang in ranked:
        if left <= 0:
            break
        kept.append(_cut(gang, left))
        left -= kept[-1].gpus.gpus
    return tuple(kept)


def _cut(gang: PlacedGang, gpus: int) -> PlacedGang:
    """At most `gpus` GPUs of a gang, from the machines where it has most; its level stays the gang's."""
    if gang.gpus.gpus <= gpus:
        return gang
    counts: dict[str, int] = {}
    for machine, count in sorted(gang.gpus, key=lambda part: (-part[1], part[0])):
        counts[machine] = min(count, gpus - sum(counts.values()))
    return PlacedGang(gpus=Allocation.of(counts), level=gang.level, slot=gang.slot, pinned=gang.pinned)


_KEEP: Mapping[Rounding, Callable[[Sequence[PlacedGang], float, random.Random], tuple[PlacedGang, ...]]] = {
    Rounding.PROBABILISTIC: _probabilistic,
    Rounding.NEAREST: _nearest,
    Rounding.BY_GPU: _by_gpu,
}
