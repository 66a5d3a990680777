"""Python imports this at its start: the wall clock of every program of a chaos run is that of CHAOS_CLOCK.

The file holds one float, the seconds by which the clock is ahead. Programs map it, so that a step reaches those that
run. Only `time.time` follows it, by which Themis reads the wall clock; the monotonic clock, gRPC's and SQLite's do not.
"""

import mmap
import os
import struct
import time

if path := os.environ.get("CHAOS_CLOCK"):
    with open(path, "rb") as file:  # noqa: PTH123 - before anything else is imported
        _ahead = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    _real_time = time.time
    time.time = lambda: _real_time() + struct.unpack("d", _ahead[:8])[0]
