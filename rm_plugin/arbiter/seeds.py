"""Child seeds: randomness derived from one seed and names, the same on every machine and in every order."""

from __future__ import annotations

import hashlib


def child_seed(seed: int, *names: str) -> int:
    """A seed of its own for what these names denote: SHA-256 of the parent seed and the names, first 8 bytes.

    Args:
        seed: The parent's seed.
        names: What the child is for, for instance `("rounding", app_id)`; ("a", "b") and ("ab",) differ.
    """
    text = "\x00".join((str(seed), *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
