"""Open files in folders that tasks write too, keep our files private to their owner, and wait until they are on disk.

A task can put anything into its folder. So files there are opened by plain names below a folder of ours, without
following links or waiting for pipes, and only regular files are accepted.
"""

from __future__ import annotations

import contextlib
import os
import stat
from itertools import islice
from pathlib import Path

from themis.errors import InputError

_OPENING = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

MAX_NAMES = 10_000
"""The most names of a folder that are read."""


def keep_private() -> None:
    """Let this process and its children create files that only their owner can read and write."""
    os.umask(_OTHERS)


def make_private(path: Path) -> None:
    """Remove other users' access to an existing file or folder of ours, and so to everything below it.

    A missing path, a link and a file of another user are left as they are.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        facts = path.lstat()
        if facts.st_uid == os.geteuid() and not stat.S_ISLNK(facts.st_mode) and facts.st_mode & _OTHERS:
            path.chmod(stat.S_IMODE(facts.st_mode) & ~_OTHERS)


def let_others_pass(folder: Path) -> None:
    """Let other users reach what they may use in a folder of ours, if they know its name.

    Those who could reach nothing there before lose all rights to what is there already.
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    # Members of the folder's group have the group's rights only.
    classes = ((stat.S_IXGRP, stat.S_IRWXG), (stat.S_IXOTH, stat.S_IRWXO))
    closed = sum(rights for passing, rights in classes if not mode & passing)
    if not closed:
        return
    for path in folder.iterdir():
        # A temporary file may be gone by now.
        with contextlib.suppress(FileNotFoundError):
            facts = path.lstat()
            if not stat.S_ISLNK(facts.st_mode) and facts.st_mode & closed:
                path.chmod(stat.S_IMODE(facts.st_mode) & ~closed)
    folder.chmod(mode | stat.S_IXGRP | stat.S_IXOTH)


def lets_others_pass(folder: Path) -> bool:
    """Whether `let_others_pass` opened this private folder: others may neither list it nor write to it."""
    with contextlib.suppress(OSError):
        mode = stat.S_IMODE(folder.lstat().st_mode)
        return mode & _OTHERS & ~stat.S_IXGRP == stat.S_IXOTH
    return False


def sync_folder(folder: Path) -> None:
    """Wait until a folder's entries are on disk, such as a file that was renamed into it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_below(folder: Path, *names: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file below a folder and return its descriptor.

    Args:
        folder: A folder of ours; it may be reached by a link.
        names: The names of the folders below it, then the name of the file.
        flags: As for `os.open`.

    If we are root and the folder is another user's, the file must be of this user too. Otherwise the user could give us
    a third user's file by a hard link, on systems without `fs.protected_hardlinks`.

    Raises:
        InputError: A name is empty, `.` or `..`, or holds a `/` or a NUL.
        OSError: The file does not exist, is not regular or of a third user, or a name is a link.
    """
    with contextlib.ExitStack() as opened:
        parent = _open_folder(folder, opened)
        owner = os.fstat(parent).st_uid
        for name in names[:-1]:
            parent = _open_folder(_checked(name), opened, parent)
        descriptor = _regular(os.open(_checked(names[-1]), flags | _OPENING, 0o600, dir_fd=parent), names[-1])
    if os.geteuid() == 0 and owner not in (0, os.fstat(descriptor).st_uid):
        os.close(descriptor)
        raise PermissionError(f"{names[-1]} is of another user than its folder")
    return descriptor


def open_regular(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file, or create it if `flags` ask for that. Raises OSError for a link and anything else."""
    return _regular(os.open(path, flags | _OPENING, mode), str(path))


def add_note(log: Path, text: str) -> None:
    """Append a text to the log of a task. Without effect if it is no regular file, or cannot be written."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with contextlib.suppress(OSError), os.fdopen(open_regular(log, flags), "a", encoding="utf-8") as file:
        file.write(text)


def last_line(path: Path) -> str:
    """Return the last line with text of a log, at most 300 characters. Empty without any, or if it is unreadable."""
    try:
        with os.fdopen(open_below(path.parent, path.name), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read(4096).decode("utf-8", errors="replace").splitlines()
    except (OSError, InputError):
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def names_below(folder: Path, *names: str) -> list[str]:
    """Return the sorted names in a folder; empty if it does not exist or a name that leads to it is a link.

    Of more than `MAX_NAMES` names, which only a task can make, it returns as many, any of them.
    """
    try:
        with contextlib.ExitStack() as opened:
            parent = _open_folder(folder, opened)
            for name in names:
                parent = _open_folder(_checked(name), opened, parent)
            with os.scandir(parent) as entries:
                return sorted(entry.name for entry in islice(entries, MAX_NAMES))
    except OSError:
        return []


def _open_folder(name: Path | str, opened: contextlib.ExitStack, parent: int | None = None) -> int:
    # The first is a folder of ours, which a link may lead to.
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
