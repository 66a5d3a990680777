"""What can go wrong with a development cluster."""

from __future__ import annotations

from themis.errors import ThemisError


class DevClusterError(ThemisError):
    """A daemon ended or did not become ready, or is not what was expected."""
