"""Check that a batch can be split over a job's tasks, before an app is submitted and again in each task."""

from __future__ import annotations

from themis.errors import InputError


def check_batch_size(batch_size: int, tasks: int) -> None:
    """Raise InputError unless the batch has a sample for each task."""
    if batch_size < tasks:
        raise InputError("--batch_size is below the number of tasks", value=batch_size, remedy="raise it")


def check_parts(parts: int, batch_size: int, tasks: int) -> None:
    """Raise InputError unless each task gets a part and each part holds a sample. 0 parts are always valid.

    Args:
        parts: The value of `--ordered_parts`.
        batch_size: Samples of a batch.
        tasks: The number of tasks of the job.
    """
    if parts and not tasks <= parts <= batch_size:
        remedy = f"use {tasks} (tasks) to {batch_size} (batch_size)"
        raise InputError("--ordered_parts is out of range", value=parts, remedy=remedy)
