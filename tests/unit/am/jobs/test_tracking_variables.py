"""The variables of MLflow and Weights & Biases that a task gets."""

import json

import pytest

from am.jobs.environment import JobIncarnation, task_environment
from themis.cluster import GpuId, Level

RUN = "0123456789abcdef0123456789abcdef"
NAMES = ("WANDB_", "MLFLOW_")


def tracked(environment, task=0, run=""):
    gang = JobIncarnation(
        app_id="app-0007",
        job_id="j0",
        incarnation=2,
        gpus=((GpuId("m0", 0),), (GpuId("m0", 1),)),
        addresses=("127.0.0.1:1", "127.0.0.1:2"),
        level=Level.SLOT,
        checkpoint_uri="/ck",
        job_dir="/jobs/j0",
        environment=environment,
        submitted_at_s=255.9,
        tracked_run=run,
    )
    return {name: value for name, value in task_environment(gang, task).items() if name.startswith(NAMES)}


def test_app_without_a_tracker_gets_none():
    assert tracked({"DATA": "/data"}, run=RUN) == {}


def test_wandb_run_of_a_job_is_resumed_by_its_first_task():
    mine = {"WANDB_PROJECT": "digits"}
    assert tracked(mine) == {
        **mine,
        "WANDB_RUN_GROUP": "app-0007",
        "WANDB_NAME": "app-0007-j0",
        "WANDB_RUN_ID": "app-0007-j0-ff",
        "WANDB_RESUME": "allow",
    }
    assert tracked(mine, task=1) == {**mine, "WANDB_RUN_GROUP": "app-0007", "WANDB_NAME": "app-0007-j0-task1"}


@pytest.mark.parametrize("run", [RUN, f"http://ml.example.org/#/experiments/0/runs/{RUN}?workspace=x"])
def test_mlflow_resumes_the_run_that_an_earlier_start_reported(run):
    mine = {"MLFLOW_TRACKING_URI": "http://ml.example.org"}
    first = tracked(mine)
    assert first.keys() == {"MLFLOW_TRACKING_URI", "MLFLOW_RUN_CONTEXT"}
    tags = {"mlflow.runName": "app-0007-j0", "themis.app": "app-0007", "themis.job": "j0"}
    assert json.loads(first["MLFLOW_RUN_CONTEXT"]) == tags
    assert tracked(mine, run=run) == {**first, "MLFLOW_RUN_ID": RUN}
    assert "MLFLOW_RUN_ID" not in tracked(mine, task=1, run=run)


def test_run_of_another_tracker_is_not_resumed_by_mlflow():
    assert "MLFLOW_RUN_ID" not in tracked({"MLFLOW_TRACKING_URI": "x"}, run="https://wandb.ai/me/digits/runs/app-1")


def test_users_own_variables_win():
    mine = {"WANDB_RUN_ID": "mine", "WANDB_NAME": "n", "MLFLOW_RUN_ID": "f" * 32, "MLFLOW_RUN_CONTEXT": "{}"}
    assert tracked(mine, run=RUN).items() >= mine.items()
