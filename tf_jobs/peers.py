"""How the tasks of a replay job keep together: marker files in the job's folder, and a lock that dies with its task.

Stands in for the collectives of a real job: all start together, one asked to stop stops all, one that dies fails all.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tf_jobs.context import TaskContext

FOLDER = "tasks"


class Peers:
    """One task's view of its peers in this incarnation.

    Args:
        context: This task's context.
    """

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._folder = context.job_dir / FOLDER
        self._prefix = f"{context.incarnation:06d}"
        self._held: int | None = None

    def announce(self) -> None:
        """Show that this task lives, until its process ends; the chief also clears what earlier incarnations left."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._context.chief:
            for path in self._folder.iterdir():
                if path.name.split(".")[0] < self._prefix:
                    path.unlink(missing_ok=True)
        # Locked before it gets its name, so whoever sees the file unlocked knows that its task is dead.
        final = self._alive(self._context.task_index)
        hidden = final.with_name(f"{final.name}.{os.getpid()}.new")
        self._held = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        hidden.rename(final)

    def all_announced(self) -> bool:
        """Whether every task of the job has come up."""
        return all(self._alive(index).exists() for index in range(self._context.tasks))

    def dead(self) -> int | None:
        """The index of a task that came up and is gone, or None."""
        for index in range(self._context.tasks):
            if index != self._context.task_index and self._is_dead(self._alive(index)):
                return index
        return None

    def ask_stop(self) -> None:
        """Ask the chief to stop the job after a checkpoint."""
        (self._folder / f"{self._prefix}.stop").touch()

    def stop_asked(self) -> bool:
        """Whether a task has asked to stop."""
        return (self._folder / f"{self._prefix}.stop").exists()

    def publish_end(self, code: int) -> None:
        """Tell the other tasks the job's exit code."""
        final = self._folder / f"{self._prefix}.end"
        hidden = final.with_name(f"{final.name}.new")
        hidden.write_text(str(code), encoding="utf-8")
        hidden.rename(final)

    def end_code(self) -> int | None:
        """The job's exit code, once the chief has published it."""
        try:
            return int((self._folder / f"{self._prefix}.end").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def _alive(self, index: int) -> Path:
        return self._folder / f"{self._prefix}.task-{index}"

    @staticmethod
    def _is_dead(path: Path) -> bool:
        """Whether a task's file is there and nobody holds its lock."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two tasks that look at the same time do not take each other for the owner.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True
