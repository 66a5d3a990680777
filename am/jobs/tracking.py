"""Variables by which MLflow and Weights & Biases name, group and resume the runs of an app's jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_WANDB = "WANDB_"
_MLFLOW = "MLFLOW_"
_MLFLOW_RUN_ID = re.compile(r"(?:\A|/runs/)([0-9a-f]{32})(?:\Z|[/?#])")


def tracking_variables(
    environment: Mapping[str, str], *, app_id: str, job_id: str, task_index: int, submitted_at_s: float, run: str
) -> dict[str, str]:
    """Return variables for one task, for each of the two trackers that the user's own variables name.

    A job is one run over all its starts, and the runs of an app are one group. Only the first task gets the id of the
    run: the others would write to the same run.

    Example: with `WANDB_PROJECT` among the user's variables, the first task of job j0 of app-0007 has
    `WANDB_RUN_GROUP=app-0007`, `WANDB_NAME=app-0007-j0`, `WANDB_RUN_ID=app-0007-j0-69273a60` and `WANDB_RESUME=allow`.

    Args:
        environment: The user's variables.
        app_id: The app.
        job_id: The job.
        task_index: The index of the task within its gang.
        submitted_at_s: When the app was submitted, in seconds since the epoch. Ids of apps alone are not unique: each
            cluster counts its own.
        run: The address or id of the run that the job reported last; empty if it reported none. MLflow chooses the ids
            of runs, so a start can only resume a run that an earlier one reported.
    """
    name = f"{app_id}-{job_id}" + (f"-task{task_index}" if task_index else "")
    variables: dict[str, str] = {}
    if any(key.startswith(_WANDB) for key in environment):
        variables |= {"WANDB_RUN_GROUP": app_id, "WANDB_NAME": name}
        if not task_index:
            variables |= {"WANDB_RUN_ID": f"{name}-{int(submitted_at_s):x}", "WANDB_RESUME": "allow"}
    if any(key.startswith(_MLFLOW) for key in environment):
        tags = {"mlflow.runName": name, "themis.app": app_id, "themis.job": job_id}
        variables["MLFLOW_RUN_CONTEXT"] = json.dumps(tags)
        if not task_index and (found := _MLFLOW_RUN_ID.search(run)):
            variables["MLFLOW_RUN_ID"] = found[1]
    return variables
