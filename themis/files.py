"""Files of folders that others write too, and which users may read what we write.

A task does what it likes in its folder. What is read there is opened by plain names below a folder of ours, without
following a link or waiting for a pipe, and only if it is a regular file.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from themis.errors import InputError

_OPENING = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def keep_private() -> None:
    """From now on this process and those that it starts make files that their owner alone can read and write."""
    os.umask(_OTHERS)


def make_private(path: Path) -> None:
    """Close a file or folder of ours that may be from before to other users; to what lies in it they then cannot get.

    What is not there, belongs to another user or is a link is left alone.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        facts = path.lstat()
        if facts.st_uid == os.geteuid() and not stat.S_ISLNK(facts.st_mode) and facts.st_mode & _OTHERS:
            path.chmod(stat.S_IMODE(facts.st_mode) & ~_OTHERS)


def open_below(folder: Path, *names: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file by the names of the folders that lead to it and its own; returns the descriptor.

    Raises:
        InputError: A name is empty, `.` or `..`, or holds a `/` or a NUL.
        OSError: There is no such file, a name on the way is a link, or it is no regular file.
    """
    with contextlib.ExitStack() as opened:
        parent = _open_folder(folder, opened)
        for name in names[:-1]:
            parent = _open_folder(_checked(name), opened, parent)
        descriptor = os.open(_checked(names[-1]), flags | _OPENING, 0o600, dir_fd=parent)
    return _regular(descriptor, names[-1])


def open_regular(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file, made when missing and `flags` say so; a link or anything else raises OSError."""
    return _regular(os.open(path, flags | _OPENING, mode), str(path))


def names_below(folder: Path, *names: str) -> list[str]:
    """What a folder holds, sorted; nothing where it is not there, or a name that leads to it is a link."""
    try:
        with contextlib.ExitStack() as opened:
            parent = _open_folder(folder, opened)
            for name in names:
                parent = _open_folder(_checked(name), opened, parent)
            return sorted(os.listdir(parent))  # noqa: PTH208 - of a descriptor
    except OSError:
        return []


def _open_folder(name: Path | str, opened: contextlib.ExitStack, parent: int | None = None) -> int:
    # The first is a folder of ours, which may well be reached by a link.
    follow = os.O_NOFOLLOW if parent is not None else 0
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow, dir_fd=parent)
    opened.callback(os.close, descriptor)
    return descriptor


def _checked(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise InputError("not the name of a file", value=name, remedy="names without '/' are")
    return name


def _regular(descriptor: int, name: str) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{name} is no regular file")
    return descriptor
