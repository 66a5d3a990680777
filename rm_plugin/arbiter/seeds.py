"""Child seeds: randomness derived from one seed and names, the same on every machine and in every order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence


def child_seed(seed: int, *names: str) -> int:
    """A seed of its own for what these names denote: SHA-256 of the parent seed and the names, first 8 bytes.

    Args:
        seed: The parent's seed.
        names: What the child is for, one or more, for instance `("rounding", app_id)`; ("a", "b") and ("ab",) differ.
    """
    (found,) = child_seeds(seed, names[:-1], names[-1:])
    return found


def child_seeds(seed: int, names: Sequence[str], last: Iterable[str]) -> list[int]:
    """`child_seed(seed, *names, name)` for many a last name: a round draws for a hundred apps."""
    prefix = "".join([f"{name}\x00" for name in (str(seed), *names)]).encode()
    sha256, from_bytes = hashlib.sha256, int.from_bytes
    return [from_bytes(sha256(prefix + name.encode()).digest()[:8], "big") for name in last]
