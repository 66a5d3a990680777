"""Starts the tasks of a replay job as on machines of their own: an address and a folder for each, and nothing shared
but the checkpoint store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from free_ports import free_port

from am.checkpoints import open_store

FAST = ("--serial_iteration_s", "1", "--slowdown", "1,1,1,1", "--log_every", "50", "--checkpoint_every", "1000")


class ReplayJob:
    """One job; each start is an incarnation, in folders of its own. Task i listens on 127.0.0.(i + 1)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.incarnation = 0
        self.store = open_store(str(folder / "ck"))
        self.started: list[subprocess.Popen[str]] = []
        self._addresses: list[str] = []

    def start(self, *flags, tasks=1, gpus="m0:1", level="slot", scale="200"):
        self.prepare(tasks)
        return [self.task(i, *flags, gpus=gpus, level=level, scale=scale) for i in range(tasks)]

    def prepare(self, tasks: int) -> list[str]:
        """Begin an incarnation whose tasks are started one by one; returns their addresses."""
        self.incarnation += 1
        self._addresses = [f"{host}:{free_port(host)}" for host in (f"127.0.0.{i + 1}" for i in range(tasks))]
        return self._addresses

    def task(self, index, *flags, gpus="m0:1", level="slot", scale="200", **changed):
        """Start one task of the incarnation, with `changed` in its environment."""
        environment = {
            "THEMIS_APP_ID": "a",
            "THEMIS_JOB_ID": "j",
            "THEMIS_TASK_INDEX": str(index),
            "THEMIS_TASKS": str(len(self._addresses)),
            "THEMIS_INCARNATION": str(self.incarnation),
            "THEMIS_CHECKPOINT_URI": str(self.folder / "ck"),
            "THEMIS_JOB_DIR": str(self._job_dir(self.incarnation, index)),
            "THEMIS_GPUS": gpus,
            "THEMIS_LEVEL": level,
            "THEMIS_TIME_SCALE": scale,
        }
        if len(self._addresses) > 1:
            environment["TF_CONFIG"] = tf_config(self._addresses, index)
        command = [sys.executable, "-m", "tf_jobs.replay", *flags]
        task = subprocess.Popen(command, env=os.environ | environment | changed, stderr=subprocess.PIPE, text=True)
        self.started.append(task)
        return task

    def events(self) -> list[dict]:
        """What the chiefs of all incarnations noted."""
        paths = [self._job_dir(incarnation, 0) / "history.jsonl" for incarnation in range(1, self.incarnation + 1)]
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def kill_all(self) -> None:
        for task in self.started:
            task.kill()
            task.communicate()

    def _job_dir(self, incarnation: int, index: int) -> Path:
        return self.folder / f"start-{incarnation}-task-{index}"


def tf_config(addresses: list[str], index: int) -> str:
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def until_training(tasks) -> None:
    """Return when the chief has logged its first iteration, so all have come up."""
    for line in tasks[0].stderr:
        if "INFO:tensorflow:loss" in line:
            return
    raise AssertionError("the chief ended before")


def finish(tasks, timeout_s=60):
    outputs = [task.communicate(timeout=timeout_s)[1] for task in tasks]
    return [task.returncode for task in tasks], outputs


def ask_to_stop(task) -> None:
    """SIGTERM; to a task that is up, as one that is not would just die."""
    task.send_signal(signal.SIGTERM)
