"""Exit codes of every task program: the part of the task contract that the application master reads."""

from __future__ import annotations

EXIT_DONE = 0
"""Reached `--iterations`: checkpoint saved at exactly that iteration, validation logged."""

EXIT_FAILED = 1
"""Anything else went wrong."""

EXIT_USAGE = 2
"""Bad flags or a bad environment: starting again would not help."""

EXIT_CHECKPOINTED = 75
"""Stopped on SIGTERM after saving a checkpoint, or before there was anything new to save."""
