"""The compiled parts of asks against the plain ones, to the last bit; arguments that cannot be are refused."""

from random import Random

import numpy as np
import pytest
from agent_cases import FLAT, STRICT, app_of, around_of, cluster_of, job, whole_offer

from am.agent import filled, fitted
from am.agent.filled import filled_asks
from am.agent.fitted import fitted_asks
from am.agent.kinds import Room, gang_kinds
from themis.apps import JobShape

_asking = pytest.importorskip("am.agent._asking")

SHAPES = (
    JobShape(tasks=1),
    JobShape(tasks=2, min_tasks=2),
    JobShape(tasks=4),
    JobShape(tasks=3, min_tasks=2, gpus_per_task=2),
    JobShape(tasks=9, min_tasks=1),
)


def drawn(seed):
    """Kinds of a drawn room, gangs and GPUs at most, and the jobs of a drawn app; some of these alike."""
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
    kinds = gang_kinds(app, Room(offer.free.by_machine(), offer.slots, around_of(cluster)))
    return kinds, rng.randint(1, len(app.jobs)), rng.randint(1, cluster.gpus), app.jobs


@pytest.mark.parametrize("seed", range(30))
class TestAsThePlainOnes:
    def test_fitted(self, seed, monkeypatch):
        case = drawn(seed)
        found = list(fitted_asks(*case, 1.1))
        monkeypatch.setattr(fitted, "_asking", None)
        assert found == list(fitted_asks(*case, 1.1))

    def test_laid_out(self, seed, monkeypatch):
        kinds, most_gangs, most_gpus, jobs = drawn(seed)
        found = list(filled_asks(kinds, most_gangs, most_gpus, jobs))
        monkeypatch.setattr(filled, "_asking", None)
        assert found == list(filled_asks(kinds, most_gangs, most_gpus, jobs))
        assert seed or len(found) > 10


def test_sizes_of_no_kind_and_without_room_are_left_out():
    most, within = np.array([2, 3]), np.array([0, 3])
    kinds_of = {(2, 1): (0, 1)}
    assert _asking.lay_out(most, within, kinds_of, ((2, 1, 3),), (1.0, 0.5, 0.0)) == [(2, 1), (1, 2), (0, 3)]
    assert _asking.lay_out(most, within, kinds_of, ((2, 1, 4),), (1.0,)) == []
    assert _asking.lay_out(most, within, kinds_of, ((4, 1, 1),), (1.0,)) == []
    assert _asking.lay_out(most, within, kinds_of, (), (1.0,)) == [(0, 0)]


class TestMalformed:
    GOOD = (
        np.ones((3, 2)),
        np.eye(2),
        np.array([2, 1]),
        np.array([4, 4]),
    )

    def ask(self, *arrays, gpus=4, out=None):
        return _asking.ask_by(*arrays, gpus, 3, 9.0, 4, np.empty(2, dtype=np.int64) if out is None else out)

    def test_what_is_right_is_answered(self):
        assert self.ask(*self.GOOD) is True

    @pytest.mark.parametrize("place", range(4))
    @pytest.mark.parametrize("change", [lambda a: a.astype(np.float32), lambda a: a[..., None], lambda a: a[..., :1]])
    def test_other_types_and_shapes(self, place, change):
        arrays = [change(each) if number == place else each for number, each in enumerate(self.GOOD)]
        with pytest.raises(ValueError, match=r"must be of|tell of|contiguous"):
            self.ask(*arrays)

    def test_what_is_not_to_be_written(self):
        out = np.empty(2, dtype=np.int64)
        out.setflags(write=False)
        with pytest.raises((ValueError, BufferError)):
            self.ask(*self.GOOD, out=out)
        with pytest.raises(ValueError, match="tell of"):
            self.ask(*self.GOOD, out=np.empty(3, dtype=np.int64))

    def test_no_gpus_to_ask_for(self):
        with pytest.raises(ValueError, match="0 GPUs"):
            self.ask(*self.GOOD, gpus=0)

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
    def test_layouts_that_cannot_be(self, kinds_of, sizes, parts):
        with pytest.raises(ValueError, match=r"kind|size|gang|part|number"):
            _asking.lay_out(np.array([1, 1]), np.array([0, 3]), kinds_of, sizes, parts)

    def test_levels_that_there_are_not(self):
        with pytest.raises(ValueError, match="within level 4"):
            _asking.lay_out(np.array([1, 1]), np.array([0, 4]), {}, (), ())
        with pytest.raises(TypeError):
            _asking.lay_out(np.array([1]), np.array([0]), [], (), ())
        with pytest.raises(TypeError):
            _asking.lay_out(np.array([1]), np.array([0]), {(1, 1): ("a",)}, ((1, 1, 1),), (1.0,))
