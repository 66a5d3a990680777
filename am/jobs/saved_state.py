"""What a job has saved: the local folders of its checkpoints, and whether there is a checkpoint of this incarnation."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from am.app import App
from am.jobs.run import JobRun
from themis.checkpoint_uri import local_folder
from themis.config.placeholders import CHECKPOINT_PATH_VARIABLE
from themis.errors import InputError

MAX_FILES = 10_000
"""Files of a job that are looked at."""


def checkpoint_folders(app: App, job: JobRun) -> list[Path]:
    """The local folders that a program may take for its model directory: `%checkpoint_path%`, and the one of `job run`.

    The files there must be this job's own. All jobs of an app have the folder of `job run` in their environment, so it
    counts only for an app of one job. A folder that contains another job's folder does not count. A task on another
    machine writes to a folder of that machine, which cannot be read here.
    """
    others = [each.folder.resolve() for each in app.search.jobs.values() if each is not job]
    places = [f"{app.checkpoint_uri}/{job.job_id}"]
    if not others:
        places.append(app.spec.program.environment.get(CHECKPOINT_PATH_VARIABLE, ""))
    found = []
    for place in filter(None, places):
        with contextlib.suppress(InputError):
            # What the user's command has as a relative path begins at the job's folder.
            folder = job.folder / local_folder(place)
            if not any(other.is_relative_to(folder.resolve()) for other in others):
                found.append(folder)
    return found


def newest_change_s(app: App, job: JobRun) -> float | None:
    """When a file of the job's checkpoint folders changed last, by the file system's clock; 0 without a file.

    Returns None for programs of the catalogue, whose checkpoints are known, and if no folder is on this machine.
    """
    folders = checkpoint_folders(app, job) if app.spec.program.command else []
    return max((changed_s for folder in folders for changed_s in _changes_s(folder)), default=0.0) if folders else None


def has_newer_checkpoint(app: App, job: JobRun) -> bool:
    """Whether the job has saved since its tasks were started. Also true if this cannot be known.

    A program of the user's own may write checkpoints in a form of its own. So any newer file in its checkpoint folders
    counts. If these folders are not on this machine, only its next start will show it.
    """
    if job.saved_iteration > job.started_from:
        return True
    changed_s = newest_change_s(app, job)
    if changed_s is None or job.files_changed_s is None:
        return bool(app.spec.program.command)
    return changed_s > job.files_changed_s


def _changes_s(folder: Path) -> Iterator[float]:
    """The times at which the files below a folder changed, of the first `MAX_FILES`."""
    paths = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    for path in itertools.islice(paths, MAX_FILES):
        with contextlib.suppress(OSError):
            yield path.lstat().st_mtime
