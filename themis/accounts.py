"""A system user with whose rights a process is started."""

from __future__ import annotations

from themis.values import Value


class Account(Value, frozen=True, kw_only=True):
    """A user of this machine.

    Attributes:
        name: The name, or the number as text if there is none.
        uid: The user's number.
        gid: The number of its first group.
        groups: The numbers of all its groups.
        home: Its home folder; empty if it has none.
    """

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = ""
