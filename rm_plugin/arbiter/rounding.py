"""Round a kept share to whole gangs: which of its won gangs an app keeps (docs/explanation/auction.md, Roundings)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from rm_plugin.arbiter.seeds import child_seed
from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.bids import GangDemand, PlacedGang
from themis.choices import Rounding
from themis.cluster import Allocation
from themis.errors import InputError


def keep_shares(
    gangs: Mapping[str, Sequence[PlacedGang]],
    shares: Mapping[str, float],
    slowdowns: Mapping[str, Slowdown],
    seed: int,
    rounding: Rounding = Rounding.PROBABILISTIC,
    demands: Mapping[str, Sequence[GangDemand]] = MappingProxyType({}),
) -> dict[str, tuple[PlacedGang, ...]]:
    """Return the gangs that every winner keeps.

    For example, a winner of three gangs with c = 0.8 expects 2.4 of them: it keeps two, and the third with probability
    0.4. The gang that it gives up first is the one of largest S.

    Each app draws from its own child seed of (seed, app id), so other apps and their order do not matter.

    Args:
        gangs: Gangs won by app id, pinned ones included.
        shares: c_i by app id.
        slowdowns: S by app id; the crude one for absent apps.
        seed: The round's seed.
        rounding: How to round.
        demands: The demands of each app's jobs, by app id. `by_gpu` needs them to know which sizes a job can use.
    """
    kept = {}
    for app_id in sorted(gangs):
        if shares[app_id] == 1.0:
            # Every draw keeps all. Most winners pay nothing, and seeding a generator is slow.
            kept[app_id] = _by_preference(gangs[app_id], slowdowns.get(app_id, CRUDE_SLOWDOWN))
            continue
        rng = random.Random(child_seed(seed, "rounding", app_id))
        slowdown = slowdowns.get(app_id, CRUDE_SLOWDOWN)
        mine = demands.get(app_id, ())
        kept[app_id] = keep_share(gangs[app_id], shares[app_id], slowdown, rng, rounding, mine)
    return kept


def keep_share(
    gangs: Sequence[PlacedGang],
    share: float,
    slowdown: Slowdown,
    rng: random.Random,
    rounding: Rounding = Rounding.PROBABILISTIC,
    demands: Sequence[GangDemand] = (),
) -> tuple[PlacedGang, ...]:
    """The gangs that an app keeps, least S first.

    Ties in S go to the tighter level, then to pinned GPUs (they need no restart), then to the larger gang, then to the
    smaller machine ids and slot. Pinned GPUs that belong together are one gang, also over several machines.

    Args:
        gangs: Gangs won.
        share: c_i in [0, 1].
        slowdown: S of the app.
        rng: Used once under `probabilistic`, `by_gpu` and `capped`, even if the draw decides nothing.
        rounding: `probabilistic` keeps floor(c k) gangs and one more with the fractional probability; `nearest` rounds
            c k half up; `by_gpu` rounds like `probabilistic` but in GPUs, which may keep a part of one gang. `capped`
            does as `by_gpu`, but leaves at least the smallest part of the first gang that a job can use.
        demands: The demands of the app's jobs. `by_gpu` cuts a gang only to a size that one of them can use. The
            largest such part may be less than the share. Then a second draw keeps the gang whole or cuts it to that
            part. If there is no such part, the draw keeps or drops the gang. The expected number of GPUs stays the
            same.
    """
    if not 0.0 <= share <= 1.0:
        raise InputError("a kept share must lie between 0 and 1", value=share)
    return _KEEP[rounding](_by_preference(gangs, slowdown), share, rng, demands)


def _by_preference(gangs: Sequence[PlacedGang], slowdown: Slowdown) -> tuple[PlacedGang, ...]:
    return tuple(sorted(gangs, key=lambda gang: _preference(gang, slowdown)))


def _preference(gang: PlacedGang, slowdown: Slowdown) -> tuple[object, ...]:
    slot = -1 if gang.slot is None else gang.slot
    return (slowdown.at(gang.level), gang.level, not gang.pinned, -gang.gpus.gpus, gang.gpus.counts, slot)


def _drawn(expected: float, rng: random.Random) -> int:
    """Draw one of the two nearest whole numbers, with this expectation."""
    whole = math.floor(expected)
    return whole + (rng.random() < expected - whole)


def _probabilistic(
    ranked: Sequence[PlacedGang],
    share: float,
    rng: random.Random,
    demands: Sequence[GangDemand],  # noqa: ARG001 - one signature for all roundings
) -> tuple[PlacedGang, ...]:
    return tuple(ranked[: _drawn(share * len(ranked), rng)])


def _nearest(
    ranked: Sequence[PlacedGang],
    share: float,
    rng: random.Random,  # noqa: ARG001 - one signature for all roundings
    demands: Sequence[GangDemand],  # noqa: ARG001
) -> tuple[PlacedGang, ...]:
    return tuple(ranked[: math.floor(share * len(ranked) + 0.5)])


def _by_gpu(
    ranked: Sequence[PlacedGang], share: float, rng: random.Random, demands: Sequence[GangDemand]
) -> tuple[PlacedGang, ...]:
    left = _drawn(share * sum(gang.gpus.gpus for gang in ranked), rng)
    kept = []
    for gang in ranked:
        if gang.gpus.gpus <= left:
            kept.append(gang)
            left -= gang.gpus.gpus
            continue
        part = _largest_part(gang, left, demands)
        least = 0 if part is None else part.gpus.gpus
        if least < left and rng.random() < (left - least) / (gang.gpus.gpus - least):
            part = gang
        return (*kept, part) if part is not None else tuple(kept)
    return tuple(kept)


def _capped(
    ranked: Sequence[PlacedGang], share: float, rng: random.Random, demands: Sequence[GangDemand]
) -> tuple[PlacedGang, ...]:
    kept = _by_gpu(ranked, share, rng, demands)
    if kept or not ranked:
        return kept
    closest = ranked[0]
    parts = [
        part
        for demand in demands
        if (part := _cut(closest, -(-demand.min_gpus // demand.unit_gpus) * demand.unit_gpus, demand)) is not None
    ]
    return (min(parts, key=lambda part: part.gpus.gpus, default=closest),)


def _largest_part(gang: PlacedGang, gpus: int, demands: Sequence[GangDemand]) -> PlacedGang | None:
    """The largest part of a gang, up to `gpus` GPUs, that one of the jobs can use. Returns None if there is none."""
    parts = [part for demand in demands if (part := _cut(gang, gpus, demand)) is not None]
    return max(parts, key=lambda part: part.gpus.gpus, default=None)


def _cut(gang: PlacedGang, gpus: int, demand: GangDemand) -> PlacedGang | None:
    """Whole units of a gang, from machines with most of its GPUs first (ties by id). Returns None if too few."""
    left, counts = min(gpus, demand.max_gpus), {}
    for machine, count in sorted(gang.gpus, key=lambda part: (-part[1], part[0])):
        taken = min(count, left) // demand.unit_gpus * demand.unit_gpus
        counts[machine] = taken
        left -= taken
    if sum(counts.values()) < demand.min_gpus:
        return None
    return replace(gang, gpus=Allocation.of(counts))


Rule = Callable[[Sequence[PlacedGang], float, random.Random, Sequence[GangDemand]], tuple[PlacedGang, ...]]

_KEEP: Mapping[Rounding, Rule] = {
    Rounding.PROBABILISTIC: _probabilistic,
    Rounding.NEAREST: _nearest,
    Rounding.BY_GPU: _by_gpu,
    Rounding.CAPPED: _capped,
}
