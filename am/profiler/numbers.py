"""Patterns for numbers in log lines. They match only text that `int` or `float` can read."""

from __future__ import annotations

# Bounded, because Python refuses to parse integers of thousands of digits.
INTEGER = r"[0-9]{1,18}"
ORDINARY = rb"[0-9.]{1,20}+(?:e[-+]?[0-9]{2})?+"
"""A pattern over bytes for finite numbers in their usual notation. It also matches texts such as `1.2.3`, which no
format writes in these places."""

NUMBER = r"[-+]?(?:(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,4})?|(?i:nan|inf(?:inity)?))"
