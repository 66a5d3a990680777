"""N_avg: the time-weighted mean number of active apps over each app's life so far (themis.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterable

from themis.errors import InvariantError


class Contention:
    """Counts active apps over time. Every app's own mean follows from one running integral."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, float]] = {}
        self._integral_app_s = 0.0
        self._at_s = 0.0

    @property
    def active(self) -> int:
        """Number of apps active now."""
        return len(self._since)

    def enter(self, app_id: str, now_s: float) -> None:
        """An app became active."""
        self._advance(now_s)
        self._since[app_id] = (now_s, self._integral_app_s)

    def leave(self, app_id: str, now_s: float) -> None:
        """An app ended."""
        self._advance(now_s)
        self._since.pop(app_id, None)

    def mean(self, app_id: str, now_s: float) -> float:
        """N_avg of an active app, itself included: never under 1, even where clocks disagree a little."""
        return self._means([self._since[app_id]], now_s)[0]

    def means(self, now_s: float) -> dict[str, float]:
        """N_avg of every active app."""
        return dict(zip(self._since, self._means(self._since.values(), now_s), strict=True))

    def _means(self, since: Iterable[tuple[float, float]], now_s: float) -> list[float]:
        """N_avg of apps that entered at these times, with the integral of then."""
        if now_s != self._at_s:
            self._advance(now_s)
        integral_app_s, first = self._integral_app_s, float(max(1, self.active))
        # A round asks for every app: nothing is called for each.
        return [
            first
            if (life_s := now_s - entered_s) <= 0.0
            else (mean if (mean := (integral_app_s - before_app_s) / life_s) > 1.0 else 1.0)
            for entered_s, before_app_s in since
        ]

    def _advance(self, now_s: float) -> None:
        if now_s < self._at_s:
            raise InvariantError("time ran backwards", value=(self._at_s, now_s))
        if self._since:
            self._integral_app_s += len(self._since) * (now_s - self._at_s)
        self._at_s = now_s
