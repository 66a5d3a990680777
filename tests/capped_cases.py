"""Logs whose oldest bytes were given back."""

from pathlib import Path

from themis.capped_files import give_back

MIB = 1024 * 1024


def used_bytes(path):
    """The space that a file takes."""
    return Path(path).stat().st_blocks * 512


def capped_log(path, lines=100_000):
    """Write `line 1` and so on, and cap the file. Returns the lines that are whole in what is left."""
    path.write_text("".join(f"line {number}\n" for number in range(1, lines + 1)))
    with path.open("r+b") as file:
        give_back(file.fileno(), MIB // 2)
    kept = path.read_bytes().lstrip(b"\0").decode()
    assert len(kept) < path.stat().st_size / 2
    return kept[kept.index("\n") + 1 :]
