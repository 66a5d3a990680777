"""The audit's idle GPUs on clusters of several device types."""

import pytest

from themis_lab.testbed.audit_idle import fitting
from themis_lab.testbed.audit_values import AuditedJob

FREE = {"g0": ["g0/0"], "g1": ["g1/0"], "c0": ["c0/0"]}
DEVICE_OF = {"g0": "gpu", "g1": "gpu", "c0": "cpu"}


@pytest.mark.parametrize(
    ("min_tasks", "devices", "fits"),
    [
        (1, ("gpu", "cpu"), ["g0/0", "g1/0", "c0/0"]),
        (1, ("cpu",), ["c0/0"]),
        (2, ("gpu", "cpu"), ["g0/0", "g1/0"]),
        (3, ("gpu", "cpu"), []),
        (2, ("cpu",), []),
    ],
)
def test_only_a_gang_of_one_type_that_can_run_the_job_counts_as_idle(min_tasks, devices, fits):
    assert fitting(FREE, AuditedJob(min_tasks=min_tasks, devices=devices), DEVICE_OF) == fits


def test_on_a_cluster_of_one_type_all_free_gpus_count():
    assert fitting(FREE, AuditedJob(min_tasks=3), {}) == ["g0/0", "g1/0", "c0/0"]
