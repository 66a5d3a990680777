"""The environment that the runtime gives."""

from pathlib import Path

import pytest

from tf_jobs.addresses import Address
from tf_jobs.context import count_gpus, read_context
from themis.errors import InputError

GIVEN = {
    "THEMIS_APP_ID": "a",
    "THEMIS_JOB_ID": "j",
    "THEMIS_TASK_INDEX": "1",
    "THEMIS_TASKS": "2",
    "THEMIS_INCARNATION": "4",
    "THEMIS_CHECKPOINT_URI": "file:///ck",
    "THEMIS_JOB_DIR": "/job",
    "THEMIS_GPUS": "m0:2,m1:1",
    "THEMIS_LEVEL": "rack",
    "THEMIS_TIME_SCALE": "30",
    "TF_CONFIG": '{"cluster": {"worker": ["m0:1000", "m1:2000"]}, "task": {"type": "worker", "index": 1}}',
}


def test_everything_given():
    context = read_context("p", GIVEN)
    assert (context.app_id, context.job_id, context.task_index, context.tasks) == ("a", "j", 1, 2)
    assert (context.incarnation, context.checkpoint_uri, context.job_dir) == (4, "file:///ck", Path("/job"))
    assert (context.gpus, context.level, context.time_scale, context.chief) == (3, "rack", 30.0, False)
    assert context.addresses == (Address("m0", 1000), Address("m1", 2000))


def test_by_hand_nothing_is_needed():
    context = read_context("p", {})
    assert (context.job_id, context.gpus, context.level, context.incarnation) == ("p", 1, "slot", 1)
    assert (context.job_dir, context.checkpoint_uri) == (Path("themis-jobs/p"), "themis-jobs/p/checkpoints")
    assert context.addresses == ()


def test_checkpoints_may_lie_where_no_local_folder_is():
    context = read_context("p", {}, "hdfs://somewhere/ck")
    assert (context.job_dir, context.checkpoint_uri) == (Path("themis-jobs/p"), "hdfs://somewhere/ck")


@pytest.mark.parametrize(
    "wrong",
    [
        {"THEMIS_TASK_INDEX": "2"},
        {"THEMIS_TASK_INDEX": "-1"},
        {"THEMIS_TASKS": "0"},
        {"THEMIS_INCARNATION": "x"},
        {"THEMIS_INCARNATION": ""},
        {"THEMIS_CHECKPOINT_URI": ""},
        {"TF_CONFIG": ""},
        {"THEMIS_LEVEL": "room"},
        {"THEMIS_TIME_SCALE": "0"},
        {"THEMIS_TIME_SCALE": "fast"},
        {"THEMIS_TIME_SCALE": "inf"},
        {"THEMIS_GPUS": "m0"},
    ],
)
def test_variables_that_do_not_parse(wrong):
    with pytest.raises(InputError):
        read_context("p", GIVEN | wrong)


@pytest.mark.parametrize(("text", "gpus"), [("m0:2", 2), ("m0:2,m1:1", 3), ("host:8088:4", 4), ("", 7), (" ", 7)])
def test_gpus(text, gpus):
    assert count_gpus(text, default=7) == gpus


@pytest.mark.parametrize("text", ["m0", "m0:", ":2", "m0:0", "m0:-1", "m0:1,", "m0:1.5"])
def test_gpus_that_do_not_parse(text):
    with pytest.raises(InputError):
        count_gpus(text, default=1)
