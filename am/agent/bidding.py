"""Bids: rows over gangs, each with the value of what the app would then hold (auction.md, section 1).

What a bundle is worth
----------------------
A bundle is a number of GPUs for each slot and machine, on top of what the app keeps. V(bundle) is the largest
1/rho(T, restart) over all ways in which the app may divide it:

* New gangs are formed of the bundle's GPUs, at most one for each unfinished job that has none; each has a size that
  some job can run on, in whole tasks that lie on one machine each. A gang counts at the nearest level that spans it or
  at any farther one (lying nearer never hurts).
* A gang whose leases go on stays as it is. Where all of the app's jobs have a gang it may also grow, by GPUs of the
  bundle, where `growth_pays` for its job.
* Gangs up for renewal stay in place when all their GPUs that are up are in the bundle. Of one that does not stay, what
  is not up goes on as a smaller gang, or grows, where its job can run on that.
* One restart is paid, `restart_s`, unless every gang that the app had before stays as it was. So renewing in place is
  worth the restart that it saves, and losing a gang costs one even when the bundle is empty.
* T is `finish_time_s` of the gangs: jobs queue on them as `packing` puts them, later phases divide the same number of
  GPUs evenly.

GPUs may be left unused, so V never falls as a bundle grows.

Why rows lose nothing
---------------------
T depends on the gangs by size and level only, so a row need not say where they lie. Because the restart is paid once,
it does not matter *which* gangs up for renewal are given up: a gang that stays beside one that does not is worth what
a new gang of its size and level is worth, and the new one may lie anywhere. So rows either pin all gangs up for renewal
and cost no restart, or pin none and cost one. (Beside the latter stand rows of equal value that pin the best of the
gangs and ask for nothing else: they lose nothing and keep jobs where they are.)
What grows is pinned only where S tells its machine or its rack from others.

Where tables would be too large they are thinned, which `rows_dropped` counts: `divisions.asks_of`, `selection.select`.
`growth.growths` says which ways to grow are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from am.agent.batch import finish_times_s
from am.agent.demands import empty_bundle_s, growth_pays, make_report, unmet_demands
from am.agent.fairness import Valuer
from am.agent.finish_time import finish_time_s
from am.agent.lone import lone_rows
from am.agent.rows import RowMaker
from am.agent.selection import Needs, select, yardstick_of
from am.agent.tables import Table, asked_kinds, tables_of
from am.agent.views import AppView, GangAt, Surroundings
from themis.bids import Bid, BidRow, Offer

__all__ = ["ROW_CAP", "growth_pays", "make_bid", "make_report", "unmet_demands"]

ROW_CAP = 700
"""Rows a bid may hold. Past it rows are left out that others stand in for, at the least loss (`selection.select`)."""

_MOST_DROPPED = 10**9
"""Where `rows_dropped` stops counting: complete tables of large apps have more rows than a message can tell."""

_FEW_ASKS = 40
"""So many asks of an app of one job are timed one after the other: arrays would cost more than they save."""

_CLOSELY = 7
"""So many of the asks that end earliest are packed closely: each takes a millisecond or more."""

Counts = NDArray[np.int64]
Seconds = NDArray[np.float64]
Values = NDArray[np.float64]


def make_bid(app: AppView, offer: Offer, around: Surroundings) -> Bid:
    """The app's bid on an offer: V of nothing, and rows that tell V of every bundle.

    Args:
        app: The app now.
        offer: Free GPUs by machine and slot, those up for renewal included.
        around: The cluster.

    Returns:
        For every bundle within the offer the best row that it contains is worth V(bundle), as long as `rows_dropped`
        is 0 and the gangs' ways to grow are few (`growth.growths`).
    """
    return bid_by(app, Valuer.of(app, around), offer, around)


def bid_by(app: AppView, valuer: Valuer, offer: Offer, around: Surroundings) -> Bid:
    """`make_bid` by what times on bundles are worth: when it is, and how many apps there are, goes in with that."""
    empty_value = valuer.value(*empty_bundle_s(app, around))
    rows, dropped = lone_rows(app, offer, around, valuer, empty_value), 0
    if rows is None:
        rows, dropped = _rows_of_tables(app, offer, around, valuer, empty_value)
    return Bid(app_id=app.app_id, round_id=offer.round_id, empty_value=empty_value, rows=rows, rows_dropped=dropped)


def _rows_of_tables(
    app: AppView, offer: Offer, around: Surroundings, valuer: Valuer, empty_value: float
) -> tuple[tuple[BidRow, ...], int]:
    """The rows to send, cheapest first, and how many were left out."""
    tables = tables_of(app, offer, around)
    all_times_s = _times_s(app, tables, around)
    values = [valuer.values(times_s, table.switch_s) for table, times_s in zip(tables, all_times_s, strict=True)]
    chosen, useful = _chosen(tables, values, empty_value)
    maker = RowMaker(tables)
    rows = tuple([maker.row(table, ask, float(values[table][ask])) for table, ask in chosen])
    missing = useful - len(rows) + sum([table.missing for table in tables])
    return rows, min(missing, _MOST_DROPPED)


_Name = tuple[int, int]
"""Table and ask."""


def _times_s(app: AppView, tables: list[Table], around: Surroundings) -> list[Seconds]:
    """T of every ask of every table. All of them are timed together, but for the few of a single job."""
    if len(app.jobs) == 1 and sum([len(table.asks) for table in tables]) <= _FEW_ASKS:
        return [_single_job_s(app, table, around) for table in tables]
    gangs: dict[GangAt, int] = {}
    for table in tables:
        for gang in (*table.gangs, *(kind.at for kind in table.kinds)):
            gangs.setdefault(gang, len(gangs))
    counts = [table.counts_of(gangs) for table in tables]
    if not counts:
        return []
    times_s = _told_s(app, tuple(gangs), np.concatenate(counts), around)
    ends = np.cumsum([len(some) for some in counts])
    return np.split(times_s, ends[:-1])


def _told_s(app: AppView, gangs: tuple[GangAt, ...], counts: Counts, around: Surroundings) -> Seconds:
    """T of every row of counts; the best are packed more closely for an app that holds nothing.

    What an app holds is timed without that wherever it is compared with a bundle, and a bundle must not look better
    than it only because of how closely it is packed.
    """
    times_s = finish_times_s(app, gangs, counts, around)
    if not app.held:
        best = np.argsort(times_s, kind="stable")[:_CLOSELY]
        times_s[best] = finish_times_s(app, gangs, counts[best], around, closely=True)
    return times_s


def _single_job_s(app: AppView, table: Table, around: Surroundings) -> Seconds:
    """T of every ask of a table of an app of one job."""
    times_s = []
    for ask in table.asks.tolist():
        new = [kind.at for kind, count in zip(table.kinds, ask, strict=True) for _ in range(count)]
        times_s.append(finish_time_s(app, [*table.gangs, *new], around))
    return np.array(times_s)


def _chosen(tables: list[Table], values: list[Values], empty_value: float) -> tuple[list[_Name], int]:
    """The rows to send, cheapest first, and how many would have been useful."""
    steady = [(table, 0) for table, each in enumerate(tables) if each.steady and values[table][0] > empty_value]
    steady = steady[: ROW_CAP // 4]
    loose = [(place, table) for place, table in enumerate(tables) if not table.steady]
    useful = {place: _worth_a_look(table, values[place], empty_value) for place, table in loose}
    names = [(place, ask) for place, asks in useful.items() for ask in asks]
    if not names:
        return steady, len(steady)
    if len(names) == 1:
        chosen, useful_rows = names, 1
    else:
        needed = _needed(tables, useful)
        valued = np.concatenate([values[place][asks] for place, asks in useful.items()])
        gains = np.log(valued / empty_value) if empty_value > 0 else valued
        totals = np.concatenate([tables[place].gpus[asks] for place, asks in useful.items()])
        order = np.lexsort((-gains, needed.sum(axis=1)))
        places, useful_rows, _ = select(needed[order], gains[order], totals[order], ROW_CAP - len(steady))
        chosen = [names[order[place]] for place in places]
    sent = [*steady, *chosen]
    # Of equals a solver takes the first: rows that keep jobs where they are come before others that are worth the same.
    sent.sort(key=lambda name: tables[name[0]].gpus[name[1]])
    return sent, useful_rows + len(steady)


def _needed(tables: list[Table], useful: Mapping[int, list[int]]) -> Needs:
    """What the useful asks of these tables need, in their order: gangs, and GPUs that they pin."""
    kinds = asked_kinds(tables)
    asked = np.concatenate([tables[place].asked_of(kinds)[asks] for place, asks in useful.items()])
    needed = yardstick_of(tuple(kinds)).needs(asked)
    machines = sorted({machine for place in useful for gang in tables[place].pinned for machine, _ in gang})
    if not machines:
        return needed
    pinned = np.concatenate([tables[place].pinned_on(machines)[asks] for place, asks in useful.items()])
    return np.column_stack((needed, pinned.astype(needed.dtype)))


def _worth_a_look(table: Table, values: Values, empty_value: float) -> list[int]:
    """The asks of a table that are worth more than nothing and not made useless by one next to them."""
    if not table.may_ask:
        return []
    wanted = (values > empty_value) & table.asks_for_something & table.neighbours.not_beaten(values)
    found: list[int] = wanted.nonzero()[0].tolist()
    return found
