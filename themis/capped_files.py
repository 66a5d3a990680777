"""Cap growing files: return the space of a file's oldest bytes to the file system, without a gap in what is written.

A task writes its log through a descriptor of its own, so its log cannot be renamed away: the task would go on with the
renamed file. Copying and truncating it, as `logrotate` does with `copytruncate`, loses what is written in between. So
the oldest bytes are replaced by a hole (`fallocate(2)` with FALLOC_FL_PUNCH_HOLE). Offsets and size stay, and the
writer and the readers go on where they are. Readers skip the hole (`first_kept`).

Example: a log has 1500 MiB and its cap is 1024 MiB. `give_back` makes a hole of the first 988 MiB, so that 512 MiB
stay. `ls -l` still shows 1500 MiB, `du` shows 512.

Linux only. ext4, XFS, Btrfs, ZFS, tmpfs and NFS 4.2 have holes; for others `give_back` raises OSError (EOPNOTSUPP).
"""

from __future__ import annotations

import ctypes
import errno
import os

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_BLOCK_BYTES = 4096
_STAT_BLOCK_BYTES = 512
READ_MARGIN_BYTES = 64 * 1024
"""Bytes before a reader's offset that stay, because the reader may compare them with its last read."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def give_back(descriptor: int, cap_bytes: int, read_to: int | None = None) -> int:
    """Return the space of the oldest bytes if the file takes more than its cap.

    The newest half of the cap stays. So do unread bytes, as long as the file takes at most twice the cap.

    Args:
        descriptor: The file, open for writing.
        cap_bytes: The most space that the file may take.
        read_to: Offset up to which the file was read. None for a file that has no reader to wait for.

    Returns:
        How many bytes are lost that were not read.

    Raises:
        OSError: The file system has no holes, or the file cannot be changed.
    """
    facts = os.fstat(descriptor)
    used_bytes = facts.st_blocks * _STAT_BLOCK_BYTES
    if used_bytes <= cap_bytes:
        return 0
    end = facts.st_size - cap_bytes // 2
    lost = 0
    if read_to is not None and end > read_to - READ_MARGIN_BYTES:
        if used_bytes > 2 * cap_bytes:
            # The reader cannot keep up. Its next bytes are in the kept part.
            lost = max(0, end - read_to)
        else:
            end = read_to - READ_MARGIN_BYTES
    end -= end % _BLOCK_BYTES
    if end > 0:
        _punch(descriptor, end)
    return lost


def first_kept(descriptor: int, offset: int) -> int:
    """Return the first offset from `offset` on that is not in a hole. Returns `offset` if only a hole follows."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        # ENXIO: no data follows. EINVAL: the file system does not support holes.
        if error.errno in (errno.ENXIO, errno.EINVAL):
            return offset
        raise


def read_part(descriptor: int, offset: int, limit: int) -> tuple[bytes, int]:
    """Read at most `limit` bytes from `offset` on, skipping bytes that are no longer kept; closes the descriptor.

    A negative offset counts from the end. Returns the bytes, and the offset at which the next read continues.
    """
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        start = first_kept(descriptor, min(offset if offset >= 0 else max(0, size + offset), size))
        file.seek(start)
        data = file.read(max(0, limit))
    return data, start + len(data)


def _punch(descriptor: int, end: int) -> None:
    """Make a hole of the first `end` bytes."""
    zero, length = ctypes.c_int64(0), ctypes.c_int64(end)
    if _LIBC.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, zero, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
