"""Keep the logs of tasks within their cap (`task_log_mb`)."""

from __future__ import annotations

import logging
import math
import os

from am.app import App
from am.jobs.run import JobRun
from themis.capped_files import give_back
from themis.files import open_regular

LOG = logging.getLogger("themis.am.logs")

LOOK_EVERY_S = 1.0
_MIB = 1024 * 1024


class LogCaps:
    """Gives the oldest output of tasks back to the disk, once the profiler has read it.

    Unread lines are lost only if a chief writes faster than the profiler reads until the log takes twice its cap.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._cap_bytes = app.task_log_mb * _MIB
        self._looked_at_s = -math.inf
        self._impossible = False

    def keep(self) -> None:
        """Cap the logs of all running jobs, at most once in `LOOK_EVERY_S` seconds. Call this after they were read."""
        now_s = self._app.now_s()
        if not self._cap_bytes or self._impossible or 0.0 <= now_s - self._looked_at_s < LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        for job in self._app.search.jobs.values():
            if job.running:
                for index in range(job.spec.shape.tasks):
                    self._keep_one(job, index)

    def _keep_one(self, job: JobRun, index: int) -> None:
        path = job.task_log(index)
        try:
            with os.fdopen(open_regular(path, os.O_WRONLY), "wb") as file:
                lost = give_back(file.fileno(), self._cap_bytes, None if index else job.follower.offset)
        except FileNotFoundError:
            return
        except OSError as error:
            self._impossible = True
            LOG.warning("logs are not capped: no space of %s can be given back: %s", path, error)
            return
        if lost:
            LOG.warning("%s grows too fast: %d bytes were not read", path, lost)
