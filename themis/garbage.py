"""How often Python looks for reference cycles among all objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def few_collections(allocations: int) -> Iterator[None]:
    """Run the garbage collector rarely: this program makes many values, but hardly any reference cycles.

    Args:
        allocations: How many more objects must be made than freed before it runs; 700 by default.
    """
    usual = gc.get_threshold()
    gc.set_threshold(allocations, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
