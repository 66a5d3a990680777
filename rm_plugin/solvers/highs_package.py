"""The package highspy for whoever solves by HiGHS; importing this module where it is missing raises InputError."""

from __future__ import annotations

from themis.errors import InputError

try:
    import highspy
except ImportError as error:
    remedy = "pip install highspy, or choose another solver"
    raise InputError("HiGHS needs highspy", value=str(error), remedy=remedy) from None

__all__ = ["highspy"]
