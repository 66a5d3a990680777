"""`report` and `report_run`: training programs call them to report progress. Imports only Python's standard library."""

from __future__ import annotations

import json
import os
import time

PREFIX = "INFO:themis:report "
"""The beginning of each line with a report."""

RUN_PREFIX = "INFO:themis:run "
"""The beginning of each line that names a run."""

FILE_VARIABLE = "THEMIS_REPORT"
"""Environment variable with the file that reports are appended to: the log of the task. Without it, standard output."""


def report(*, step: int, loss: float | None = None, **metrics: float) -> None:
    """Report the progress of training.

    Example: `report(step=40, loss=0.69)`, and after an evaluation `report(step=40, val_loss=0.71, accuracy=0.8)`.

    Call it in the first task of a job, as often as the program would log. Numbers of libraries, for example a PyTorch
    tensor with one element, are converted with `float`.

    Args:
        step: Iterations done so far, over all epochs.
        loss: Loss on the training data. NaN ends the job as diverged if it is reported twice in a row.
        metrics: More values by name. `val_loss` is the loss on held-out data, by which searches compare jobs, and
            `accuracy` a share. Declare `metric: {name: ..}` in the group file to compare by another one.

    Raises:
        TypeError, ValueError: A value cannot be converted to a number.
    """
    values: dict[str, float] = {"step": int(step)}
    if loss is not None:
        values["loss"] = float(loss)
    values |= {name: float(value) for name, value in metrics.items()}
    values["time_s"] = round(time.monotonic(), 4)
    _write(f"{PREFIX}{json.dumps(values)}")


def report_run(run: str) -> None:
    """Report where the run of this job is in an experiment tracker. Themis shows it beside the job.

    Example: `report_run(run.info.run_id)` with MLflow, so that the next start of the job resumes this run. Weights &
    Biases, and MLflow at the end of a run, print the address themselves.

    Args:
        run: An address (`https://..`) or an id.
    """
    _write(f"{RUN_PREFIX}{json.dumps(str(run))}")


def _write(text: str) -> None:
    # The line end before it separates the line from a progress bar that was drawn without one.
    line = f"\n{text}\n".encode()
    try:
        file = os.open(os.environ.get(FILE_VARIABLE, ""), os.O_WRONLY | os.O_APPEND)
    except OSError:
        os.write(1, line)
        return
    try:
        os.write(file, line)
    finally:
        os.close(file)
