"""Limits for reading a backlog: log data that arrives faster than the app master reads it."""

from __future__ import annotations

BACKLOG_BYTES = 32 * 1024
"""If one read returns more bytes than this, the readers may skip ordinary records in it."""

DENSE_BYTES_PER_RECORD = 250
"""A log is dense if its beginning has at least one record per this number of bytes. Only dense logs are thinned."""

KEPT_FIRST_BYTES, KEPT_LAST_BYTES = 2 * 1024, 12 * 1024
"""Bytes that are read before and after a skipped part. The last bytes hold 50 intervals or more."""
