"""Defaults that several commands share."""

DEFAULT_RM_ADDRESS = "127.0.0.1:8650"
"""Where a ResourceManager listens unless told otherwise; Hadoop's own ports are left free."""
