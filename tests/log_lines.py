"""Reading single lines of logs."""

from am.profiler.parser import LogReader


def parse_line(line):
    """The first record of a line, or None if it has none."""
    return next(iter(LogReader().read(line.encode("utf-8", "replace") + b"\n")), None)
