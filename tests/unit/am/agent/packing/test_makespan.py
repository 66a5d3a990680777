"""Jobs on gangs: by hand, and the compiled packing against the plain one, to the last bit."""

import math
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
import reference_least_slack as least_slack
import reference_packing
from reference_least_slack import Filler
from reference_packing import PlainPacker

from am.agent import _packing
from am.agent.packing import makespan as packing
from am.agent.packing.makespan import end_times_s, left_out_s, packed

LIMITS = Path(_packing.__file__).parent / "core" / "limits.h"


def drawn(seed, jobs, kinds):
    """Seconds by job and kind: some jobs alike, some that cannot run on all kinds."""
    rng = Random(seed)
    speeds = [rng.choice((1.0, 1.1, 2.0, 3.5)) for _ in range(kinds)]
    works = sorted((rng.choice((rng.uniform(1, 90), 30.0)) for _ in range(jobs)), reverse=True)
    return [
        [math.inf if kind and rng.random() < 0.1 else work / speed for kind, speed in enumerate(speeds)]
        for work in works
    ]


def gangs_of(counts):
    return [kind for kind, count in enumerate(counts) for _ in range(count)]


def end_s(alone_s, kind, load_s, place):
    loads_s = list(load_s)
    for job, gang in enumerate(place):
        loads_s[gang] += alone_s[job][kind[gang]]
    return max(loads_s)


class TestByHand:
    def test_two_gangs_where_longest_first_is_too_late(self):
        assert packed([[3.0], [3.0], [2.0], [2.0], [2.0]], [0, 0], [0.0, 0.0])[0] == 6.0

    def test_a_busy_gang_is_waited_for_where_that_is_sooner(self):
        assert packed([[12.0, 4.0]], [0, 1], [0.0, 5.0]) == (9.0, [1])

    def test_a_job_without_a_usable_gang_never_ends(self):
        end, place = packed([[math.inf], [2.0]], [0], [0.0])
        assert (end, place) == (math.inf, [-1, 0])

    def test_no_gangs(self):
        assert packed([[1.0]], [], []) == (math.inf, [-1])
        assert end_times_s(np.array([[1.0]]), np.array([[0]])).tolist() == [math.inf]


@pytest.mark.parametrize("jobs", [1, 5, 8, 9, 40, 100])
@pytest.mark.parametrize("seed", range(6))
class TestCompiled:
    def test_places_as_the_plain_one(self, jobs, seed):
        rng = Random(f"{jobs} {seed}")
        kinds = rng.randint(1, 4)
        alone_s = drawn(f"{jobs} {seed}", jobs, kinds)
        kind = gangs_of([rng.randint(0, 5) for _ in range(kinds - 1)] + [rng.randint(1, 9)])
        load_s = [rng.choice((0.0, rng.uniform(0, 60))) for _ in kind]
        found = packed(alone_s, kind, load_s)
        assert found == PlainPacker(alone_s, kind, load_s).pack()
        assert math.isinf(found[0]) or found[0] == pytest.approx(end_s(alone_s, kind, load_s, found[1]))

    def test_times_divisions_as_the_plain_one(self, jobs, seed, monkeypatch):
        rng = Random(f"{jobs} {seed} divisions")
        kinds = rng.randint(1, 4)
        alone_s = np.array(drawn(f"{jobs} {seed}", jobs, kinds))
        counts = np.array([[rng.choice((0, rng.randint(0, jobs + 3))) for _ in range(kinds)] for _ in range(8)])
        counts = counts[[*range(8), 3, 0, 3]]
        how = ({"in_pairs": True}, {"in_pairs": False}, {"closely": True})
        reported = [end_times_s(alone_s, counts, **each).tolist() for each in how]
        assert all(ends_s[8:] == [ends_s[3], ends_s[0], ends_s[3]] for ends_s in reported)
        monkeypatch.setattr(packing, "_packing", reference_packing)
        assert reported == [end_times_s(alone_s, counts, **each).tolist() for each in how]

    def test_leaves_out_as_the_plain_one(self, jobs, seed, monkeypatch):
        rng = Random(f"{jobs} {seed} left out")
        kinds = rng.randint(1, 4)
        alone_s = np.array(drawn(f"{jobs} {seed}", jobs, kinds))
        counts = np.array([[rng.choice((0, rng.randint(0, jobs + 3))) for _ in range(kinds)] for _ in range(8)])
        reported = [
            left_out_s(alone_s, counts, end_s, most_s).tolist() for end_s in (40.0, 95.0) for most_s in (60.0, math.inf)
        ]
        monkeypatch.setattr(packing, "_packing", reference_packing)
        assert reported == [
            left_out_s(alone_s, counts, end_s, most_s).tolist() for end_s in (40.0, 95.0) for most_s in (60.0, math.inf)
        ]


class TestChanges:
    def test_all_gangs_end_at_once(self, monkeypatch):
        """54 on three gangs: neither longest first nor first fit ends at 18, with jobs that change places it does."""
        alone_s = [[work] for work in (9.0, 8.0, 7.0, 7.0, 6.0, 5.0, 5.0, 5.0, 2.0)]
        assert packed(alone_s, [0, 0, 0], [0.0] * 3)[0] == 18.0
        monkeypatch.setattr(reference_packing, "MAX_CHANGES", 0)
        assert PlainPacker(alone_s, [0, 0, 0], [0.0] * 3, closely=False, shaken=0).pack()[0] == 19.0

    def test_never_later_than_without_and_often_sooner(self, monkeypatch):
        sooner = 0
        for seed in range(40):
            rng = Random(f"{seed} changes")
            alone_s = drawn(seed, 40, 3)
            kind = gangs_of([rng.randint(1, 6), rng.randint(0, 6), rng.randint(0, 6)])
            load_s = [rng.choice((0.0, rng.uniform(0, 30))) for _ in kind]
            end, place = PlainPacker(alone_s, kind, load_s, closely=False, shaken=0).pack()
            assert end == pytest.approx(end_s(alone_s, kind, load_s, place))
            with monkeypatch.context() as patch:
                patch.setattr(reference_packing, "MAX_CHANGES", 0)
                without = PlainPacker(alone_s, kind, load_s, closely=False, shaken=0).pack()[0]
            assert end <= without
            sooner += end < without
        assert sooner >= 10


class TestPairs:
    def test_all_gangs_end_at_once(self):
        """126 on three gangs: with jobs that change places one for one they end at 43, with pairs at 42."""
        alone_s = [[work] for work in (23.0, 23.0, 18.0, 17.0, 14.0, 13.0, 10.0, 6.0, 2.0)]
        assert PlainPacker(alone_s, [0, 0, 0], [0.0] * 3, in_pairs=False, closely=False, shaken=0).pack()[0] == 43.0
        assert PlainPacker(alone_s, [0, 0, 0], [0.0] * 3, closely=False, shaken=0).pack()[0] == 42.0
        assert packed(alone_s, [0, 0, 0], [0.0] * 3)[0] == 42.0

    @pytest.mark.parametrize("gangs", [20, 35, 50])
    def test_never_later_and_often_sooner(self, gangs):
        """A hundred jobs, two to five on a gang: with pairs the last ends nearer to the bound."""
        kind = gangs_of([gangs // 2, gangs - gangs // 2])
        sooner = 0
        for seed in range(12):
            alone_s = drawn(f"{seed} pairs", 100, 2)
            end, place = PlainPacker(alone_s, kind, [0.0] * gangs, closely=False, shaken=0).pack()
            assert end == pytest.approx(end_s(alone_s, kind, [0.0] * gangs, place))
            without = PlainPacker(alone_s, kind, [0.0] * gangs, in_pairs=False, closely=False, shaken=0).pack()[0]
            assert end <= without
            sooner += end < without
        assert sooner >= 4


class TestFilledGangs:
    def test_a_gang_gets_the_jobs_that_leave_least_slack(self):
        """By 10 first fit puts 6 and 3 on a gang, and both 5 on the other; full are 6, 3 and 1, and 5 and 5."""
        works = (6.0, 5.0, 5.0, 3.0, 1.0)
        filler = Filler([[work] for work in works], [0, 0], [0.0, 0.0], [1.0], [20.0, 14.0, 9.0, 4.0, 1.0, 0.0])
        place = filler.fill_by(10.0, 0, [1.0] * 5)
        assert [sum(work for work, at in zip(works, place, strict=True) if at == gang) for gang in (0, 1)] == [
            10.0,
            10.0,
        ]

    def test_a_busy_gang_has_less_time(self):
        filler = Filler([[4.0], [3.0], [2.0]], [0, 0], [6.0, 0.0], [1.0], [9.0, 5.0, 2.0, 0.0])
        assert filler.fill_by(9.0, 0, [1.0] * 3) == [1, 0, 1]

    def test_a_higher_price_places_a_job_that_was_left_over(self):
        filler = Filler([[6.0], [5.0]], [0], [0.0], [1.0], [11.0, 5.0, 0.0])
        assert filler.fill_by(7.0, 0, [1.0, 1.0]) == [0, -1]
        assert filler.fill_by(7.0, 0, [1.0, 1.3]) == [-1, 0]

    @pytest.mark.parametrize("gangs", [20, 35, 50])
    def test_never_later_and_often_sooner(self, gangs):
        """A hundred jobs on gangs of two speeds: filled gangs end sooner than all other ways together."""
        counts, sooner = np.array([[gangs // 2, gangs - gangs // 2]]), 0
        for seed in range(20):
            alone_s = np.array(drawn(f"{seed} filled", 100, 2))
            without_s, closely_s = (end_times_s(alone_s, counts, closely=closely)[0] for closely in (False, True))
            planned_s, place = packed(alone_s.tolist(), gangs_of(counts[0]), [0.0] * gangs)
            assert planned_s <= closely_s <= without_s
            assert planned_s == pytest.approx(end_s(alone_s, gangs_of(counts[0]), [0.0] * gangs, place))
            sooner += closely_s < 0.999 * without_s
        assert sooner >= 4

    def test_few_jobs_are_put_in_every_way_instead(self):
        alone_s, counts = np.array(drawn("few", 8, 2)), np.array([[2, 1]])
        assert end_times_s(alone_s, counts, closely=True).tolist() == end_times_s(alone_s, counts).tolist()


class TestShakes:
    def test_the_planner_is_never_later_than_bids_and_often_sooner(self):
        sooner = 0
        for seed in range(30):
            alone_s, counts = drawn(f"{seed} shakes", 30, 2), [[4, 6]]
            planned = packed(alone_s, gangs_of(counts[0]), [0.0] * 10)[0]
            reported = end_times_s(np.array(alone_s), np.array(counts), closely=True)[0]
            assert planned <= reported
            sooner += planned < reported
        assert sooner >= 3


class TestLeftOut:
    def test_jobs_that_first_fit_cannot_end_in_time_are_summed(self):
        """Two gangs run 5, and 4 and 2, by 6, so 3 is left out; by 7 they run all, but one gang only 5 and 2."""
        alone_s, counts = np.array([[5.0], [4.0], [3.0], [2.0]]), np.array([[2], [1]])
        assert left_out_s(alone_s, counts[:1], 6.0, math.inf).tolist() == [3.0]
        assert left_out_s(alone_s, counts[::-1], 7.0, math.inf).tolist() == [7.0, 0.0]
        assert left_out_s(alone_s, counts[1:], 7.0, 3.0).tolist() == [4.0]

    def test_no_further_than_the_least_before(self):
        alone_s, counts = np.array([[5.0], [4.0], [3.0], [2.0]]), np.array([[2], [1]])
        assert left_out_s(alone_s, counts, 6.0, math.inf).tolist() == [3.0, 4.0]
        assert left_out_s(alone_s, counts, 7.0, math.inf).tolist() == [0.0, 4.0]

    def test_no_job_is_left_out_only_if_all_end_in_time(self):
        found = 0
        for seed in range(12):
            rng = Random(f"{seed} in time")
            alone_s = np.array(drawn(seed, 30, 2))
            counts = np.array([[rng.randint(1, 9), rng.randint(0, 9)] for _ in range(20)])
            ends_s = end_times_s(alone_s, counts)
            end_s = 1.1 * float(np.median(ends_s))
            none_left = left_out_s(alone_s, counts, end_s, math.inf) == 0.0
            assert (ends_s[none_left] <= end_s * 1.001).all()
            assert not none_left.all()
            found += none_left.sum()
        assert found > 20


class TestAtTheBoundary:
    """Arrays that do not agree are an error, not numbers from beside them."""

    def test_times_of_any_number_type_give_equal_results(self):
        alone_s, counts = [[12.0, 4.0], [3.0, 1.0]], np.array([[1, 0], [1, 1]])
        reported = [end_times_s(np.array(alone_s, dtype=number), counts).tolist() for number in ("f8", "f4", "i4")]
        assert reported == [[15.0, 4.0]] * 3
        assert end_times_s(np.asfortranarray(alone_s), counts).tolist() == reported[0]

    @pytest.mark.parametrize(
        ("alone_s", "counts", "out"),
        [
            (np.ones((2, 2), dtype="f4"), np.ones((3, 2), dtype="i8"), np.empty(3)),
            (np.ones((2, 2)), np.ones((3, 2)), np.empty(3)),
            (np.ones((2, 2)), np.ones((3, 2), dtype="i4"), np.empty(3)),
            (np.ones((2, 2)), np.ones((3, 3), dtype="i8"), np.empty(3)),
            (np.ones((2, 2)), np.ones((3, 2), dtype="i8"), np.empty(2)),
            (np.ones(4), np.ones((3, 2), dtype="i8"), np.empty(3)),
            (np.ones((2, 4))[:, ::2], np.ones((3, 2), dtype="i8"), np.empty(3)),
            (np.ones((0, 2)), np.ones((3, 2), dtype="i8"), np.empty(3)),
            (np.ones((2, 0)), np.ones((3, 0), dtype="i8"), np.empty(3)),
        ],
    )
    def test_times_that_do_not_agree_with_counts(self, alone_s, counts, out):
        with pytest.raises(ValueError, match=r"must be of|the arrays have|cannot be packed|contiguous"):
            _packing.times_s(alone_s, counts, True, True, out)

    @pytest.mark.parametrize(
        ("counts", "out"),
        [
            (np.ones((3, 2)), np.empty(3)),
            (np.ones((3, 3), dtype="i8"), np.empty(3)),
            (np.ones((3, 2), dtype="i8"), np.empty(2)),
        ],
    )
    def test_left_out_times_need_arrays_that_match_the_counts(self, counts, out):
        with pytest.raises(ValueError, match=r"must be of|the arrays have"):
            _packing.left_out_s(np.ones((2, 2)), counts, 1.0, 1.0, out)

    @pytest.mark.parametrize(
        ("kind", "loads", "jobs"),
        [([0, 2], 2, 2), ([-1, 0], 2, 2), ([1, 0], 2, 2), ([0, 1], 1, 2), ([0, 1], 2, 1), ([0, 1], 2, 3)],
    )
    def test_gangs_and_jobs_out_of_range_are_refused(self, kind, loads, jobs):
        with pytest.raises(ValueError, match=r"is of kind|the arrays have"):
            _packing.gangs_of_jobs(np.ones((2, 2)), np.array(kind), np.zeros(loads), np.empty(jobs, dtype="i8"))

    def test_no_jobs(self):
        with pytest.raises(ValueError, match="0 jobs"):
            end_times_s(np.ones((0, 2)), np.array([[1, 1]]))


def test_both_keep_to_the_same_limits():
    text = LIMITS.read_text()
    found = {name: float(number) for name, number in re.findall(r"([A-Z_]+) = ([\d.]+)", text)}
    lists = re.findall(r"([A-Z_]+)\[\] = {([\d., ]+)}", text)
    reported = {name: tuple(map(float, numbers.split(","))) for name, numbers in lists}
    assert reported == {"PATIENCE": least_slack.PATIENCE, "LEAN": least_slack.LEAN}
    assert found.pop("FILLING_WAYS") == len(least_slack.LEAN)
    assert found.pop("MAX_FILLING") == least_slack.MAX_FILLING
    assert found == {
        name: getattr(reference_packing, name)
        for name in (
            "MAX_PASSES",
            "FEW_JOBS",
            "MAX_STEPS",
            "MAX_CHANGES",
            "FEW_ON_A_GANG",
            "WORTH_PAIRS",
            "MAX_SHAKEN",
            "SHAKEN",
            "MAX_FILLS",
            "FILLING_ROUNDS",
            "FIRST_SOONER",
            "MIN_SOONER",
            "PRICE_STEP",
            "NEAR_ENOUGH",
            "LESS",
        )
    }


def test_a_hundred_jobs_on_like_gangs_are_near_the_bound():
    rng = Random(3)
    works = sorted((min(1.0, rng.uniform(0, 2)) * rng.lognormvariate(0, 0.15) for _ in range(100)), reverse=True)
    for gangs in (10, 20, 30, 40):
        end = packed([[work] for work in works], [0] * gangs, [0.0] * gangs)[0]
        bound = max(
            works[0], sum(works) / gangs, works[gangs - 1] + works[gangs], sum(works[2 * gangs - 2 : 2 * gangs + 1])
        )
        assert end <= 1.02 * bound
