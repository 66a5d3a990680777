"""The lost attempts of an app: which ones count as its failures, and how long the next attempt waits. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import asdict, replace

from themis.values import Value

FIRST_DELAY_S, LONGEST_DELAY_S = 5.0, 300.0
"""Seconds before the attempt that follows two losses without progress, and at most; each further loss doubles them."""


class AttemptLosses(Value, frozen=True, kw_only=True):
    """What is remembered of an app's lost attempts; times are seconds since the epoch.

    An attempt that is lost is a failure or excused. What the site did is excused, and failures are excused once they
    have left the window. A loss is fruitless if the jobs did no iteration since the loss before it. Fruitless losses
    count whether excused or not: the next attempt waits longer after each of them.

    Example: a site takes one attempt after the other from an app that makes no progress. All losses are excused, so the
        app never fails. Its next attempts start 0, 5, 10, 20, .. 300 s after the loss.

    Attributes:
        excused_attempts: How many attempts ended without a failure that still counts.
        failed_at_s: When the attempts ended that count as failures.
        fruitless_at_s: When the last attempts in a row were lost without progress between them.
        done_at_loss: The most iterations that the jobs had done at a loss, together.
    """

    excused_attempts: int = 0
    failed_at_s: tuple[float, ...] = ()
    fruitless_at_s: tuple[float, ...] = ()
    done_at_loss: int = 0

    @property
    def counted(self) -> int:
        """The newest attempt that is known to be lost."""
        return self.excused_attempts + len(self.failed_at_s)

    @property
    def delay_s(self) -> float:
        """How long the next attempt waits after the last loss: not at all after the first one without progress."""
        again = len(self.fruitless_at_s) - 2
        return 0.0 if again < 0 else min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0**again)

    @property
    def next_at_s(self) -> float:
        """When the next attempt may start."""
        return self.fruitless_at_s[-1] + self.delay_s if self.fruitless_at_s else 0.0

    def excused_up_to(self, attempt: int) -> AttemptLosses:
        """Excuse all attempts up to this one that are not counted yet. They leave the delay as it is."""
        return replace(self, excused_attempts=max(self.excused_attempts, attempt - len(self.failed_at_s)))

    def after(
        self, attempt: int, now_s: float, *, taken: Collection[int], all_excused: bool, done: int, window_s: float
    ) -> AttemptLosses:
        """Count the loss of all attempts up to this one.

        Args:
            attempt: The newest attempt that is lost.
            now_s: The present time.
            taken: Attempts that the site took (`EngineAttempts.taken`).
            all_excused: Whether the engine was unavailable.
            done: The iterations that all jobs have done.
            window_s: For how long a loss counts.
        """
        if attempt <= self.counted:
            failed_at_s = _recent(self.failed_at_s, now_s, window_s)
            return replace(self, failed_at_s=failed_at_s, excused_attempts=self.counted - len(failed_at_s))
        failed = 0 if all_excused else sum(each not in taken for each in range(self.counted + 1, attempt + 1))
        failed_at_s = _recent((*self.failed_at_s, *[now_s] * failed), now_s, window_s)
        fruitless_at_s = () if done > self.done_at_loss else _recent(self.fruitless_at_s, now_s, window_s)
        return AttemptLosses(
            excused_attempts=attempt - len(failed_at_s),
            failed_at_s=failed_at_s,
            fruitless_at_s=(*fruitless_at_s, now_s),
            done_at_loss=max(done, self.done_at_loss),
        )

    def stored(self) -> dict[str, object]:
        """Return the fields as JSON values, for the store."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def restored(cls, stored: Mapping[str, object]) -> AttemptLosses:
        """Read the fields among others of the store. Stores of earlier versions lack some; unreadable ones are left."""
        try:
            return msgspec.convert(dict(stored), cls)
        except msgspec.ValidationError:
            return cls()


NO_LOSSES = AttemptLosses()


def _recent(times_s: tuple[float, ...], now_s: float, window_s: float) -> tuple[float, ...]:
    return tuple(each for each in times_s if now_s - each < window_s)
