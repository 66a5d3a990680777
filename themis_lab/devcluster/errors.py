"""Errors of the development cluster."""

from __future__ import annotations

from themis.errors import ThemisError


class DevClusterError(ThemisError):
    """A daemon ended, did not become ready, or is not as expected."""
