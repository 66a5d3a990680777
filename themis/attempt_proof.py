"""The token of an attempt, by which the app master and its ResourceManager prove themselves to each other.

Each launch has a new token. Only the launched process gets it, by a way that no other process can read: see
`AmLaunch.token`. The service keeps its hash only, so a copy of the store proves no attempt.

The ResourceManager proves itself first, by that hash. While it is away, any user of its machine can listen at its port,
and would otherwise get the token, and give orders.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping

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


def rm_proof(token_sha256: str, app_id: str, nonce: str) -> str:
    """Return by what the ResourceManager proves to an app master that it knows the hash of its token."""
    return hmac.new(token_sha256.encode(), json.dumps([app_id, nonce]).encode(), "sha256").hexdigest()


def is_rm_proof(proof: str, token: str, app_id: str, nonce: str) -> bool:
    """Whether a text is the proof of the ResourceManager, compared in constant time."""
    expected = rm_proof(hashed(token), app_id, nonce)
    return hmac.compare_digest(proof.encode("utf-8", "replace"), expected.encode())


def session_metadata(token_sha256: str, app_id: str, nonce: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata by which an attempt shows, before it sends a message, that it has its token.

    It does not open a session. Another process that reads it can make the ResourceManager receive messages as if from
    this app, which are refused then.
    """
    mark = hmac.new(token_sha256.encode(), json.dumps(["session", app_id, nonce]).encode(), "sha256").hexdigest()
    return (("themis-app", app_id), ("themis-nonce", nonce), ("themis-mark", mark))


def is_session_metadata(metadata: Mapping[str, str | bytes], token_sha256: str) -> bool:
    """Whether metadata is that of an attempt whose token has this hash, compared in constant time."""
    app_id, nonce, mark = [metadata.get(name, "") for name in ("themis-app", "themis-nonce", "themis-mark")]
    if not token_sha256 or isinstance(app_id, bytes) or isinstance(nonce, bytes) or isinstance(mark, bytes):
        return False
    expected = session_metadata(token_sha256, app_id, nonce)[-1][1]
    return hmac.compare_digest(mark.encode("utf-8", "replace"), expected.encode())
