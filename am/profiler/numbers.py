"""Numbers as logs write them: patterns that only match what `int` and `float` then read."""

from __future__ import annotations

# Bounded: Python refuses to read integers of thousands of digits, and no log means one.
INTEGER = r"[0-9]{1,18}"
ORDINARY = rb"[0-9.]{1,20}+(?:e[-+]?[0-9]{2})?+"
"""Over bytes: a number that is neither infinite nor none, as most are written, and things that no format has there."""

NUMBER = r"[-+]?(?:(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,4})?|nan|inf(?:inity)?)"
