"""Child seeds: randomness derived from one seed and names, the same on every machine and in every order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

_SEED = 8
"""Bytes of a seed."""


def child_seed(seed: int, *names: str) -> int:
    """A seed of its own for what these names denote: SHA-256 of the parent seed and the names, first 8 bytes.

    Args:
        seed: The parent's seed.
        names: What the child is for, one or more, for instance `("rounding", app_id)`; ("a", "b") and ("ab",) differ.
    """
    (found,) = child_digests(seed, names[:-1], names[-1:])
    return int.from_bytes(found[:_SEED], "big")


def child_digests(seed: int, names: Sequence[str], last: Iterable[str]) -> list[bytes]:
    """The digest that `child_seed(seed, *names, name)` is the beginning of, for each last name.

    Digests stand in the order of their seeds: to draw an order no more is needed, and a round draws for a hundred apps.
    """
    prefix = "".join([f"{name}\x00" for name in (str(seed), *names)]).encode()
    sha256 = hashlib.sha256
    return [sha256(prefix + name.encode()).digest() for name in last]
