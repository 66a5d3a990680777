"""The token by which the app master of one attempt proves itself. The service keeps its hash only.

Each launch has a new token. Only the launched process gets it, by a way that no other process can read: see
`AmLaunch.token`. A copy of the store therefore proves no attempt.
"""

from __future__ import annotations

import hashlib
import secrets

_PREFIX = "sha256:"


def new_token() -> str:
    """Return a new token: 256 random bits."""
    return secrets.token_hex(32)


def hashed(token: str) -> str:
    """Return the hash of a token, as the store keeps it. A token is random, so its hash needs no salt."""
    return _PREFIX + hashlib.sha256(token.encode()).hexdigest()


def as_hashed(stored: str) -> str:
    """Return the hash in the store. Earlier versions stored the token itself."""
    return stored if stored.startswith(_PREFIX) or not stored else hashed(stored)


def proves(token: str, token_sha256: str) -> bool:
    """Whether a token has this hash, compared in constant time. Without a hash, no token proves anything."""
    return bool(token_sha256) and secrets.compare_digest(hashed(token), token_sha256)
