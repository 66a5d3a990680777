"""Heartbeats carry the loss curves that changed, and every curve now and then."""

from itertools import chain

from am.profiler.loss_history import LossHistory
from am.status import MAX_CURVES, LossCurves, loss_curve


class Job:
    def __init__(self, job_id, losses):
        self.job_id = job_id
        self.history = LossHistory()
        for at, loss in enumerate(losses):
            self.history.add(at + 1, loss)

    @property
    def curve(self):
        return self.history.points


def ids(curves):
    return [curve.job_id for curve in curves]


def test_curve_has_the_points_of_the_history():
    curve = loss_curve(Job("a", [3.0, 1e300]))
    assert (list(curve.iterations), list(curve.losses)) == ([1, 2], [3.0, 1e300])


def test_unchanged_curves_are_sent_again_one_in_a_heartbeat():
    jobs, curves = [Job(name, [1.0]) for name in "abc"], LossCurves()
    assert sorted(ids(curves.next(jobs))) == ["a", "b", "c"]
    assert sorted(chain.from_iterable(ids(curves.next(jobs)) for _ in range(3))) == ["a", "b", "c"]


def test_changed_curve_is_in_the_next_heartbeat():
    jobs, curves = [Job(name, [1.0]) for name in "abc"], LossCurves()
    curves.next(jobs)
    for job in jobs:
        job.history.add(2, 0.5)
        assert job.job_id in ids(curves.next(jobs))


def test_jobs_without_losses_have_no_curve():
    assert LossCurves().next([Job("a", [])]) == []
    assert ids(LossCurves().next([Job("a", []), Job("b", [1.0])])) == ["b"]


def test_many_jobs_come_in_turn():
    jobs, curves = [Job(f"j{at}", [1.0]) for at in range(50)], LossCurves()
    beats = [ids(curves.next(jobs)) for _ in range(6)]
    assert max(map(len, beats)) == MAX_CURVES
    assert set(chain.from_iterable(beats)) == {job.job_id for job in jobs}
