"""Control groups (cgroup v2): the kernel's own list of all descendants of a process. Linux 5.14 or later.

A process that changes its session, its group and its environment still stays in its control group. This process can
make groups if the one that it is in belongs to its user: as root, in a systemd unit with `Delegate=yes`, or in a user's
own systemd session. Elsewhere `make` returns None, and processes are found by their marks and sessions only.

Limits need more: the kernel limits groups only below one without processes of its own. So this process must be alone in
an inner group named `themis-self`, as systemd makes it with `DelegateSubgroup=themis-self`. New groups are then made
beside it, and a process that makes groups itself is started in such an inner group of its own:

    themis-rm.service/themis-self              the ResourceManager
    themis-rm.service/themis-70-0              all of an app, at most `Limits` that only root can change
    themis-rm.service/themis-70-0/themis-self  its app master
    themis-rm.service/themis-70-0/themis-81-0  a task, at most `Limits`
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from pathlib import Path

from themis.accounts import Account
from themis.sessions import raise_shortage
from themis.values import Value

_PREFIX = "themis-"
_NAME = re.compile(r"themis-\d+-\d+")
SELF = "themis-self"
_CONTROLLERS = ("memory", "cpu")
_PERIOD_US = 100_000
_MAX_BELOW = {"cgroup.max.depth": "8", "cgroup.max.descendants": "4096"}
"""What a user may make in a group: far more than tasks need, and so few that `remove` ends."""
_MOUNTS = Path("/proc/self/mountinfo")
_DELEGATED = ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control")
_counter = itertools.count()


class Limits(Value, frozen=True, kw_only=True):
    """What the processes of a group may use together; 0: no limit.

    Attributes:
        memory_mb: RAM in MiB, without swap. Beyond it, the kernel kills the group.
        cores: Processor time of this number of cores.
    """

    memory_mb: int = 0
    cores: int = 0


NO_LIMITS = Limits()


def enable_limits() -> bool:
    """Let groups that this process makes have limits, and return whether they can."""
    own = _folder_of("self")
    if own is None or own.name != SELF:
        return False
    _enable(own.parent)
    try:
        enabled = (own.parent / "cgroup.subtree_control").read_text(encoding="ascii").split()
    except OSError:
        return False
    return set(_CONTROLLERS) <= set(enabled)


class ControlGroup:
    """A control group with the descendants of one process, which may have made groups inside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, limits: Limits = NO_LIMITS, *, for_maker: bool = False) -> ControlGroup | None:
        """Return a new empty group inside this process's group, or None if this process cannot make one.

        Args:
            limits: What its processes may use, if this process can limit them.
            for_maker: Whether the first process of the group makes groups with limits itself.
        """
        try:
            own = _folder_of("self")
        except OSError:
            own = None
        if own is None:
            return None
        has_limits = own.name == SELF
        parent = own.parent if has_limits else own
        _remove_abandoned(parent)
        group = cls(parent / f"{_PREFIX}{os.getpid()}-{next(_counter)}")
        try:
            group.folder.mkdir()
        except OSError:
            return None
        if not (group.folder / "cgroup.kill").exists():
            group.remove()
            return None
        if has_limits:
            group._limit(limits)
            if for_maker:
                group._make_inner()
        return group

    @classmethod
    def of(cls, pid: int) -> ControlGroup | None:
        """Return the group that a ResourceManager once made for this app master, or None.

        It is the outermost one: the app master may have made others inside it, and moved itself there. A group that
        holds this process too was made for it.
        """
        folder, own = _folder_of(str(pid)), _folder_of("self")
        if folder is None or own is None:
            return None
        groups = [each for each in (folder, *folder.parents) if _NAME.fullmatch(each.name)]
        return next((cls(each) for each in reversed(groups) if not own.is_relative_to(each)), None)

    def add(self, pid: int) -> None:
        """Move a process into the group. Children that it already has stay outside."""
        inner = self.folder / SELF
        with contextlib.suppress(OSError):
            ((inner if inner.exists() else self.folder) / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def delegate(self, account: Account) -> None:
        """Let a user make groups inside this one and move processes between them, but not out of it. Needs root."""
        for name, count in _MAX_BELOW.items():
            self._write(name, count)
        for folder in (self.folder, self.folder / SELF):
            for path in (folder, *(folder / name for name in _DELEGATED)):
                with contextlib.suppress(OSError):
                    os.chown(path, account.uid, account.gid)

    def kill(self) -> None:
        """Send SIGKILL to all processes of the group and of groups inside it.

        Raises OSError if this process lacks file handles; so do `of` and `populated`.
        """
        try:
            (self.folder / "cgroup.kill").write_text("1", encoding="ascii")
        except OSError as error:
            raise_shortage(error)

    @property
    def populated(self) -> bool:
        """Whether a process other than a zombie is in the group or in groups inside it."""
        try:
            return "populated 1" in (self.folder / "cgroup.events").read_text(encoding="ascii")
        except OSError as error:
            raise_shortage(error)
            return False

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed a process of it because of a limit of memory, its own or one above it."""
        try:
            events = (self.folder / "memory.events").read_text(encoding="ascii").split()
        except OSError:
            return False
        counts = dict(zip(events[::2], events[1::2], strict=False))
        # `oom_kill` counts kills for lack of memory of the whole machine too, `oom` those at a limit.
        return "0" not in (counts.get("oom", "0"), counts.get("oom_kill", "0"))

    def _limit(self, limits: Limits) -> None:
        if limits.memory_mb:
            self._write("memory.max", str(limits.memory_mb << 20))
            self._write("memory.swap.max", "0")
            # A task of which one process is gone would go on, or wait for it.
            self._write("memory.oom.group", "1")
        if limits.cores:
            self._write("cpu.max", f"{limits.cores * _PERIOD_US} {_PERIOD_US}")

    def _make_inner(self) -> None:
        with contextlib.suppress(OSError):
            (self.folder / SELF).mkdir()
            _enable(self.folder)

    def _write(self, name: str, text: str) -> None:
        # The kernel may lack the controller: `enable_limits` says so at the start.
        if (self.folder / name).exists():
            with contextlib.suppress(OSError):
                (self.folder / name).write_text(text, encoding="ascii")

    def remove(self) -> None:
        """Remove the group and those inside it. The kernel keeps a group that has processes."""
        _remove(self.folder)


def _enable(folder: Path) -> None:
    """Let groups inside a group have limits. One at a time: the kernel refuses all if it lacks one."""
    for controller in _CONTROLLERS:
        with contextlib.suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")


def _folder_of(pid: str) -> Path | None:
    """The folder of a process's group, or None if no cgroup v2 file system shows it."""
    try:
        groups = Path("/proc", pid, "cgroup").read_text(encoding="utf-8")
        mounts = _MOUNTS.read_text(encoding="utf-8")
    except OSError as error:
        raise_shortage(error)
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
        # A later start removes what cannot be looked at now.
        with contextlib.suppress(OSError):
            if maker.isdigit() and not Path("/proc", maker).exists() and not ControlGroup(folder).populated:
                _remove(folder)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for inner in [each for each in folder.iterdir() if each.is_dir()]:
            _remove(inner)
        folder.rmdir()
