"""Policies: one small class each, registered by name."""
