"""The environment contract of tasks, written by us and read by the programs."""

import json

import pytest

from am.jobs.environment import JobIncarnation, task_environment
from themis.cluster import GpuId, Level
from themis.errors import InputError


def gang(**more):
    defaults = {
        "app_id": "app-1",
        "job_id": "j0",
        "incarnation": 3,
        "gpus": ((GpuId("m1", 0),),),
        "level": Level.SLOT,
        "checkpoint_uri": "file:///ckpt",
        "job_dir": "/jobs/j0",
    }
    return JobIncarnation(**{**defaults, **more})


TWO = {
    "gpus": ((GpuId("m1", 3), GpuId("m1", 2)), (GpuId("m0", 0), GpuId("m0", 1))),
    "addresses": ("127.0.0.1:5000", "127.0.0.1:5001"),
    "level": Level.RACK,
}


def test_a_lone_task():
    assert task_environment(gang(time_scale=30.0), 0) == {
        "THEMIS_APP_ID": "app-1",
        "THEMIS_JOB_ID": "j0",
        "THEMIS_TASK_INDEX": "0",
        "THEMIS_TASKS": "1",
        "THEMIS_INCARNATION": "3",
        "THEMIS_CHECKPOINT_URI": "file:///ckpt",
        "THEMIS_JOB_DIR": "/jobs/j0",
        "THEMIS_GPUS": "m1:1",
        "THEMIS_LEVEL": "slot",
        "THEMIS_TIME_SCALE": "30",
        "THEMIS_DEVICE": "gpu",
        "THEMIS_SPEED": "1",
        "CUDA_VISIBLE_DEVICES": "0",
        "PYTHONUNBUFFERED": "1",
        "THEMIS_REPORT": "/jobs/j0/task-0.log",
        "_TASK_TYPE": "worker",
        "_TASK_INDEX": "0",
    }


def test_a_gang_of_two():
    first, second = (task_environment(gang(**TWO), index) for index in range(2))
    assert first["THEMIS_GPUS"] == second["THEMIS_GPUS"] == "m0:2,m1:2"
    assert (first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]) == ("2,3", "0,1")
    assert json.loads(second["TF_CONFIG"]) == {
        "cluster": {"worker": ["127.0.0.1:5000", "127.0.0.1:5001"]},
        "task": {"type": "worker", "index": 1},
    }
    assert (second["THEMIS_TASKS"], second["_TASK_INDEX"], second["THEMIS_LEVEL"]) == ("2", "1", "rack")


def test_emulated_gpus_show_no_card():
    assert task_environment(gang(emulated=True), 0)["CUDA_VISIBLE_DEVICES"] == ""


def test_the_contract_wins_over_the_users_variables():
    mine = {"THEMIS_JOB_ID": "x", "CUDA_VISIBLE_DEVICES": "7", "TF_CONFIG": "{}", "DATA": "/data"}
    seen = task_environment(gang(environment=mine), 0)
    assert (seen["THEMIS_JOB_ID"], seen["CUDA_VISIBLE_DEVICES"], seen["DATA"]) == ("j0", "0", "/data")
    assert "TF_CONFIG" not in seen


@pytest.mark.parametrize(
    "wrong",
    [{"gpus": ()}, {"gpus": ((GpuId("m0", 0), GpuId("m1", 0)),)}, {**TWO, "addresses": ("127.0.0.1:5000",)}],
)
def test_impossible_gangs(wrong):
    with pytest.raises(InputError):
        gang(**wrong)


@pytest.mark.parametrize("index", [-1, 1])
def test_tasks_that_the_gang_lacks(index):
    with pytest.raises(InputError):
        task_environment(gang(), index)


def test_the_programs_read_it():
    from tf_jobs.context import read_context

    context = read_context("digits_cnn", task_environment(gang(**TWO, time_scale=0.5), 1))
    assert (context.app_id, context.job_id, context.task_index, context.tasks) == ("app-1", "j0", 1, 2)
    assert (context.incarnation, context.gpus, context.level, context.time_scale) == (3, 4, "rack", 0.5)
    assert context.checkpoint_uri == "file:///ckpt"


def test_a_task_on_a_cpu_node_sees_no_card_and_gets_its_threads():
    environment = task_environment(gang(device="cpu", speed=0.25, threads=(4,), emulated=True), 0)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert (environment["THEMIS_DEVICE"], environment["THEMIS_SPEED"]) == ("cpu", "0.25")
    assert environment["THEMIS_THREADS"] == environment["OMP_NUM_THREADS"] == "4"
    assert environment["TF_NUM_INTRAOP_THREADS"] == environment["TF_NUM_INTEROP_THREADS"] == "4"


def test_each_task_of_a_gang_on_cpu_nodes_has_the_threads_of_its_node():
    nodes = gang(**TWO, device="cpu", threads=(4, 2), emulated=True)
    assert [task_environment(nodes, index)["OMP_NUM_THREADS"] for index in range(2)] == ["4", "2"]


TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
ONE = {"addresses": ("127.0.0.1:5000",)}


def test_each_task_of_a_gang_is_a_torchrun_node_of_one_process():
    seen = [task_environment(gang(**TWO, framework="pytorch"), index) for index in range(2)]
    assert [[each[name] for name in TORCHRUN] for each in seen] == [list("020100"), list("120111")]
    assert {(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in seen} == {("127.0.0.1", "5000")}


def test_torchrun_in_the_command_starts_a_process_for_each_card():
    seen = task_environment(gang(**TWO, framework="pytorch"), 1)
    assert (seen["PET_NNODES"], seen["PET_NODE_RANK"], seen["PET_NPROC_PER_NODE"]) == ("2", "1", "2")
    assert (seen["PET_MASTER_ADDR"], seen["PET_MASTER_PORT"]) == ("127.0.0.1", "5000")


@pytest.mark.parametrize(
    ("framework", "tasks", "most_tasks", "tf_config", "torchrun"),
    [
        ("", 1, 1, False, False),
        ("", 1, 2, False, True),
        ("", 2, 2, True, True),
        ("tensorflow", 1, 2, False, False),
        ("tensorflow", 2, 2, True, False),
        ("pytorch", 1, 1, False, True),
        ("pytorch", 2, 2, False, True),
        ("none", 2, 2, False, False),
    ],
)
def test_the_framework_and_the_number_of_tasks_decide_on_the_variables(
    framework, tasks, most_tasks, tf_config, torchrun
):
    seen = task_environment(gang(**(TWO if tasks == 2 else ONE), framework=framework, most_tasks=most_tasks), 0)
    assert ("TF_CONFIG" in seen) is tf_config
    assert {name in seen for name in (*TORCHRUN, "MASTER_ADDR", "MASTER_PORT")} == {torchrun}


def test_variables_of_the_user_stay_if_the_framework_does_not_set_them():
    mine = {"TF_CONFIG": "{}", "RANK": "7"}
    seen = task_environment(gang(**TWO, environment=mine, framework="none"), 0)
    assert (seen["TF_CONFIG"], seen["RANK"]) == ("{}", "7")


def test_a_gang_of_one_without_an_address_cannot_run_as_torchrun():
    with pytest.raises(InputError, match="needs an address"):
        gang(framework="pytorch")
