"""A job's losses over its iterations, in bounded memory, and the forecast fitted to them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from themis.bids import LossForecast
from themis.sums import sum_in_order

Numbers = npt.NDArray[np.float64]

MAX_POINTS = 64
"""Maximum number of points. At this number, pairs of neighbours merge into means, which also smooths batch noise."""

MIN_POINTS = 4
"""Minimum number of points of a forecast, because the curve has four parameters."""

_POWERS = np.array([0.5, 0.75, 1.0, 1.5, 2.0])
_SCALES = np.geomspace(0.01, 10.0, 31)
"""Candidate scales, as shares of the iterations seen."""

_OUTLIER_MADS = 6.0


class LossHistory:
    """The losses of a job, added in order of their iterations.

    A loss that is NaN or infinite marks the job as diverged until the next finite loss. Points are means over stretches
    of equal numbers of losses.

    Example: each of the first 63 losses makes a point. The 64th loss merges the points into 32 of two losses each. From
    then on, every two losses make a point. The 128th loss merges again: 32 points of four losses each.
    """

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._open: list[tuple[float, float]] = []
        self._stride = 1
        self._diverged = False
        self._known: LossForecast | None = None
        self._fresh = False

    def add(self, iteration: int, loss: float) -> None:
        """Add the loss at an iteration."""
        self._diverged, self._fresh = not math.isfinite(loss), False
        if self._diverged:
            return
        self._open.append((float(iteration), loss))
        if len(self._open) < self._stride:
            return
        self._points.append(_mean(self._open))
        self._open = []
        if len(self._points) == MAX_POINTS:
            self._points = [_mean(self._points[at : at + 2]) for at in range(0, MAX_POINTS, 2)]
            self._stride *= 2

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """Mean iteration and mean loss of each stretch, in order. The last stretch may be incomplete."""
        return (*self._points, _mean(self._open)) if self._open else tuple(self._points)

    def forecast(self, iteration: int, serial_iteration_s: float) -> LossForecast | None:
        """Return the forecast of a job at `iteration`. Returns None with fewer than `MIN_POINTS` points.

        The forecast of a diverged job is flat: the job is not expected to improve.
        """
        if self._known is None or not self._fresh:
            self._known, self._fresh = _fit(self.points, diverged=self._diverged), True
        if self._known is None:
            return None
        if self._known.iteration == iteration and self._known.serial_iteration_s == serial_iteration_s:
            return self._known
        curve = self._known
        self._known = LossForecast(
            floor=curve.floor,
            drop=curve.drop,
            scale=curve.scale,
            power=curve.power,
            iteration=iteration,
            serial_iteration_s=serial_iteration_s,
        )
        return self._known


def _mean(points: list[tuple[float, float]]) -> tuple[float, float]:
    # Divide before adding, so that losses near the largest float do not add up to infinity.
    count = len(points)
    return sum_in_order(iteration / count for iteration, _ in points), sum_in_order(loss / count for _, loss in points)


def _fit(points: tuple[tuple[float, float], ...], *, diverged: bool) -> LossForecast | None:
    """Fit the curve to the points: least squares over a grid of shapes, then again without the outliers."""
    if diverged and points:
        return _curve(points[-1][1], 0.0, 1.0, 1.0)
    if len(points) < MIN_POINTS:
        return None
    iterations, losses = np.array(points).T
    # Normalize, so that the squares of large losses do not overflow. The fit does not depend on the scale.
    size = float(np.max(np.abs(losses))) or 1.0
    losses = losses / size
    span = max(1.0, float(iterations[-1]))
    slower = np.log1p(iterations / (span * _SCALES[:, None]))
    falls = np.exp(-_POWERS[:, None, None] * slower).reshape(-1, len(losses))
    best, floor, drop = _best(falls, losses)
    residuals = np.abs(losses - floor - drop * falls[best])
    usual = residuals <= _OUTLIER_MADS * float(np.median(residuals)) + 1e-12
    if MIN_POINTS <= int(usual.sum()) < len(losses):
        best, floor, drop = _best(falls[:, usual], losses[usual])
    power, scale = divmod(best, len(_SCALES))
    return _curve(floor * size, drop * size, span * float(_SCALES[scale]), float(_POWERS[power]))


def _best(falls: Numbers, losses: Numbers) -> tuple[int, float, float]:
    """Return the shape with the least squares, its floor and its drop. Negative drops become 0. Ties: the first."""
    centred = falls - falls.mean(axis=1, keepdims=True)
    middle = float(losses.mean())
    spread = np.maximum((centred**2).sum(axis=1), 1e-300)
    drops = np.maximum(0.0, centred @ (losses - middle) / spread)
    floors = middle - drops * falls.mean(axis=1)
    errors = ((losses - floors[:, None] - drops[:, None] * falls) ** 2).sum(axis=1)
    best = int(np.argmin(errors))
    return best, float(floors[best]), float(drops[best])


def _curve(floor: float, drop: float, scale: float, power: float) -> LossForecast | None:
    if not (math.isfinite(floor) and math.isfinite(drop)):
        return None
    return LossForecast(floor=floor, drop=drop, scale=scale, power=power, iteration=0, serial_iteration_s=1.0)
