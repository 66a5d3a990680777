"""The compiled functions of `am/agent/core` that build and prune candidates, in plain Python.

Each function has the signature of its compiled twin (`am/agent/_candidates.pyi`) and returns bit-identical results.
Tests call both, or put this module in the place of the compiled one.
"""

import heapq
import itertools
import math
import operator

import numpy as np

AT_ONCE = 64


# ---- MULTIFIT -------------------------------------------------------------------------------------------------------


def fit_by_end(times_s, takes, gang_gpus, most, max_gpus, max_gangs, end_s, gpus, out):
    """First fit under an end: gangs on which all jobs end in time; False if there are none."""
    sizes, takes_of = gang_gpus.tolist(), takes.tolist()
    loads_s = [[] for _ in sizes]
    opened = []
    left = [float(math.ceil(count * gpus / max_gpus)) for count in most.tolist()]
    for job_times_s in times_s.tolist():
        # The first kind of gang of which one is open and has time for the job.
        for place in opened:
            mine_s = loads_s[place]
            if mine_s[0] + job_times_s[place] <= end_s:
                heapq.heapreplace(mine_s, mine_s[0] + job_times_s[place])
                break
        else:
            new = _smallest(job_times_s, sizes, takes_of, end_s, gpus, left)
            if new is None or not max_gangs:
                return False
            heapq.heappush(loads_s[new], job_times_s[new])
            opened = sorted({*opened, new})
            left = [have - taken for have, taken in zip(left, takes_of[new], strict=True)]
            max_gangs, gpus = max_gangs - 1, gpus - sizes[new]
    out[:] = [len(mine_s) for mine_s in loads_s]
    return True


def _smallest(job_times_s, sizes, takes_of, end_s, gpus, left):
    for place, (time_s, size) in enumerate(zip(job_times_s, sizes, strict=True)):
        if time_s <= end_s and size <= gpus and all(map(operator.le, takes_of[place], left)):
            return place
    return None


# ---- layouts --------------------------------------------------------------------------------------------------------


def at_tightest(most, within, kinds_of, sizes, parts):
    """Gangs as near as there is free capacity, once for each part of the near places."""
    laid = [_laid_near(most.tolist(), within.tolist(), kinds_of, sizes, near) for near in parts]
    return [candidate for candidate in laid if candidate is not None]


def _laid_near(most, within, kinds_of, sizes, near):
    counts, taken = [0] * len(most), [0] * 4
    for size, unit, wanted in sizes:
        count, places = wanted, kinds_of.get((size, unit), ())
        for number, place in enumerate(places):
            here = min(count, _left_for(most, within, places[number:], size, taken, near))
            if here:
                counts[place] += here
                count -= here
                # What is in a slot is in its machine too: GPUs taken at a level are taken at all looser ones.
                for level in range(within[place], 4):
                    taken[level] += here * size
            if not count:
                break
        if count:
            return None
    return tuple(counts)


def _left_for(most, within, places, size, taken, near):
    first = places[0]
    allowed = math.floor(near * most[first] + 1e-9) if len(places) > 1 else most[first]
    left = allowed - -(-taken[within[first]] // size)
    for place in places[1:]:
        left = min(left, most[place] - -(-taken[within[place]] // size))
    return max(0, left)


def at_two_levels(most, within, kinds_of, sizes, loose_counts):
    """Gangs at one level, or the first of them at a looser one."""
    limits, levels_of = most.tolist(), within.tolist()
    if any((gpus, unit) not in kinds_of for gpus, unit, _ in sizes):
        return []
    chosen = [kinds_of[gpus, unit] for gpus, unit, _ in sizes]
    levels = [level for level in range(4) if any(levels_of[places[level]] == level for places in chosen)]
    found = []
    for near, far in itertools.combinations_with_replacement(levels, 2):
        for away in loose_counts if near != far else (0,):
            counts, left = [0] * len(limits), away
            for (_, _, count), places in zip(sizes, chosen, strict=True):
                looser = min(left, count)
                left -= looser
                counts[places[far]] += looser
                counts[places[near]] += count - looser
            if all(map(operator.le, counts, limits)):
                found.append(tuple(counts))
    return found


# ---- list scheduling ------------------------------------------------------------------------------------------------


def by_work(work_s, shape, shapes, slowdown, max_gpus, step):
    """The smallest gang for job after job, then task by task to the job that would end last."""
    found, counts = [], {}
    gpus, reported = 0, 0.0
    turns = [(-math.inf, place, 0) for place in range(len(work_s))]
    while turns:
        _, place, size = heapq.heappop(turns)
        row = int(shape[place])
        smallest, unit, largest = shapes[row].tolist()
        more = unit if size else smallest
        if size == largest or gpus + more > max_gpus:
            continue
        if gpus and gpus + more > max(reported + 1, reported * step):
            reported = gpus
            found.append((gpus, _largest_first(counts)))
        if size:
            counts[size, unit] -= 1
        gpus, size = gpus + more, size + more
        counts[size, unit] = counts.get((size, unit), 0) + 1
        heapq.heappush(turns, (-float(work_s[place]) * float(slowdown[row, size // unit]) / size, place, size))
    if gpus:
        found.append((gpus, _largest_first(counts)))
    return found


def in_turn(work_s, members, shapes, max_gangs, max_gpus, step):
    """Step by step to the shape with most work for each of its GPUs."""
    rows, works_s, jobs = shapes.tolist(), work_s.tolist(), members.tolist()
    of_gangs, of_gpus = [0] * len(rows), [0] * len(rows)
    turns = [(-math.inf, -each_s, place) for place, each_s in enumerate(works_s)]
    heapq.heapify(turns)
    gangs = gpus = 0
    reported, found = 0.0, []
    while turns:
        _, _, place = heapq.heappop(turns)
        smallest, unit, largest = rows[place]
        opens = of_gangs[place] < jobs[place]
        more = smallest if opens else unit if of_gpus[place] < of_gangs[place] * largest else 0
        if not more or gpus + more > max_gpus or (opens and gangs == max_gangs):
            continue
        if gpus + more > max(reported + 1, reported * step) and gpus > reported:
            reported = gpus
            found.append((gpus, _even(rows, of_gangs, of_gpus)))
        gangs, gpus = gangs + opens, gpus + more
        of_gangs[place] += opens
        of_gpus[place] += more
        heapq.heappush(turns, (-works_s[place] / of_gpus[place], -works_s[place], place))
    if gpus > reported:
        found.append((gpus, _even(rows, of_gangs, of_gpus)))
    return found


def _even(rows, of_gangs, of_gpus):
    """Each shape's GPUs, split evenly over its gangs."""
    counts = {}
    for (smallest, unit, largest), gangs, gpus in zip(rows, of_gangs, of_gpus, strict=True):
        running = min(gangs, gpus // smallest)
        if running <= 0:
            continue
        each, more = divmod(min(gpus // unit, running * (largest // unit)), running)
        for size, count in (((each + 1) * unit, more), (each * unit, running - more)):
            if count:
                counts[size, unit] = counts.get((size, unit), 0) + count
    return _largest_first(counts)


def _largest_first(counts):
    return tuple((size, unit, counts[size, unit]) for size, unit in sorted(counts, reverse=True) if counts[size, unit])


# ---- enumeration ----------------------------------------------------------------------------------------------------


def on_grids(counts, ends, gang_gpus, max_gangs, max_gpus, out):
    """All choices of a count for each kind; -1 if `out` cannot hold them."""
    asks = np.zeros((1, 0), dtype=np.int64)
    gangs = gpus = np.zeros(1, dtype=np.int64)
    for grid, size in zip(np.split(counts, ends[:-1]), gang_gpus.tolist(), strict=True):
        left = np.minimum(max_gangs - gangs, (max_gpus - gpus) // size)
        choices = grid.searchsorted(left, side="right")
        after = choices.cumsum()
        total = int(choices.sum())
        # Every candidate goes on with a count of 0, so their number never falls.
        if total > len(out):
            return -1
        ask = np.arange(len(asks)).repeat(choices)
        more = grid[np.arange(total) - (after - choices)[ask]]
        asks = np.column_stack((asks[ask], more))
        gangs, gpus = gangs[ask] + more, gpus[ask] + more * size
    out[: len(asks)] = asks
    return len(asks)


# ---- dominance ------------------------------------------------------------------------------------------------------


def one_step_variants(keys, asks, places, changes, harder, easier):
    """Pairs of candidates of which a change makes the easier one of the harder one."""
    order, many = np.argsort(keys), 0
    for place, change in zip(places.tolist(), changes.tolist(), strict=True):
        with_it = np.flatnonzero(asks[:, place])
        wanted = keys[with_it] + change
        found = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(order) - 1)]
        there = keys[found] == wanted
        more = int(there.sum())
        harder[many : many + more], easier[many : many + more] = with_it[there], found[there]
        many += more
    return many


def undominated(values, gains, needs, gpus, harder, easier, empty_value, kept):
    """Candidates worth more than the empty bundle that no other one dominates, fewest needs first."""
    wanted = (values > empty_value) & (gpus > 0)
    wanted[harder[values[easier] >= values[harder]]] = False
    places = np.flatnonzero(wanted)
    order = places[np.lexsort((-gains[places], needs[places].sum(axis=1)))]
    chosen = np.empty(len(order), dtype=np.int64)
    many = uncovered(needs[order], gains[order], gains[order], 0, len(order), chosen)
    kept[:many] = order[chosen[:many]]
    return many


def uncovered(needs, gains, enough, first, cap, kept):
    """Keep the first candidates and every later one that none kept before covers; stops past the cap."""
    chosen = kept[:first].tolist()
    for begin in range(0, len(gains), AT_ONCE):
        some = np.arange(begin, min(begin + AT_ONCE, len(gains)))
        if chosen:
            some = some[~_covers(needs[chosen], gains[chosen], needs[some], enough[some]).any(axis=0)]
        covers = _covers(needs[some], gains[some], needs[some], enough[some])
        covered = np.zeros(len(some), dtype=bool)
        for number, place in enumerate(some.tolist()):
            if not covered[number]:
                chosen.append(place)
                covered |= covers[number]
        if len(chosen) > cap:
            break
    kept[: len(chosen)] = chosen[: len(kept)]
    return len(chosen)


def _covers(needs, gains, others, enough):
    """Which candidates fit wherever others fit and gain enough to replace them, candidates by others."""
    return (gains[:, None] >= enough) & (needs[:, None, :] <= others[None, :, :]).all(axis=2)
