"""Tokens and their users: which caller a token stands for, and which users have one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import pwd
import secrets
from collections.abc import Callable, Collection, Mapping

import msgspec

from rm_plugin.service.budget import Budgets
from rm_plugin.service.changes import Change, Changes
from themis.addresses import network_of
from themis.clock import Clock
from themis.config.names import check_account_name
from themis.errors import InputError, UnknownNameError
from themis.identity import LOCAL, Identity, NoIdentityError, TooManyCallsError
from themis.queues import ONE_QUEUE, Queues
from themis.values import Value

USER_TOKENS = "user_tokens"
"""The key of the users' tokens in the store."""

LOCAL_TOKEN_S = 600.0
"""How long a token of the local socket is valid."""

MAX_CALLS, CALLS_PER_S = 1_000.0, 50.0
"""Calls and requests of pages of a user, or of all unknown readers of a network: at most at once, and each second
after that."""
SEARCH_CALLS = 10.0
"""A search counts as this many calls, because it looks at every app, archived ones too."""

ACTION_STEP_S = 300
"""Seconds after which pages carry a new text for actions. One is valid for one to two of these steps."""
_ACTION = "action"

_DAY_S = 86_400.0
MAX_VALID_S = 36_500 * _DAY_S
"""The longest time for which a user's token may be valid."""

_REMEDY = (
    "ask an administrator for one (`themis user add NAME`), and put it into ~/.config/themis/HOST_PORT/token"
    " or THEMIS_TOKEN"
)


class UserToken(Value, frozen=True, kw_only=True):
    """What the store keeps of a user's token: never the token itself. Times are seconds since the epoch."""

    sha256: str
    created_at_s: float
    expires_at_s: float
    created_by: str


class Identities:
    """Finds the caller of a token, and keeps the tokens of users.

    Args:
        admins: Users who are administrators, in addition to the service's own.
        anonymous: Whether callers without a token count as the service's own user.
        clock: The service's clock.
        user: The service's own user.
        queues: Returns the queues, which have administrators of their own.
    """

    def __init__(
        self,
        *,
        admins: Collection[str],
        anonymous: bool,
        clock: Clock,
        user: str | None = None,
        queues: Callable[[], Queues] = lambda: ONE_QUEUE,
    ) -> None:
        self.user = user_name(os.geteuid()) if user is None else user
        self.anonymous = anonymous
        self.tokens: Mapping[str, UserToken] = {}
        self._admins = frozenset(admins) | {self.user}
        self._clock = clock
        self._queues = queues
        self._calls = Budgets(MAX_CALLS, CALLS_PER_S)
        # Local tokens end with the process. A client whose token is refused asks for another one.
        self._key = secrets.token_bytes(32)

    def of_user(self, user: str) -> Identity:
        """Return the identity of a user."""
        queues = self._queues().administered.get(user, frozenset())
        return Identity(user=user, is_admin=user in self._admins, queues=queues)

    def of_token(self, token: str) -> Identity:
        """Return the caller whose call carries this token; it is empty if the call carries none.

        Raises:
            NoIdentityError: The token is missing, wrong, revoked or expired.
        """
        if not token:
            if self.anonymous:
                return self.of_user(self.user)
            raise NoIdentityError("this ResourceManager needs a token", remedy=_REMEDY)
        if not token.isascii():
            # A header of HTTP may hold bytes that no text has.
            raise NoIdentityError("the token is unknown or revoked", remedy=_REMEDY)
        if token.startswith(LOCAL + "."):
            return self.of_user(self._user_of_local(token))
        digest = _digest(token)
        for user, known in self.tokens.items():
            if hmac.compare_digest(known.sha256, digest):
                if known.expires_at_s < self._clock.now_s():
                    raise NoIdentityError("the token has expired", value=user, remedy=_REMEDY)
                return self.of_user(user)
        raise NoIdentityError("the token is unknown or revoked", remedy=_REMEDY)

    def check_not_revoked(self, token: str) -> None:
        """Raise NoIdentityError if a token that began a call is now revoked or expired.

        Local tokens are for the beginning of calls only: they expire within minutes, and their users stay.
        """
        if not token.startswith(LOCAL + "."):
            self.of_token(token)

    def count_call(self, caller: Identity, calls: float = 1.0) -> None:
        """Count a call of a user, as `calls` of them. Administrators are trusted.

        Raises:
            TooManyCallsError: The user calls too often. One who floods the service must not slow the others down.
        """
        if not caller.is_admin:
            self._count(f"user {caller.user}", caller.user, calls)

    def count_stranger(self, address: str, calls: float = 1.0) -> None:
        """Count a request of a reader who is not known, as `calls`, by the network that the request comes from.

        Raises:
            TooManyCallsError: Too many come from there.
        """
        network = network_of(address)
        self._count(f"network {network}", f"readers without a token at {network}", calls)

    def _count(self, key: str, who: str, calls: float) -> None:
        if not self._calls.take(key, self._clock.now_s(), calls):
            remedy = f"call at most {CALLS_PER_S:g} times a second"
            raise TooManyCallsError("too many calls", value=who, remedy=remedy)

    # ---- local users ----

    def local_token(self, uid: int, user: str) -> str:
        """Return a new token for a user of this machine."""
        name = base64.urlsafe_b64encode(user.encode()).decode()
        content = f"{LOCAL}.{uid}.{name}.{int(self._clock.now_s() + LOCAL_TOKEN_S)}"
        return f"{content}.{self._signature(content)}"

    def _user_of_local(self, token: str) -> str:
        content, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(content).encode()):
            raise NoIdentityError("the local token is of another run of the ResourceManager", remedy="call again")
        _, _, name, expires_at_s = content.split(".")
        if int(expires_at_s) < self._clock.now_s():
            raise NoIdentityError("the local token has expired", remedy="call again")
        return base64.urlsafe_b64decode(name).decode()

    def _signature(self, content: str) -> str:
        return hmac.new(self._key, content.encode(), hashlib.sha256).hexdigest()

    # ---- readers of pages ----

    def action_token(self, user: str, *, has_token: bool) -> str:
        """Return a text by which a page asks for changes in its reader's name; the same for `ACTION_STEP_S`.

        `has_token` says that the reader sent a token: the text is then valid only as long as the user's token is.
        """
        expires_at_s = (int(self._clock.now_s() / ACTION_STEP_S) + 2) * ACTION_STEP_S
        bound = self._mark_of_token(user) if has_token else ""
        content = f"{_ACTION}.{base64.urlsafe_b64encode(user.encode()).decode()}.{expires_at_s}.{bound}"
        return f"{content}.{self._signature(content)}"

    def of_action(self, text: str) -> Identity:
        """Return the user for whom a page was made, by its text.

        Raises:
            NoIdentityError: The text is not ours or has expired, or the token of its reader is no longer valid.
        """
        content, _, signature = text.rpartition(".")
        words = content.split(".")
        # A header of HTTP may hold bytes that no text has.
        known = text.isascii() and hmac.compare_digest(signature, self._signature(content))
        if not known or words[0] != _ACTION or int(words[2]) < self._clock.now_s():
            raise NoIdentityError("the page is too old to ask for changes", remedy="load it again")
        user, bound = base64.urlsafe_b64decode(words[1]).decode(), words[3]
        if bound and bound != self._mark_of_token(user):
            raise NoIdentityError("the token of the page's reader is no longer valid", value=user, remedy=_REMEDY)
        return self.of_user(user)

    def _mark_of_token(self, user: str) -> str:
        """Return a text that differs for each valid token of a user; empty without one."""
        known = self.tokens.get(user)
        return known.sha256[:16] if known is not None and known.expires_at_s >= self._clock.now_s() else ""

    # ---- users of the network ----

    async def add(self, changes: Changes, user: str, *, valid_s: float, by: str) -> str:
        """Give a user a token, and return it. Only its hash is kept.

        Raises:
            InputError: The name is none of an account, the user has a token, or the time is none or too long.
            StoreError: The token cannot be written.
        """
        check_account_name(user, "themis user add")
        if not 0.0 < valid_s <= MAX_VALID_S:
            max_days = MAX_VALID_S / _DAY_S
            raise InputError(f"a token is valid for more than 0 and at most {max_days:g} days", value=valid_s / _DAY_S)
        token = f"themis_{secrets.token_urlsafe(32)}"

        def put(change: Change) -> None:
            if user in self.tokens:
                raise InputError("this user has a token", value=user, remedy=f"themis user revoke {user}")
            made = UserToken(
                sha256=_digest(token), created_at_s=change.now_s, expires_at_s=change.now_s + valid_s, created_by=by
            )
            change.event("user_acted", detail={"user": by, "action": "user_added", "of": user})
            self._keep(change, {**self.tokens, user: made})

        await changes.make(put)
        return token

    async def revoke(self, changes: Changes, user: str, *, by: str) -> None:
        """Make a user's token invalid.

        Raises:
            UnknownNameError: This user has no token.
            StoreError: The change cannot be written; the token stays valid.
        """

        def remove(change: Change) -> None:
            if user not in self.tokens:
                raise UnknownNameError("user with a token", user, self.tokens)
            change.event("user_acted", detail={"user": by, "action": "user_revoked", "of": user})
            self._keep(change, {name: token for name, token in self.tokens.items() if name != user})

        await changes.make(remove)

    def _keep(self, change: Change, tokens: Mapping[str, UserToken]) -> None:
        change.keep(USER_TOKENS, json.dumps(msgspec.to_builtins(tokens)))
        change.then(lambda: setattr(self, "tokens", tokens))


def user_name(uid: int) -> str:
    """Return the name of a user number of this machine, or the number as text if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _digest(token: str) -> str:
    # A token has 256 random bits, so that a plain hash cannot be reversed by trying.
    return hashlib.sha256(token.encode()).hexdigest()
