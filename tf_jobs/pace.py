"""The time at which an emulated job finishes each iteration: constant with a little seeded noise."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from zlib import crc32

NOISE_BLOCK = 20
NOISE_SHARE = 0.03


class Pace:
    """Emulated time from the start of an incarnation.

    Iterations of one block of NOISE_BLOCK take equally long; blocks differ by up to NOISE_SHARE of the iteration time.

    Args:
        iteration_s: Mean seconds per iteration.
        seed: Seed of the noise.
        start: Iterations already done at time 0.
    """

    def __init__(self, *, iteration_s: float, seed: int, start: int) -> None:
        self._iteration_s = iteration_s
        self._seed = seed
        self._iterations = [start]
        self._seconds = [0.0]

    def iterations_in(self, seconds: float) -> int:
        """Return the whole iterations of mean length that fit into `seconds`."""
        return int(seconds / self._iteration_s)

    def seconds_at(self, iteration: int) -> float:
        """Return the seconds from the start until `iteration` is done."""
        while self._iterations[-1] < iteration:
            self._extend()
        right = bisect_left(self._iterations, iteration)
        if self._iterations[right] == iteration:
            return self._seconds[right]
        left = right - 1
        return self._seconds[left] + (iteration - self._iterations[left]) * self._speed_s(left)

    def iterations_at(self, seconds: float) -> int:
        """Return the whole iterations done `seconds` after the start."""
        while self._seconds[-1] <= seconds:
            self._extend()
        left = max(bisect_right(self._seconds, seconds) - 1, 0)
        begun = self._iterations[left] + int(max(seconds - self._seconds[left], 0.0) / self._speed_s(left) + 1e-6)
        return min(begun, self._iterations[left + 1])

    def _extend(self) -> None:
        """Add the end of the next block."""
        begin = self._iterations[-1]
        block = begin // NOISE_BLOCK
        end = (block + 1) * NOISE_BLOCK
        unit = crc32(f"{self._seed}:{block}".encode()) / 2**32
        block_s = (end - begin) * self._iteration_s * (1.0 + NOISE_SHARE * (2.0 * unit - 1.0))
        self._iterations.append(end)
        self._seconds.append(self._seconds[-1] + block_s)

    def _speed_s(self, left: int) -> float:
        """Return the seconds per iteration in the block that begins at edge `left`."""
        return (self._seconds[left + 1] - self._seconds[left]) / (self._iterations[left + 1] - self._iterations[left])
