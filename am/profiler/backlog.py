"""What comes faster than anybody reads: how much of it is read."""

from __future__ import annotations

MUCH_BYTES = 32 * 1024
"""Of so much at once, and more, what is ordinary may be left out: it is a backlog, or a flood."""

DENSE_BYTES = 250
"""A log is dense where its beginning tells a record in so many bytes, or fewer."""

FIRST_BYTES, LAST_BYTES = 2 * 1024, 12 * 1024
"""So much is read before what is left out, and so much behind it: for 50 intervals or more."""
