"""The token of an attempt, by which the app master and its ResourceManager prove themselves to each other.

Each launch has a new token. Only the launched process gets it, by a way that no other process can read: see
`AmLaunch.token`. The service keeps its hash only, so a copy of the store proves no attempt.

The ResourceManager proves itself first, by that hash. While it is away, any user of its machine can listen at its port,
and would otherwise get the token, and give orders.

A refusal ends an app master, so it has a proof too. The ResourceManager may no longer know the hash of an attempt that
is over. So its store has one key for all refusals, and each token contains a key of its app that is derived from it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping

REFUSAL = "themis-refusal"
"""The trailing metadata that has the proof of a refusal."""

_PREFIX = "sha256:"


def new_token(refusal_key: str, app_id: str) -> str:
    """Return a new token: 256 random bits and, after a dot, the key by which the app's master checks refusals."""
    return f"{secrets.token_hex(32)}.{_app_key(refusal_key, app_id)}"


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
    return _signed(token_sha256, app_id, nonce)


def is_rm_proof(proof: str, token: str, app_id: str, nonce: str) -> bool:
    """Whether a text is the proof of the ResourceManager, compared in constant time."""
    expected = rm_proof(hashed(token), app_id, nonce)
    return hmac.compare_digest(proof.encode("utf-8", "replace"), expected.encode())


def refusal_proof(refusal_key: str, app_id: str, attempt: int, nonce: str) -> str:
    """Return by what the ResourceManager proves that it refuses an attempt."""
    return _refusal(_app_key(refusal_key, app_id), attempt, nonce)


def is_refusal_proof(proof: str | bytes, token: str, attempt: int, nonce: str) -> bool:
    """Whether this is the proof of a refusal, compared in constant time. Without a key, nothing proves a refusal."""
    key = token.partition(".")[2]
    if not key or isinstance(proof, bytes):
        return False
    return hmac.compare_digest(proof.encode("utf-8", "replace"), _refusal(key, attempt, nonce).encode())


def _app_key(refusal_key: str, app_id: str) -> str:
    return _signed(refusal_key, "app", app_id)


def _refusal(app_key: str, attempt: int, nonce: str) -> str:
    return _signed(app_key, "refused", attempt, nonce)


def _signed(key: str, *content: str | int) -> str:
    return hmac.new(key.encode(), json.dumps(content).encode(), "sha256").hexdigest()


def session_metadata(token_sha256: str, app_id: str, nonce: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata by which an attempt shows, before it sends a message, that it has its token.

    It does not open a session. Another process that reads it can make the ResourceManager receive messages as if from
    this app, which are refused then.
    """
    mark = _signed(token_sha256, "session", app_id, nonce)
    return (("themis-app", app_id), ("themis-nonce", nonce), ("themis-mark", mark))


def is_session_metadata(metadata: Mapping[str, str | bytes], token_sha256: str) -> bool:
    """Whether metadata is that of an attempt whose token has this hash, compared in constant time."""
    app_id, nonce, mark = [metadata.get(name, "") for name in ("themis-app", "themis-nonce", "themis-mark")]
    if not token_sha256 or isinstance(app_id, bytes) or isinstance(nonce, bytes) or isinstance(mark, bytes):
        return False
    expected = session_metadata(token_sha256, app_id, nonce)[-1][1]
    return hmac.compare_digest(mark.encode("utf-8", "replace"), expected.encode())
