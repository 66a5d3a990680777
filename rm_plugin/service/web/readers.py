"""Who reads a page: by the token of the request, or on this machine by the connection."""

from __future__ import annotations

import asyncio
import base64
import binascii

from aiohttp import web

from rm_plugin.service.identities import SEARCH_CALLS, Identities, user_name
from themis.identity import Identity, NoIdentityError, token_of
from themis.web.local_peer import is_loopback_name, local_peer_uid

_BASIC = "Basic "


async def reader_of(request: web.Request, identities: Identities) -> Identity | None:
    """Return the reader of a page as `_known_reader` does, and count the request: of a user, or of an address.

    A request with a `search` counts as several.

    Raises:
        NoIdentityError: As `_known_reader`.
        TooManyCallsError: The user, or the network of a reader who is not known, asks too often.
    """
    reader = await _known_reader(request, identities)
    calls = SEARCH_CALLS if request.query.get("search") else 1.0
    if reader is None:
        identities.count_stranger(request.remote or "", calls)
    else:
        identities.count_call(reader, calls)
    return reader


async def _known_reader(request: web.Request, identities: Identities) -> Identity | None:
    """Return the reader of a page, or None for one who is not known and sees only what every user sees.

    Programs send `Authorization: Bearer TOKEN`. A browser sends the token as the password of a user (`Basic`), which
    it asks for at `/login`. No cookie is involved. A request without a header counts as one of the user at the other
    end, if it comes over loopback and is addressed to this machine.

    Raises:
        NoIdentityError: The request carries a wrong, revoked or expired token.
    """
    if header := request.headers.get("Authorization", ""):
        return identities.of_token(_basic_token(header) or token_of(header) or header)
    if identities.anonymous:
        return identities.of_user(identities.user)
    transport = request.transport
    if transport is None or not is_loopback_name(request.url.host):
        return None
    # In threads: the table has a line for each app master, and names of users may come from a directory service.
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    uid = await asyncio.to_thread(local_peer_uid, peer, own)
    return None if uid is None else identities.of_user(await asyncio.to_thread(user_name, uid))


def _basic_token(header: str) -> str:
    if not header.startswith(_BASIC):
        return ""
    try:
        return base64.b64decode(header.removeprefix(_BASIC), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        raise NoIdentityError("the header Authorization cannot be read", remedy="send Bearer TOKEN") from None
