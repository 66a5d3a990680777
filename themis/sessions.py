"""Processes that left their group for a session of their own, found by their parents before these are gone. Linux only.

A program may start helpers with `setsid`: signals to its group miss them. If such a helper also replaced its
environment (`env -i`, or a daemon that writes its title over it), it has no marks either.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


class Member(NamedTuple):
    """A process: its id, which another one may have later, and when it began, in ticks since the boot."""

    pid: int
    began: int


class _Seen(NamedTuple):
    member: Member
    state: str
    parent: int
    group: int
    session: int


def has_members(group: int) -> bool:
    """Whether a living process other than the leader belongs to a process group."""
    return any(seen.group == group != seen.member.pid and seen.state not in "ZX" for seen in _processes())


def sessions_below(*leaders: int) -> Mapping[int, frozenset[Member]]:
    """The sessions other than theirs that descendants of leaders of sessions are in, with these descendants."""
    below: dict[int, list[_Seen]] = {}
    for seen in _processes():
        below.setdefault(seen.parent, []).append(seen)
    found: dict[int, set[Member]] = {}
    waiting = list(leaders)
    while waiting:
        for seen in below.pop(waiting.pop(), ()):
            waiting.append(seen.member.pid)
            if seen.session not in leaders:
                found.setdefault(seen.session, set()).add(seen.member)
    return {session: frozenset(members) for session, members in found.items()}


def children_in_other_sessions() -> Mapping[int, frozenset[Member]]:
    """The sessions other than its own that children of this process are in, with these, also those that ended."""
    own, session = os.getpid(), os.getsid(0)
    found: dict[int, set[Member]] = {}
    for seen in _processes():
        if seen.parent == own and seen.session != session:
            found.setdefault(seen.session, set()).add(seen.member)
    return {number: frozenset(members) for number, members in found.items()}


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Make this process the parent of the orphans among its descendants (a subreaper, prctl(2)) in this block."""
    before = adopts_orphans()
    _set_adopts_orphans(True)
    try:
        yield
    finally:
        _set_adopts_orphans(before)


def adopts_orphans() -> bool:
    """Whether this process is in a block of `adopting_orphans`."""
    adopts = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
    return bool(adopts.value)


def _set_adopts_orphans(adopts: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


def reap(children: Iterable[Member]) -> None:
    """Take the exit codes of those children that have ended: until then they keep their process ids."""
    for child in children:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)


def kill_sessions(sessions: Mapping[int, Iterable[Member]]) -> None:
    """SIGKILL all processes of sessions of which a given member still lives.

    The kernel gives the number of a session to no other process while a member lives. So the session is the same.
    """
    by_session: dict[int, set[Member]] = {}
    for seen in _processes():
        by_session.setdefault(seen.session, set()).add(seen.member)
    for session, members in sessions.items():
        living = by_session.get(session, set())
        if living.isdisjoint(members):
            continue
        for member in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member.pid, signal.SIGKILL)


def is_shortage(error: OSError) -> bool:
    """Whether a look at a process failed as this one has no file handle or memory left: the other may live."""
    return error.errno in _SHORTAGES


def raise_shortage(error: OSError) -> None:
    """Raise the error of a look at a process if it is a shortage. All others say that it has ended, or is not ours."""
    if is_shortage(error):
        raise error


def _processes() -> Iterator[_Seen]:
    for name in os.listdir(PROC):  # noqa: PTH208 - a Path each costs too much
        if not name.isdigit():
            continue
        try:
            with open(f"{PROC}/{name}/stat", "rb") as file:  # noqa: PTH123 - as above
                # After the program's name, which is in parentheses and may hold anything (proc(5)).
                fields = file.read().rpartition(b")")[2].split()
        except OSError as error:
            raise_shortage(error)
            continue
        if len(fields) > 19:
            state, parent, group, session, began = fields[0], *map(int, (*fields[1:4], fields[19]))
            yield _Seen(Member(int(name), began), state.decode(), parent, group, session)
