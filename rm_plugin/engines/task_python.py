"""Which `python3` the tasks of the engine `local` find: the first in the PATH of the service."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path


def task_python_warning(environment: Mapping[str, str], *, own: str = sys.executable) -> str:
    """Return what the start warns of; empty if tasks find the interpreter of the service.

    A service that is started by its full path, as systemd does it, has no activated environment. Its tasks then find
    the machine's `python3`, which rarely has TensorFlow, PyTorch or Themis.

    Args:
        environment: The variables of the service, which tasks inherit.
        own: The interpreter of the service.
    """
    found = shutil.which("python3", path=environment.get("PATH", os.defpath))
    # Links in the folder of an environment lead to one interpreter, so the folders are compared.
    folder = Path(own).parent
    if found is not None and Path(found).parent.resolve() == folder.resolve():
        return ""
    where = f"is {found}" if found else "is not in PATH"
    return (
        f"the `python3` of tasks {where}, not the interpreter of this service, {own}: "
        f"start the service with {folder} first in PATH, or name the interpreter of programs in group files (`python`)"
    )
