"""The package highspy. Importing this module raises InputError if it is not installed."""

from __future__ import annotations

from themis.errors import InputError

try:
    import highspy
except ImportError as error:
    raise InputError("HiGHS needs highspy", value=str(error), remedy="pip install highspy") from None

__all__ = ["highspy"]
