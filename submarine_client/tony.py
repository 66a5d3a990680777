"""Flags and settings of TonY, another way to run TensorFlow on YARN, and what to write instead of each."""

from __future__ import annotations

import re
from collections.abc import Mapping

from themis.errors import InputError

TONY_FLAGS: Mapping[str, str] = {
    "executes": "give the command with --worker_launch_cmd",
    "src_dir": "give the folder with --files; the command finds it by its last name",
    "task_params": "write the arguments into --worker_launch_cmd",
    "python_venv": "unpack the environment where tasks run, and write its python into --worker_launch_cmd",
    "python_binary_path": "write the interpreter's path into --worker_launch_cmd",
    "shell_env": "give each variable with --env",
    "container_env": "give each variable with --env",
    "conf_file": "write the job as a group file; docs/how-to/submarine-and-tony.md says where each setting goes",
    "hdfs_classpath": "leave it out: tasks need no classes of Hadoop",
}
"""What to do about each flag."""

_SETTINGS: tuple[tuple[str, str], ...] = (
    (r"tony\.worker\.instances", "give --num_workers"),
    (r"tony\.worker\.(memory|vcores|gpus)", "give --worker_resources, as in memory=4G,vcores=2,gpu=1"),
    (r"tony\.worker\.command", "give --worker_launch_cmd"),
    (r"tony\.chief\..*", "leave it out: the first worker is the chief"),
    (r"tony\.(ps|evaluator|tensorboard|notebook)\..*", "leave it out: all tasks are workers"),
    (r"tony\.application\.name", "give --name"),
    (r"tony\.yarn\.queue", "give --queue"),
    (r"tony\.application\.framework", "give --framework"),
    (r"tony\.containers\.resources", "give --files"),
    (r"tony\.application\.timeout", "set job.max_runtime_s in a group file"),
    (r"tony\.docker\..*", "set docker.image in the settings of the ResourceManager, or yarn.environment"),
)


def check_tony_setting(name: str) -> None:
    """Raise InputError, with what to write instead, if this is the name of a setting of TonY."""
    if not name.startswith("tony."):
        return
    remedies = [remedy for pattern, remedy in _SETTINGS if re.fullmatch(pattern, name)]
    raise InputError(
        "a setting of TonY has no effect here", value=name, remedy=remedies[0] if remedies else "leave it out"
    )
