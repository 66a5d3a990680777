"""Bids of apps of one job that asks for its gang: it has none, or all of that which it has is up for renewal.

A row of such a bid asks for one gang: one that finds room, or the one that the job runs on, pinned. What may be asked
for is known for all jobs of a shape and S wherever the same gangs find room; only what it is worth is worked out for
each bid. That is what `bidding` makes of tables, to the last bit, which tests hold it to: most bids of a cluster whose
apps are single jobs are such bids, and tables take several times as long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from am.agent.divisions import asks_of
from am.agent.fairness import Valuer
from am.agent.finish_time import pace_of
from am.agent.kinds import GangKind, Room, gang_kinds, lone_fits, room_of, telling_slowdown
from am.agent.memo import Memo
from am.agent.selection import just_easier, yardstick_of
from am.agent.views import AppView, GangAt, HeldGang, JobView, Surroundings
from themis.apps import JobShape, Slowdown
from themis.bids import BidRow, Gang, Offer
from themis.cluster import Allocation, Level
from themis.values import Value

_MOST_KINDS = 32
"""Kinds of gangs at most: which ask stands in for which is looked up for all pairs, and `Neighbours` knows of all."""


class Ask(Value, frozen=True, kw_only=True):
    """One gang, or the job's own, pinned; `slowdown` is the job's S there, `usable` how many of the GPUs it can use.

    `needs` is the sum of what `Yardstick` says that it needs; it fits wherever one of `instead_of` fits, by place.
    `easier` are the places of its neighbours that ask for a little less.
    """

    slowdown: float
    usable: int
    gpus: int
    needs: int
    instead_of: frozenset[int] = frozenset()
    easier: tuple[int, ...] = ()
    gangs: tuple[Gang, ...] = ()
    pinned: Allocation = Allocation()
    pinned_gangs: tuple[Allocation, ...] = ()

    def time_s(self, work_s: float) -> float:
        """T of a job with so much serial work left, in seconds."""
        return work_s * self.slowdown / self.usable if self.usable else math.inf


Asks = tuple[Ask, ...]

_IN_ROOMS: Memo[Asks | None] = Memo(most_parts=4096)
"""What jobs may ask for in rooms in which the same gangs fit."""


def lone_rows(
    app: AppView, offer: Offer, around: Surroundings, valuer: Valuer, empty_value: float
) -> tuple[BidRow, ...] | None:
    """The rows of the bid, fewest GPUs first; None for an app that it takes tables to tell of.

    Args:
        app: The app now.
        offer: Free GPUs by machine and slot, those up for renewal included.
        around: The cluster.
        valuer: What times on bundles are worth.
        empty_value: What nothing is worth.
    """
    own = app.held[0] if app.held else None
    if not _is_alone(app, own):
        return None
    job = app.jobs[0]
    asks = asks_in(app, room_of(offer.free, offer, around))
    if asks is None:
        return None
    work_s, switch_s = job.serial_work_s, 0.0 if own is None else app.restart_s
    values = [valuer.value(ask.time_s(work_s), switch_s) for ask in asks]
    # The ResourceManager may not offer what the app thinks is up: a row that pins it would cost the whole bid.
    if own is not None and own.up.within(offer.free):
        renewed = _renewed(job.shape, job.slowdown, own.at, own.up)
        asks, values = (*asks, renewed), [*values, valuer.value(renewed.time_s(work_s))]
    return rows_worth(asks, values, empty_value)


def asks_in(app: AppView, room: Room) -> Asks | None:
    """The new gangs that an app of one job may ask for in a room, one an ask; None where they are too many."""
    job = app.jobs[0]
    alike = room.traits, lone_fits(app, room)
    return _IN_ROOMS.of((job.shape, telling_slowdown(job)), alike, lambda: _asks(job, gang_kinds(app, room)))


def rows_worth(asks: Asks, values: Sequence[float], empty_value: float) -> tuple[BidRow, ...]:
    """Rows for the asks, of these values, that are worth more than nothing and for which no other one stands in."""
    if len(asks) == 1:
        return (_row(asks[0], values[0]),) if values[0] > empty_value else ()
    sent = sorted(_useful(asks, values, empty_value), key=lambda place: asks[place].gpus)
    return tuple([_row(asks[place], values[place]) for place in sent])


def _is_alone(app: AppView, own: HeldGang | None) -> bool:
    """Whether the app has one job, and that no gang or one which is up for renewal as a whole."""
    if len(app.jobs) != 1 or app.later_phases or len(app.held) > 1:
        return False
    return own is None or (own.renewable and own.up == own.gpus and own.job_id == app.jobs[0].job_id)


def _asks(job: JobView, kinds: tuple[GangKind, ...]) -> Asks | None:
    """An ask for each kind; None where they are too many."""
    return _of_kinds(job.shape, telling_slowdown(job), kinds) if len(kinds) <= _MOST_KINDS else None


@lru_cache(maxsize=4096)
def _of_kinds(shape: JobShape, slowdown: Slowdown, kinds: tuple[GangKind, ...]) -> Asks:
    """An ask for each kind, in the order in which tables have them; jobs alike share them."""
    if not kinds:
        return ()
    counts, _ = asks_of(kinds, 1, max(kind.at.gpus for kind in kinds), ())
    counts = counts[counts.any(axis=1)]
    needs, order = yardstick_of(kinds).needs(counts), counts.argmax(axis=1).tolist()
    asks = []
    for mine, number in zip(needs, order, strict=True):
        kind = kinds[number]
        s, usable = pace_of(shape, slowdown, kind.at)
        asks.append(
            Ask(
                slowdown=s,
                usable=usable,
                gpus=kind.at.gpus,
                needs=int(mine.sum()),
                instead_of=frozenset((mine <= needs).all(axis=1).nonzero()[0].tolist()),
                easier=tuple([order.index(other) for other in just_easier(kinds, number)]),
                gangs=_one_gang(kind.at.gpus, kind.within, kind.unit_gpus),
            )
        )
    return tuple(asks)


@lru_cache(maxsize=4096)
def _one_gang(gpus: int, within: Level, unit_gpus: int) -> tuple[Gang, ...]:
    """The gang that a row asks for. Bids share them: whoever reads a market knows a gang again by its identity."""
    return (Gang(gpus=gpus, within=within, unit_gpus=unit_gpus),)


@lru_cache(maxsize=4096)
def _renewed(shape: JobShape, slowdown: Slowdown, at: GangAt, up: Allocation) -> Ask:
    """The ask for the job's own gang."""
    s, usable = pace_of(shape, slowdown, at)
    return Ask(slowdown=s, usable=usable, gpus=up.gpus, needs=up.gpus, pinned=up, pinned_gangs=(up,))


def _useful(asks: Asks, values: Sequence[float], empty_value: float) -> list[int]:
    """Asks that are worth more than nothing and for which no other stands in; fewest needs first.

    As `selection` has it. The job's own gang is told first of equals: it is the first table of a bid.
    """
    wanted = [place for place, value in enumerate(values) if value > empty_value]
    if len(wanted) < 2:
        return wanted
    wanted = [place for place in wanted if not any(values[other] >= values[place] for other in asks[place].easier)]
    gains = dict(zip(wanted, _gains([values[place] for place in wanted], empty_value), strict=True))
    wanted.sort(key=lambda place: (asks[place].needs, -gains[place], not asks[place].pinned_gangs))
    kept: list[int] = []
    for place in wanted:
        for other in kept:
            if gains[other] >= gains[place] and place in asks[other].instead_of:
                break
        else:
            kept.append(place)
    return kept


def _gains(values: Sequence[float], empty_value: float) -> list[float]:
    """What asks gain over nothing: logs, as in `bidding`; values that differ in the last bit may gain the same."""
    if empty_value <= 0:
        return list(values)
    gains: list[float] = np.log(np.array(values) / empty_value).tolist()
    return gains


def _row(ask: Ask, value: float) -> BidRow:
    return BidRow(value=value, gangs=ask.gangs, pinned=ask.pinned, pinned_gangs=ask.pinned_gangs)
