"""Whether a batch can be dealt to a job's tasks: asked before an app is submitted, and again by each task."""

from __future__ import annotations

from themis.errors import InputError


def check_batch_size(batch_size: int, tasks: int) -> None:
    """Raise InputError unless there is a sample for each task."""
    if batch_size < tasks:
        raise InputError("--batch_size is below the number of tasks", value=batch_size, remedy="raise it")


def check_parts(parts: int, batch_size: int, tasks: int) -> None:
    """Raise InputError unless the parts that a batch is added in, 0 for none, are dealt to all tasks and all hold some.

    Args:
        parts: Of `--ordered_parts`.
        batch_size: Samples of a batch.
        tasks: Of the job.
    """
    if parts and not tasks <= parts <= batch_size:
        remedy = f"use {tasks} (tasks) to {batch_size} (batch_size)"
        raise InputError("--ordered_parts is out of range", value=parts, remedy=remedy)
