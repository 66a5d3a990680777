"""Callers of the ResourceManager: who they are, what they may do, and how their tokens travel. Pure.

A call carries a token in the gRPC metadata or HTTP header `authorization`, as `Bearer TOKEN`. On the machine of the
ResourceManager, a client gets its token from a Unix socket, whose other end knows its user from the kernel.
"""

from __future__ import annotations

from themis.errors import InputError, NotAllowedError
from themis.queues import ROOT, AppOwner
from themis.values import Value

HEADER = "authorization"
_SCHEME = "Bearer "

TOKEN_VARIABLE = "THEMIS_TOKEN"
TOKEN_FILE = "token"
"""In the client's folder for the ResourceManager, see `settings_folder`."""
INSECURE_VARIABLE = "THEMIS_INSECURE"
"""Set to 1, a client sends its token over a network without TLS."""


class NoIdentityError(InputError):
    """A call has no token, or one that is wrong, revoked or expired."""


class TooManyCallsError(InputError):
    """The caller calls more often than a user may."""


class Identity(Value, frozen=True, kw_only=True):
    """A caller whom the ResourceManager knows.

    An app's owner and administrators, also those of its queue alone, may end it and read its logs, its jobs and its
    specification. Every user sees that an app exists, and which GPUs it holds.

    Attributes:
        user: Who calls.
        is_admin: Whether the caller is an administrator of the ResourceManager.
        queues: The queues that the caller administers (`Queues.administered`).
    """

    user: str
    is_admin: bool = False
    queues: frozenset[str] = frozenset()

    def controls(self, owner: AppOwner) -> bool:
        """Whether the caller may read and end apps of this owner. Administrators of the root may of every queue."""
        return self.is_admin or self.user == owner.user or not self.queues.isdisjoint((owner.queue, ROOT))

    def check_controls(self, app_id: str, owner: AppOwner) -> None:
        """Raise NotAllowedError unless the caller may read and end this app of `owner`."""
        if not self.controls(owner):
            remedy = f"only {owner.user} and administrators may do this, and you are {self.user}"
            raise NotAllowedError(f"{app_id} is not your app", remedy=remedy)

    def check_admin(self, what: str) -> None:
        """Raise NotAllowedError unless the caller is an administrator; `what` names the operation."""
        if not self.is_admin:
            remedy = "ask an administrator (`admins` in the settings)"
            raise NotAllowedError(f"only an administrator may {what}", value=self.user, remedy=remedy)


def bearer(token: str) -> str:
    """Return the value of the header for a token."""
    return _SCHEME + token


def token_of(header: str) -> str:
    """Return the token of a header's value; empty if it carries none."""
    return header.removeprefix(_SCHEME) if header.startswith(_SCHEME) else ""


def settings_folder(address: str) -> str:
    """Return the folder of a client's files for one ResourceManager, by HOST:PORT: a token is sent to no other one.

    >>> settings_folder("rm.example.org:8650")
    '~/.config/themis/rm.example.org_8650'
    """
    host, _, port = address.rpartition(":")
    return f"~/.config/themis/{host.lower()}_{port}"


def local_socket(port: int) -> str:
    """Return the Unix socket at which the ResourceManager with this port gives tokens to users of its machine.

    The name is abstract: every user of the machine can connect, the kernel removes it with the process, and no other
    process can have it meanwhile. It depends on the port alone. Otherwise a client that does not know which address
    the ResourceManager listens on might ask another process's socket, and would act as that process's user.
    """
    return f"\0themis-rm-{port}"


LOCAL = "local"
"""How a token of the local socket begins: `local.UID.` and the user's number on this machine."""


def is_local_token_of(token: str, uid: int) -> bool:
    """Whether a token was made for this user number of this machine.

    Clients check this. Another process could own the socket while the ResourceManager is in a container, and offer its
    own token: the client would act as that process's user.

    >>> is_local_token_of("local.1000.YW5u.1700000600.6f1e", 1000)
    True
    """
    return token.startswith(f"{LOCAL}.{uid}.")
