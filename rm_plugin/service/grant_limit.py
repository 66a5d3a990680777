"""How many GPUs the engine is believed to grant an app, learnt from its requests that were not granted. Pure.

YARN does not say that it will not grant a container. It only reports a headroom: what the app's queue and user may use
beyond what they use now. In a queue that may grow beyond its capacity it grants more than the headroom. So a
headroom alone limits no app; it explains why a request was not granted, and shows when to ask again.

Example: a user may use 5 GPUs. A gang of at least 6 is leased 8. YARN grants 5 containers, and its headroom is 0. The
app returns 3 GPUs and, as 5 are no gang, soon the others. It is believed to be granted 5: no job of it can start on
that, so rounds give the GPUs to other apps. It asks again after `unfit_s`, then after twice, four and eight times as
long, or once its headroom has grown to what it wanted.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from themis.values import Value

MAX_PAUSE = 8
"""The longest pause between two requests that are not granted, in multiples of the first."""


class GrantLimit(Value, frozen=True, kw_only=True):
    """What an app was not granted last, and what it is believed to be granted until it may ask again.

    Attributes:
        reason: Why the engine did not grant it, for users.
        times: Requests not granted since the engine last granted the app more than it was believed to.
        until_s: When the app may ask again, in seconds since the epoch. -inf before the first of them.
        gpus: The most GPUs that the app may hold until then. None if only these machines are suspected.
        wanted_gpus: The GPUs that it would have held.
        reported_gpus: The GPUs that it could have had by the headroom then. A headroom that was large enough while the
            engine granted nothing proves nothing until it is larger.
    """

    reason: str = ""
    times: int = 0
    until_s: float = -math.inf
    gpus: int | None = None
    wanted_gpus: int = 0
    reported_gpus: int = 0

    def after_refusal(
        self, reason: str, *, asked_gpus: int, held_gpus: int, headroom_gpus: int | None, now_s: float, unfit_s: float
    ) -> GrantLimit:
        """Return the limit after the engine did not grant GPUs.

        The machines of these GPUs are suspected first. The app itself is limited if the headroom is too small, or if
        its next request, after a pause, was not granted either. Without a headroom, only the machines can be at fault.

        Args:
            reason: Why, for users.
            asked_gpus: The GPUs that were not granted.
            held_gpus: Those that the app still holds.
            headroom_gpus: What the engine would grant it in addition. None if the engine does not say, or if a machine
                is lost, does not answer or refuses the container.
            now_s: The present time.
            unfit_s: Seconds of the first pause.
        """
        if headroom_gpus is None:
            return replace(self, reason=reason, gpus=self.at(now_s), until_s=max(self.until_s, now_s + unfit_s))
        longest_s = MAX_PAUSE * unfit_s
        times = 1 if now_s > self.until_s + longest_s else self.times + (now_s >= self.until_s)
        gpus = held_gpus if times > 1 else None
        if headroom_gpus < asked_gpus:
            gpus = held_gpus + headroom_gpus
        return GrantLimit(
            reason=reason,
            times=times,
            until_s=now_s + min(longest_s, unfit_s * 2.0 ** (times - 1)),
            gpus=gpus,
            wanted_gpus=held_gpus + asked_gpus,
            reported_gpus=held_gpus + headroom_gpus,
        )

    def after_heartbeat(self, *, running_gpus: int, headroom_gpus: int | None, now_s: float) -> GrantLimit:
        """Return the limit after a heartbeat. It ends once the app was granted more, or could be.

        Args:
            running_gpus: The GPUs on which its tasks run.
            headroom_gpus: As for `after_refusal`.
            now_s: The present time.
        """
        if self.gpus is None or now_s >= self.until_s:
            return self
        if running_gpus > self.gpus:
            return GrantLimit()
        if headroom_gpus is not None and running_gpus + headroom_gpus >= max(self.wanted_gpus, self.reported_gpus + 1):
            return GrantLimit(reason=self.reason, times=self.times, until_s=now_s)
        return self

    def at(self, now_s: float) -> int | None:
        """Return the most GPUs that the app is believed to be granted now. None without a limit."""
        return self.gpus if now_s < self.until_s else None

    def shown(self, now_s: float) -> str:
        """Return what users see: what was not granted, and when the app asks again. Empty without."""
        if now_s >= self.until_s:
            return ""
        if self.gpus is None:
            return self.reason
        again_s = max(1.0, self.until_s - now_s)
        return f"{self.reason}; at most {self.gpus} GPUs are leased to it for {again_s:.0f} s"


NO_GRANT_LIMIT = GrantLimit()
"""Of an app that was granted all that it asked for."""
