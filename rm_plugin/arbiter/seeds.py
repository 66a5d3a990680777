"""Child seeds: randomness derived from one seed and names, the same on every machine and in every order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

_SEED = 8
"""Bytes of a seed."""


def child_seed(seed: int, *names: str) -> int:
    """Return a seed for these names: the first 8 bytes of SHA-256 over the parent seed and the names.

    Args:
        seed: The parent's seed.
        names: The use of the seed, one or more, for example `("rounding", app_id)`. ("a", "b") and ("ab",) differ.
    """
    (found,) = child_digests(seed, names[:-1], names[-1:])
    return int.from_bytes(found[:_SEED], "big")


def child_digests(seed: int, names: Sequence[str], last: Iterable[str]) -> list[bytes]:
    """Return the digest whose beginning is `child_seed(seed, *names, name)`, for each last name.

    Digests sort like their seeds. So they suffice to draw an order, which a round does for a hundred apps.
    """
    prefix = "".join([f"{name}\x00" for name in (str(seed), *names)]).encode()
    sha256 = hashlib.sha256
    return [sha256(prefix + name.encode()).digest() for name in last]
