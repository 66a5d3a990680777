"""Exit codes of every task program, which the app master reads."""

from __future__ import annotations

EXIT_DONE = 0
"""Reached `--iterations`: checkpoint saved at exactly that iteration, validation logged."""

EXIT_FAILED = 1
"""Any other error."""

EXIT_USAGE = 2
"""The flags or the environment are invalid: another start would fail too."""

EXIT_CHECKPOINTED = 75
"""Stopped on SIGTERM after saving a checkpoint, or before there was anything new to save."""
