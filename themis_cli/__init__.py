"""The themis command."""
