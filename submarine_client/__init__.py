"""The client of Themis: the command `submarine`, and `Client` for programs and notebooks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from submarine_client.client import App, AppFailedError, Client, Estimate, Interval, Job, Jobs, Waiting

__all__ = ["App", "AppFailedError", "Client", "Estimate", "Interval", "Job", "Jobs", "Waiting"]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the command starts quickly.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("submarine_client.client"), name)
