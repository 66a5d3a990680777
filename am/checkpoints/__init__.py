"""Checkpoint stores: atomic, checksummed, the last k kept."""
