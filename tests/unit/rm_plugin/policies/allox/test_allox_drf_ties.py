"""The baselines of AlloX that share by users: of equal users and jobs the smaller job id comes first."""

import pytest
from allox_cases import cluster, job, snapshot

from rm_plugin.policies.allox.baselines import drfa, drff, drfs


@pytest.mark.parametrize("decide", [drff.decide, drfs.decide, lambda view: drfa.decide(view, {"gpu": 1.0})])
def test_of_equal_users_and_jobs_the_smaller_job_id_starts(decide):
    """ann comes before bob since her first job, b, has the smallest id; z is hers too, and as short."""
    jobs = [job("z", "ann", gpu=1), job("c", "bob", gpu=1), job("b", "ann", gpu=1)]
    assert [start.job.job_id for start in decide(snapshot(jobs, cluster(gpus=1))).starts] == ["b"]


def test_drff_runs_jobs_on_the_gpu_type_that_is_left():
    """No V100 is there, so jobs that are faster on one do not wait for it beside idle K80s."""
    jobs = [job("a", "ann", v100=1, k80=2), job("b", "bob", v100=1, k80=2)]
    starts = drff.decide(snapshot(jobs, cluster(k80=2)), gpu_types=("k80", "v100")).starts
    assert [(start.job.job_id, start.machine_id[0]) for start in starts] == [("a", "k"), ("b", "k")]
