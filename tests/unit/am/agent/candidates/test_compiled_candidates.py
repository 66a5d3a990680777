"""The compiled generation of candidates equals plain Python to the last bit, and refuses malformed arguments."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
import reference_candidates as reference
from agent_cases import FLAT, STRICT, app_of, cluster_of, cluster_view_of, job, space_of, whole_offer

from am.agent import _candidates
from am.agent.bids import dominance
from am.agent.bids.dominance import one_step_variants, thinned
from am.agent.candidates import enumeration, gang_layout, list_scheduling, multifit
from am.agent.candidates.enumeration import enumerate_candidates
from am.agent.candidates.gang_kinds import gang_kinds
from am.agent.candidates.gang_layout import GangLayout
from am.agent.candidates.generation import generate_candidates
from am.agent.candidates.list_scheduling import Jobs, scheduled_by_shape
from am.agent.candidates.multifit import multifit_candidates
from am.agent.model.views import JobView
from themis.apps import JobShape, Slowdown
from themis.placement.gang_capacity import GangCapacity

SHAPES = (
    JobShape(tasks=1),
    JobShape(tasks=2, min_tasks=2),
    JobShape(tasks=4),
    JobShape(tasks=3, min_tasks=2, gpus_per_task=2),
    JobShape(tasks=9, min_tasks=1),
)


def drawn(seed):
    """Draw gang kinds, the most gangs, the most GPUs, and the jobs of an app, some of them alike."""
    rng = Random(seed)
    machines = [rng.choice(((2, 2), (4,), (1, 1), (4, 4), (1,))) for _ in range(rng.randint(3, 24))]
    cluster = cluster_of(*machines, racks=("r0", "r1"))
    shapes = rng.sample(SHAPES, rng.randint(1, 3))
    app = app_of(
        [
            job(f"j{place:02d}", rng.choice((40.0, rng.uniform(5, 90))), rng.choice(shapes), rng.choice((FLAT, STRICT)))
            for place in range(rng.randint(2, 60))
        ]
    )
    offer = whole_offer(cluster)
    kinds = gang_kinds(app, GangCapacity(offer.free.by_machine(), offer.slots, cluster_view_of(cluster).rack_of))
    return kinds, rng.randint(1, len(app.jobs)), rng.randint(1, cluster.gpus), app.jobs


def plain(call, *arguments):
    """Call a function with the reference in place of the compiled functions."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (list_scheduling, enumeration, gang_layout, multifit, dominance):
            patch.setattr(module, "_candidates", reference)
        return call(*arguments)


@pytest.mark.parametrize("seed", range(30))
class TestReference:
    def test_multifit_candidates_equal_the_reference(self, seed):
        case = drawn(seed)
        assert list(multifit_candidates(space_of(*case))) == plain(lambda: list(multifit_candidates(space_of(*case))))

    def test_generated_candidates_equal_the_reference(self, seed):
        kinds, max_gangs, max_gpus, jobs = drawn(seed)
        found = list(generate_candidates(space_of(kinds, max_gangs, max_gpus, jobs)))
        assert found == plain(lambda: list(generate_candidates(space_of(kinds, max_gangs, max_gpus, jobs))))
        assert seed or len(found) > 10

    def test_list_schedules_equal_the_reference(self, seed):
        kinds, max_gangs, max_gpus, jobs = drawn(seed)
        longest = Jobs(jobs, {(kind.at.gpus, kind.unit_gpus): kind.at.level for kind in reversed(kinds)})
        for at_once in (1, max_gangs, len(jobs)):
            assert longest.scheduled_by_job(at_once, max_gpus) == plain(longest.scheduled_by_job, at_once, max_gpus)
        for least in (0.0, 0.5, 1.0):
            case = jobs, max_gangs, max_gpus, least
            assert scheduled_by_shape(*case) == plain(scheduled_by_shape, *case)

    def test_list_schedules_of_many_gpus_equal_the_reference(self, seed):
        """From 50 GPUs on, totals are reported in steps of 4 %: after 50 the next is 52."""
        rng = Random(f"{seed} far")
        shapes = (JobShape(tasks=1), JobShape(tasks=1), rng.choice(SHAPES))
        jobs = [job(f"j{place:03d}", rng.uniform(5, 90), rng.choice(shapes)) for place in range(rng.randint(130, 200))]
        gpus = rng.randint(120, 250)
        found = Jobs(jobs, {}).scheduled_by_job(len(jobs), gpus)
        assert found == plain(Jobs(jobs, {}).scheduled_by_job, len(jobs), gpus)
        assert max(right - left for (left, _), (right, _) in pairwise(found)) > 3
        assert scheduled_by_shape(jobs, len(jobs), gpus, 0.0) == plain(scheduled_by_shape, jobs, len(jobs), gpus, 0.0)

    def test_layouts_equal_the_reference(self, seed):
        kinds, *_ = drawn(seed)
        layout, rng = GangLayout(kinds), Random(seed)
        known = sorted({(kind.at.gpus, kind.unit_gpus) for kind in kinds})
        drawn_sizes = [sorted(rng.sample(known, min(len(known), count))) for count in (1, 1, 2, 3)]
        cases = [tuple((*size, rng.randint(1, 4)) for size in sizes) for sizes in drawn_sizes]
        cases += [(*cases[0], (99, 1, 1)), ((99, 1, 1),), ()]
        found = [layout.at_two_levels(sizes, (1, 2)) for sizes in cases]
        assert found[-3:] == [[], [], []]
        assert found == plain(lambda: [layout.at_two_levels(sizes, (1, 2)) for sizes in cases])
        found = [layout.at_tightest(sizes, (1.0, 0.5, 0.0)) for sizes in cases]
        assert found == plain(lambda: [layout.at_tightest(sizes, (1.0, 0.5, 0.0)) for sizes in cases])

    def test_balanced_divisions_equal_the_reference(self, seed):
        kinds, max_gangs, max_gpus, jobs = drawn(seed)
        found = enumeration._balanced(kinds, max_gangs, max_gpus, jobs, 200)
        candidates, missing = enumerate_candidates(space_of(kinds, max_gangs, max_gpus, jobs))
        assert found == plain(enumeration._balanced, kinds, max_gangs, max_gpus, jobs, 200)
        expected = plain(enumerate_candidates, space_of(kinds, max_gangs, max_gpus, jobs))
        assert np.array_equal(candidates, expected[0])
        assert missing == expected[1]

    def test_undominated_candidates_equal_the_reference(self, seed):
        rng = np.random.default_rng(seed)
        candidates, columns = int(rng.integers(1, 400)), int(rng.integers(1, 9))
        needs = rng.integers(0, 5, (candidates, columns)).astype(np.int16)
        gains = rng.integers(1, 30, candidates) / 7.0
        enough = (1.0 - 0.1 * (seed % 3)) * gains
        first = rng.permutation(candidates)[: seed % 4].tolist()
        kept = np.array([*first, *[0] * candidates])
        expected = kept.copy()
        count = _candidates.uncovered(needs, gains, enough, len(first), candidates + 4, kept)
        assert count == reference.uncovered(needs, gains, enough, len(first), candidates + 4, expected)
        assert kept[:count].tolist() == expected[:count].tolist()
        for cap in (candidates, 12, 2):
            case = needs, gains, needs.sum(axis=1), cap
            assert thinned(*case) == plain(thinned, *case)
        pairs = rng.integers(0, candidates, (2, 2 * candidates))
        case = gains, np.log(gains), needs, needs.sum(axis=1).astype(np.int64), *pairs, 9.0 / 7.0
        kept, expected = np.empty((2, candidates), dtype=np.int64)
        count = _candidates.undominated(*case, kept)
        assert count == reference.undominated(*case, expected)
        assert kept[:count].tolist() == expected[:count].tolist()

    def test_one_step_variants_equal_the_reference(self, seed):
        kinds, max_gangs, max_gpus, jobs = drawn(seed)
        candidates, _ = enumerate_candidates(space_of(kinds, max_gangs, max_gpus, jobs))
        found, expected = one_step_variants(kinds, candidates), plain(one_step_variants, kinds, candidates)
        assert [each.tolist() for each in found] == [each.tolist() for each in expected]

    def test_grid_products_equal_the_reference(self, seed):
        rng = Random(seed)
        grids = [enumeration._grid(rng.randint(0, 9), rng.choice((1.0, 1.5))) for _ in range(rng.randint(1, 6))]
        case = grids, [rng.randint(1, 4) for _ in grids], rng.randint(0, 9), rng.randint(0, 20)
        for budget in (0, 1, 100, 5000):
            found, expected = enumeration._product(*case, budget), plain(enumeration._product, *case, budget)
            assert (found is None) == (expected is None)
            assert found is None or found.tolist() == expected.tolist()


def test_totals_are_reported_only_beyond_the_next_step():
    """After 50 the next total is 52, so 51 is left out."""
    jobs = [job(f"j{place}", 9.0) for place in range(60)]
    for found in (Jobs(jobs, {}).scheduled_by_job(60, 60), scheduled_by_shape(jobs, 60, 60, 0.0)):
        assert [gpus for gpus, _ in found] == [*range(1, 51), 52, 54, 56, 58, 60]


def test_shapes_of_equal_work_receive_gpus_in_order():
    jobs = [job("a", 60.0, JobShape(tasks=2, min_tasks=2)), job("b", 60.0, JobShape(tasks=3, min_tasks=3))]
    assert scheduled_by_shape(jobs, 2, 3, 0.0) == plain(scheduled_by_shape, jobs, 2, 3, 0.0) == [(2, ((2, 1, 1),))]


def test_turns_are_bit_identical():
    """Both jobs end at the same time, and the longer one goes first. Work / GPUs * S would round differently."""
    work_s, far = 0.7, 1.7
    same_s = work_s * far / 3
    assert same_s > work_s / 3 * far
    long = job("a", work_s, JobShape(tasks=4, min_tasks=3), Slowdown(1.0, 1.0, 1.0, far))
    longest = Jobs([long, job("b", same_s, JobShape(tasks=2))], {})
    assert longest.scheduled_by_job(2, 5) == plain(longest.scheduled_by_job, 2, 5)
    assert longest.scheduled_by_job(2, 5)[-1] == (5, ((4, 1, 1), (1, 1, 1)))


def test_work_may_be_an_integer():
    """The work of the job is the integer 20, not 20.0."""
    jobs = [JobView(job_id="j", iterations_left=10, serial_iteration_s=2, slowdown=FLAT, shape=JobShape(tasks=2))]
    longest = Jobs(jobs, {})
    assert longest.scheduled_by_job(1, 2) == plain(longest.scheduled_by_job, 1, 2) != []
    assert scheduled_by_shape(jobs, 1, 2, 0.0) == plain(scheduled_by_shape, jobs, 1, 2, 0.0) != []


def test_sizes_of_no_kind_and_without_room_are_left_out():
    most, within = np.array([2, 3]), np.array([0, 3])
    kinds_of = {(2, 1): (0, 1)}
    assert _candidates.at_tightest(most, within, kinds_of, ((2, 1, 3),), (1.0, 0.5, 0.0)) == [(2, 1), (1, 2), (0, 3)]
    assert _candidates.at_tightest(most, within, kinds_of, ((2, 1, 4),), (1.0,)) == []
    assert _candidates.at_tightest(most, within, kinds_of, ((4, 1, 1),), (1.0,)) == []
    assert _candidates.at_tightest(most, within, kinds_of, (), (1.0,)) == [(0, 0)]


def test_gangs_are_placed_only_at_levels_with_kinds():
    """No kind spans more than a machine, so rack and cluster have the number of the machine's kind."""
    kinds_of = {(2, 1): (0, 1, 1, 1)}
    candidates = _candidates.at_two_levels(np.array([4, 2]), np.array([0, 1]), kinds_of, ((2, 1, 2),), (1,))
    assert candidates == [(2, 0), (1, 1), (0, 2)]


GRIDS = np.array([0, 1, 0, 1]), np.array([2, 4]), np.array([1, 1]), 2, 4, np.empty((4, 2), dtype=np.int64)
SHAPED = np.array([[1, 1, 4], [1, 1, 2]])
VARIANTS = (
    *(np.array([0, 1]), np.array([[0], [1]]), np.array([0, 0]), np.array([-1, -2])),
    *np.empty((2, 4), dtype=np.int64),
)
CALLS = {
    "at_tightest": (np.array([1, 1]), np.array([0, 3]), {}, (), ()),
    "at_two_levels": (np.array([1, 1]), np.array([0, 3]), {}, (), ()),
    "by_work": (np.ones(2), np.array([0, 1]), SHAPED, np.ones((2, 5)), 4, 1.04),
    "in_turn": (np.ones(2), np.array([1, 1]), SHAPED, 2, 4, 1.04),
    "on_grids": GRIDS,
    "one_step_variants": VARIANTS,
    "uncovered": (np.zeros((2, 3), dtype=np.int16), np.ones(2), np.ones(2), 0, 9, np.zeros(2, dtype=np.int64)),
}
PLACES = {"at_tightest": 2, "at_two_levels": 2, "by_work": 4, "in_turn": 3, "one_step_variants": 6}


def call(name, place, other):
    """Call a compiled function with one argument replaced."""
    arguments = [other if number == place else each for number, each in enumerate(CALLS[name])]
    return getattr(_candidates, name)(*arguments)


class TestDifferentLengths:
    @pytest.mark.parametrize("name", CALLS)
    def test_valid_arguments_are_accepted(self, name):
        call(name, None, None)

    @pytest.mark.parametrize(
        ("name", "place"),
        [
            *((name, place) for name, places in PLACES.items() for place in range(places)),
            *(("on_grids", place) for place in (1, 2)),
            *(("uncovered", place) for place in (0, 1, 2, 5)),
        ],
    )
    def test_a_shorter_array_is_refused(self, name, place):
        with pytest.raises(ValueError, match="the arrays have"):
            call(name, place, CALLS[name][place][:-1].copy())

    @pytest.mark.parametrize(("name", "place"), [("by_work", 2), ("in_turn", 2), ("on_grids", 5)])
    def test_shorter_rows_are_refused(self, name, place):
        with pytest.raises(ValueError, match="the arrays have"):
            call(name, place, CALLS[name][place][:, :-1].copy())


class TestInt32Limits:
    @pytest.mark.parametrize("name", ["at_tightest", "at_two_levels"])
    @pytest.mark.parametrize("size", [(2**31, 1, 1), (2, 1, 2**31)])
    def test_a_number_of_gangs_above_int32_is_refused(self, name, size):
        with pytest.raises(ValueError, match="2147483648 is no number"):
            call(name, 3, (size,))

    @pytest.mark.parametrize(("name", "place"), [("by_work", 4), ("in_turn", 4), ("on_grids", 4)])
    def test_a_number_of_gpus_above_int32_is_refused(self, name, place):
        with pytest.raises(ValueError, match="from 0 to 2147483647, not 2147483648"):
            call(name, place, 2**31)

    @pytest.mark.parametrize("name", ["by_work", "in_turn"])
    def test_a_shape_with_gpus_above_int32_is_refused(self, name):
        with pytest.raises(ValueError, match="1 to 2147483648 GPUs in units of 1 are not"):
            call(name, 2, np.array([[1, 1, 4], [1, 1, 2**31]]))

    @pytest.mark.parametrize(("place", "other"), [(0, [0, 1, 0, 2**31]), (2, [1, 2**31])])
    def test_a_grid_above_int32_is_refused(self, place, other):
        with pytest.raises(ValueError, match="kind 1 must ascend"):
            call("on_grids", place, np.array(other))


class TestMalformed:
    GOOD = (
        np.ones((3, 2)),
        np.eye(2),
        np.array([2, 1]),
        np.array([4, 4]),
    )

    def candidate(self, *arrays, gpus=4, out=None):
        return _candidates.fit_by_end(*arrays, gpus, 3, 9.0, 4, np.empty(2, dtype=np.int64) if out is None else out)

    def test_valid_arguments_are_accepted(self):
        assert self.candidate(*self.GOOD) is True

    @pytest.mark.parametrize("place", range(4))
    @pytest.mark.parametrize("change", [lambda a: a.astype(np.float32), lambda a: a[..., None], lambda a: a[..., :1]])
    def test_other_dtypes_and_shapes_are_refused(self, place, change):
        arrays = [change(each) if number == place else each for number, each in enumerate(self.GOOD)]
        with pytest.raises(ValueError, match=r"must be of|the arrays have|contiguous"):
            self.candidate(*arrays)

    def test_read_only_outputs_are_refused(self):
        out = np.empty(2, dtype=np.int64)
        out.setflags(write=False)
        with pytest.raises((ValueError, BufferError)):
            self.candidate(*self.GOOD, out=out)
        with pytest.raises(ValueError, match="the arrays have"):
            self.candidate(*self.GOOD, out=np.empty(3, dtype=np.int64))

    def test_a_bundle_without_gpus_is_refused(self):
        with pytest.raises(ValueError, match="0 GPUs"):
            self.candidate(*self.GOOD, gpus=0)

    @pytest.mark.parametrize(
        ("kinds_of", "sizes", "parts"),
        [
            ({(2, 1): (0, 2)}, ((2, 1, 1),), (1.0,)),
            ({(2, 1): (-1,)}, ((2, 1, 1),), (1.0,)),
            ({(2, 1): (0, 1, 0)}, ((2, 1, 1),), (1.0,)),
            ({(2, 1): [0]}, ((2, 1, 1),), (1.0,)),
            ({}, ((2, 1),), (1.0,)),
            ({}, ((0, 1, 1),), (1.0,)),
            ({}, ((2, 1, -1),), (1.0,)),
            ({}, (), (1.5,)),
            ({}, (), (float("nan"),)),
        ],
    )
    def test_malformed_layouts_are_refused(self, kinds_of, sizes, parts):
        with pytest.raises(ValueError, match=r"kind|size|gang|part|number"):
            _candidates.at_tightest(np.array([1, 1]), np.array([0, 3]), kinds_of, sizes, parts)

    def test_unknown_levels_are_refused(self):
        with pytest.raises(ValueError, match="within level 4"):
            _candidates.at_tightest(np.array([1, 1]), np.array([0, 4]), {}, (), ())
        with pytest.raises(TypeError):
            _candidates.at_tightest(np.array([1]), np.array([0]), [], (), ())
        with pytest.raises(TypeError):
            _candidates.at_tightest(np.array([1]), np.array([0]), {(1, 1): ("a",)}, ((1, 1, 1),), (1.0,))

    @pytest.mark.parametrize(
        ("kinds_of", "sizes", "loose_counts"),
        [
            ({(2, 1): (0, 1)}, ((2, 1, 1),), (1,)),
            ({(2, 1): (0, 1, 1, 1, 1)}, ((2, 1, 1),), (1,)),
            ({(2, 1): (0, 1, 1, 2)}, ((2, 1, 1),), (1,)),
            ({(2, 1): (0, 0, 0, 1)}, ((2, 1, 1),), (-1,)),
        ],
    )
    def test_malformed_layouts_by_level_are_refused(self, kinds_of, sizes, loose_counts):
        with pytest.raises(ValueError, match=r"kind|level|number"):
            _candidates.at_two_levels(np.array([1, 1]), np.array([0, 3]), kinds_of, sizes, loose_counts)

    def test_kinds_removed_during_the_call_are_still_used(self):
        class Taker:
            def __index__(self):
                kinds_of.clear()
                return 0

        kinds_of = {(2, 1): (Taker(), *[1] * 3)}
        most, within = np.array([1, 1]), np.array([0, 3])
        assert _candidates.at_two_levels(most, within, kinds_of, ((2, 1, 1),), (1,)) == [(1, 0), (0, 1), (0, 1)]
        assert kinds_of == {}

    @pytest.mark.parametrize("shape", [(2, 0, 2), (0, 1, 1), (3, 1, 2), (3, 2, 4), (2, 2, 5), (1, 1, 2**40)])
    def test_impossible_shapes_are_refused(self, shape):
        works_s, shapes = np.ones(1), np.array([shape])
        with pytest.raises(ValueError, match="are not possible"):
            _candidates.by_work(works_s, np.array([0]), shapes, np.ones((1, 9)), 4, 1.04)
        with pytest.raises(ValueError, match="are not possible"):
            _candidates.in_turn(works_s, np.array([1]), shapes, 1, 4, 1.04)

    def test_malformed_list_schedules_are_refused(self):
        works_s, shapes, slowdowns = np.ones(1), np.array([(1, 1, 4)]), np.ones((1, 5))
        assert _candidates.by_work(works_s, np.array([0]), shapes, slowdowns, 2, 1.04) == [
            (1, ((1, 1, 1),)),
            (2, ((2, 1, 1),)),
        ]
        for shape in (-1, 1):
            with pytest.raises(ValueError, match=f"shape {shape} of 1"):
                _candidates.by_work(works_s, np.array([shape]), shapes, slowdowns, 4, 1.04)
        with pytest.raises(ValueError, match="no slowdown for 4 tasks"):
            _candidates.by_work(works_s, np.array([0]), shapes, slowdowns[:, :4].copy(), 4, 1.04)
        with pytest.raises(ValueError, match="GPUs must be from 0 to 2147483647, not -1"):
            _candidates.by_work(works_s, np.array([0]), shapes, slowdowns, -1, 1.04)
        with pytest.raises(ValueError, match="the arrays have"):
            _candidates.in_turn(works_s, np.array([1, 1]), shapes, 1, 4, 1.04)
        with pytest.raises(ValueError, match="3 and 2 numbers of a shape"):
            _candidates.in_turn(works_s, np.array([1]), np.array([(1, 1)]), 1, 4, 1.04)

    @pytest.mark.parametrize(("first", "kept"), [(-1, [0]), (1, [2, 0, 0]), (1, [-1, 0, 0]), (1, [0, 0])])
    def test_malformed_lists_of_kept_candidates_are_refused(self, first, kept):
        needs = np.zeros((2, 3), dtype=np.int16)
        with pytest.raises(ValueError, match=r"is not one of 2|the arrays have|kept at first"):
            _candidates.uncovered(needs, np.ones(2), np.ones(2), first, 9, np.array(kept))
        with pytest.raises(ValueError, match="int16"):
            _candidates.uncovered(needs.astype(np.int64), np.ones(2), np.ones(2), 0, 9, np.zeros(2, dtype=np.int64))

    def test_malformed_one_step_variants_are_refused(self):
        keys, candidates, one = np.array([0, 1]), np.array([[0], [1]]), np.array([-1])
        pairs = np.empty((2, 2), dtype=np.int64)
        assert _candidates.one_step_variants(keys, candidates, np.array([0]), one, *pairs) == 1
        assert pairs[:, 0].tolist() == [1, 0]
        for place in (-1, 1):
            with pytest.raises(ValueError, match=f"kind {place} is not one of 1"):
                _candidates.one_step_variants(keys, candidates, np.array([place]), one, *pairs)
        with pytest.raises(ValueError, match="2 and 1 pairs"):
            _candidates.one_step_variants(keys, candidates, np.array([0]), one, *pairs[:, :1].copy())

    @pytest.mark.parametrize(
        ("counts", "ends", "gpus"),
        [([1, 2], [2], [1]), ([0, 0], [2], [1]), ([0], [1], [0]), ([0], [2], [1]), ([0], [0], [1]), ([0], [1], [1, 1])],
    )
    def test_malformed_grids_are_refused(self, counts, ends, gpus):
        out = np.empty((4, len(ends)), dtype=np.int64)
        with pytest.raises(ValueError, match=r"must ascend|the arrays have"):
            _candidates.on_grids(*map(np.array, (counts, ends, gpus)), 2, 4, out)

    def test_more_than_10000_kinds_are_refused(self):
        ones = np.ones(10001, dtype=np.int64)
        with pytest.raises(ValueError, match="at most 10000 kinds, not of 10001"):
            _candidates.on_grids(0 * ones, ones.cumsum(), ones, 1, 1, np.empty((1, 10001), dtype=np.int64))
        out = np.ones((1, 10000), dtype=np.int64)
        assert _candidates.on_grids(0 * ones[1:], ones[1:].cumsum(), ones[1:], 1, 1, out) == 1
        assert not out.any()
