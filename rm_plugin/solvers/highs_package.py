"""The package highspy for whoever solves by HiGHS; importing this module where it is missing raises InputError."""

from __future__ import annotations

from themis.errors import InputError

try:
    import highspy
except ImportError as error:
    raise InputError("HiGHS needs highspy", value=str(error), remedy="pip install highspy") from None

__all__ = ["highspy"]
