"""Control groups (cgroup v2): the kernel's own list of all descendants of a process. Linux 5.14 or later.

A process that changes its session, its group and its environment still stays in its control group. This process can
make groups if the one that it is in belongs to its user: as root, in a systemd unit with `Delegate=yes`, or in a user's
own systemd session. Elsewhere `make` returns None, and processes are found by their marks and sessions only.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

from themis.accounts import Account

_PREFIX = "themis-"
_MOUNTS = Path("/proc/self/mountinfo")
_DELEGATED = ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control")
_counter = itertools.count()


class ControlGroup:
    """A control group with the descendants of one process, which may have made groups inside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls) -> ControlGroup | None:
        """Return a new empty group inside this process's group, or None if this process cannot make one."""
        parent = _folder_of("self")
        if parent is None:
            return None
        _remove_abandoned(parent)
        group = cls(parent / f"{_PREFIX}{os.getpid()}-{next(_counter)}")
        try:
            group.folder.mkdir()
        except OSError:
            return None
        if not (group.folder / "cgroup.kill").exists():
            group.remove()
            return None
        return group

    @classmethod
    def of(cls, pid: int) -> ControlGroup | None:
        """Return the group that a ResourceManager or an app master once made for this process, or None."""
        folder = _folder_of(str(pid))
        return cls(folder) if folder is not None and folder.name.startswith(_PREFIX) else None

    def add(self, pid: int) -> None:
        """Move a process into the group. Children that it already has stay outside."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def delegate(self, account: Account) -> None:
        """Let a user make groups inside this one and move processes between them, but not out of it. Needs root."""
        for path in (self.folder, *(self.folder / name for name in _DELEGATED)):
            with contextlib.suppress(OSError):
                os.chown(path, account.uid, account.gid)

    def kill(self) -> None:
        """Send SIGKILL to all processes of the group and of groups inside it."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1", encoding="ascii")

    @property
    def populated(self) -> bool:
        """Whether a process other than a zombie is in the group or in groups inside it."""
        try:
            return "populated 1" in (self.folder / "cgroup.events").read_text(encoding="ascii")
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the group and those inside it. The kernel keeps a group that has processes."""
        _remove(self.folder)


def _folder_of(pid: str) -> Path | None:
    """The folder of a process's group, or None if no cgroup v2 file system shows it."""
    try:
        groups = Path("/proc", pid, "cgroup").read_text(encoding="utf-8")
        mounts = _MOUNTS.read_text(encoding="utf-8")
    except OSError:
        return None
    path = next((line.removeprefix("0::") for line in groups.splitlines() if line.startswith("0::")), None)
    # `31 23 0:30 ROOT MOUNT_POINT OPTIONS .. - cgroup2 ..` (proc(5)); ROOT is the group that is mounted there.
    found = (line.split() for line in mounts.splitlines() if " - cgroup2 " in line)
    root, mount_point = next(((fields[3], Path(fields[4])) for fields in found), (None, Path()))
    if path is None or root is None or ".." in path or not Path(path).is_relative_to(root):
        return None
    return mount_point / Path(path).relative_to(root)


def _remove_abandoned(parent: Path) -> None:
    """Remove empty groups whose makers were killed before they could.

    A group with processes stays whole: an app master in it may just have made an empty one for its next task.
    """
    for folder in parent.glob(f"{_PREFIX}*"):
        maker = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if maker.isdigit() and not Path("/proc", maker).exists() and not ControlGroup(folder).populated:
            _remove(folder)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for inner in [each for each in folder.iterdir() if each.is_dir()]:
            _remove(inner)
        folder.rmdir()
