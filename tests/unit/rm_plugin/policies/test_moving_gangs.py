"""A gang that lies badly moves if that pays for its restart within the lease, except under `drf`."""

import pytest

from rm_plugin.policies.registry import POLICIES
from themis.apps import Slowdown
from themis.bids import GangDemand

GANG = GangDemand(job_id="a0", min_gpus=2, max_gpus=2, slowdown=Slowdown(1.0, 1.0, 2.0, 2.0), work_left_gpu_s=1e4)


@pytest.mark.parametrize(
    "policy",
    ["fair_finish", "gandiva", "optimus", "slaq", "srsf", "srtf", "tiresias", "worst_rho_first"],
)
@pytest.mark.parametrize(("restart_s", "gpus"), [(60.0, {"m1": 2}), (400.0, {"m0": 1, "m1": 1})])
def test_a_scattered_gang_moves_if_that_pays(make_snapshot, gpus_of, policy, restart_s, gpus):
    """In a lease of 600 s it does 600 GPU seconds of work where it lies, and 2 * (600 - restart) on one machine."""
    shot = make_snapshot({"a": [GANG]}, renewable={"a": {"m0": 1, "m1": 1}}, restart_s=restart_s)
    assert gpus_of(POLICIES[policy]().decide(shot)) == {"a": gpus}
