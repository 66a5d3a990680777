"""By placement score, with migration."""

import pytest

from rm_plugin.policies.gandiva import GandivaPolicy
from themis.apps import Slowdown
from themis.bids import GangDemand

NEAR = Slowdown(1.0, 1.0, 1.1, 1.3)


def job(name, least, most=None, work=1e4, slowdown=NEAR):
    return GangDemand(job_id=name, min_gpus=least, max_gpus=most or least, slowdown=slowdown, work_left_gpu_s=work)


def test_the_gang_that_lies_nearest_comes_first(make_snapshot, gpus_of):
    """The app of six GPUs comes first by submission, rho and service, but it would lie on two machines."""
    shot = make_snapshot(
        {"a": [job("a0", 6)], "b": [job("b0", 4)]}, rho={"a": 9.0}, attained={"b": 9.0}, submitted={"b": 5.0}
    )
    assert gpus_of(GandivaPolicy().decide(shot)) == {"b": {"m0": 4}}


def test_equal_scores_prefer_the_larger_gang(make_snapshot, gpus_of):
    shot = make_snapshot({"a": [job("a0", 2)], "b": [job("b0", 4)]}, slots=((4,),))
    assert gpus_of(GandivaPolicy().decide(shot)) == {"b": {"m0": 4}}


def test_equal_gangs_rank_by_submission_then_app_id(make_snapshot, gpus_of):
    apps = {"a": [job("a0", 4)], "b": [job("b0", 4)]}
    assert gpus_of(GandivaPolicy().decide(make_snapshot(apps, submitted={"a": 2.0, "b": 1.0}))) == {"b": {"m0": 4}}
    assert gpus_of(GandivaPolicy().decide(make_snapshot(apps))) == {"a": {"m0": 4}}


def test_equal_scores_prefer_a_renewing_gang(make_snapshot, gpus_of):
    shot = make_snapshot({"a": [job("a0", 4)], "b": [job("b0", 2)]}, slots=((4,),), renewable={"b": {"m0": 2}})
    assert gpus_of(GandivaPolicy().decide(shot)) == {"b": {"m0": 2}}


class TestMigration:
    """A gang of two over two machines: S is 1.1 there and 1.0 on one machine. Over a lease of 600 s that is 54 s."""

    def shot(self, make_snapshot, restart_s, **more):
        return make_snapshot({"a": [job("a0", 2)]}, renewable={"a": {"m0": 1, "m1": 1}}, restart_s=restart_s, **more)

    def test_a_job_moves_to_a_better_placement(self, make_snapshot, gpus_of):
        assert gpus_of(GandivaPolicy().decide(self.shot(make_snapshot, 40.0))) == {"a": {"m1": 2}}

    def test_not_for_less_than_a_restart_costs(self, make_snapshot, gpus_of):
        assert gpus_of(GandivaPolicy().decide(self.shot(make_snapshot, 60.0))) == {"a": {"m0": 1, "m1": 1}}

    def test_no_move_without_a_better_placement(self, make_snapshot, gpus_of):
        shot = self.shot(make_snapshot, 0.0, taken={"m0": 3, "m1": 1})
        assert gpus_of(GandivaPolicy().decide(shot)) == {"a": {"m0": 1, "m1": 1}}


@pytest.mark.parametrize("work", [1.0, 1e9])
def test_work_and_the_pace_do_not_matter_without_a_gang_to_move(make_snapshot, gpus_of, work):
    shot = make_snapshot({"a": [job("a0", 6, work=work)], "b": [job("b0", 4)]})
    assert gpus_of(GandivaPolicy().decide(shot)) == {"b": {"m0": 4}}
