"""Kill, pause and resume over HTTP: who may, and why another web site cannot ask for it in a user's name.

A program proves its user by `Authorization: Bearer TOKEN`. A browser sends what stands in the page: a signed text for
the page's reader, in a header. Other sites cannot read it, as they cannot read the page. It also proves who a local
reader is: the kernel's table of sockets may be read too late to say who sent a request, but then the page that holds
the text went nowhere.
"""

from __future__ import annotations

import ipaddress
import json

from aiohttp import web

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.identities import Identities
from rm_plugin.service.manager import ResourceManager
from themis.errors import InputError
from themis.identity import Identity, NoIdentityError, token_of
from themis.lifecycle import AppState
from themis.web.local_peer import is_loopback_name

HEADER = "X-Themis-Action"

VERBS = ("pause", "resume", "kill")
MAX_REASON_CHARS = 200


def verbs_for(entry: AppEntry) -> tuple[str, ...]:
    """Return what can be done to an app now."""
    if entry.ended or entry.kill_reason:
        return ()
    if entry.pause_reason:
        return ("kill",)
    return ("resume", "kill") if entry.state is AppState.PAUSED else ("pause", "kill")


def action_token(request: web.Request, reader: Identity | None, identities: Identities) -> str:
    """Return the text by which the reader of a page may ask for changes; empty for one who may not.

    A page at a name that is not this machine's own goes only to readers with a token: any site can let its name resolve
    to this machine, and could then read the text.
    """
    has_token = "Authorization" in request.headers
    is_own = has_token or _is_own_address(request.url.host or "")
    return identities.action_token(reader.user, has_token=has_token) if reader is not None and is_own else ""


def actor_of(request: web.Request, identities: Identities) -> Identity:
    """Return the user who asks for a change, and count the request (`Identities.count_call`).

    Raises:
        TooManyCallsError: The user asks too often.
        NoIdentityError: The request has neither a user's token nor the text of a page, or one that is not valid.
    """
    if token := token_of(request.headers.get("Authorization", "")):
        actor = identities.of_token(token)
    elif text := request.headers.get(HEADER, ""):
        actor = identities.of_action(text)
    else:
        raise NoIdentityError("a change needs a token", remedy="send the header Authorization: Bearer TOKEN")
    identities.count_call(actor)
    return actor


async def act(manager: ResourceManager, entry: AppEntry, verb: str, identity: Identity, reason: str) -> None:
    """Do what a user asks for.

    Raises:
        NotAllowedError: It is another user's app.
        InputError: The app cannot do that now.
        StoreError: The change cannot be written.
    """
    identity.check_controls(entry.app_id, entry.owner)
    if verb == "kill":
        await manager.kill(entry.app_id, reason, by=identity.user)
    elif verb == "pause":
        await manager.pause(entry.app_id, reason, by=identity.user)
    else:
        await manager.resume(entry.app_id, by=identity.user)


async def document_of(request: web.Request, reason: str = "reason") -> dict[str, object]:
    """Return the request's document; empty without one.

    Args:
        request: The request.
        reason: The key of the reason, which is optional.

    Raises:
        InputError: The content is no document, or its reason is no text or too long.
    """
    content = await request.read()
    if not content.strip():
        return {}
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    text = document.get(reason, "") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(text, str) or len(text) > MAX_REASON_CHARS:
        raise InputError(
            f"the request is not a document with a short `{reason}`", value=content[:80].decode("utf-8", "replace")
        )
    return document


def _is_own_address(host: str) -> bool:
    """Whether a host is this machine's, or an IP address: no other site can let its own name resolve to it."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return is_loopback_name(host)
    return True
