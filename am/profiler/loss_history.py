"""A job's losses over its iterations, in bounded space, and the forecast that they make."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from themis.bids import LossForecast

Numbers = npt.NDArray[np.float64]

MOST_POINTS = 64
"""Points kept; past them neighbours are merged into their means, which also smooths the noise of mini-batches."""

FEWEST_POINTS = 4
"""Fewer points make no forecast: the curve has four parameters."""

_POWERS = np.array([0.5, 0.75, 1.0, 1.5, 2.0])
_SCALES = np.geomspace(0.01, 10.0, 31)
"""Scales that are tried, as shares of the iterations seen."""

_OUTLIER_MADS = 6.0


class LossHistory:
    """Fed with losses in order of their iterations; a loss that is no number marks the job as diverged until the next.

    Points are means over stretches of equal numbers of losses.
    """

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._open: list[tuple[float, float]] = []
        self._stride = 1
        self._diverged = False
        self._known: LossForecast | None = None
        self._fresh = False

    def add(self, iteration: int, loss: float) -> None:
        """Take in the loss at an iteration."""
        self._diverged, self._fresh = not math.isfinite(loss), False
        if self._diverged:
            return
        self._open.append((float(iteration), loss))
        if len(self._open) < self._stride:
            return
        self._points.append(_mean(self._open))
        self._open = []
        if len(self._points) == MOST_POINTS:
            self._points = [_mean(self._points[at : at + 2]) for at in range(0, MOST_POINTS, 2)]
            self._stride *= 2

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """Mean iteration and mean loss of each stretch, in order; the last one may not be full yet."""
        return (*self._points, _mean(self._open)) if self._open else tuple(self._points)

    def forecast(self, iteration: int, serial_iteration_s: float) -> LossForecast | None:
        """The forecast of a job that is at `iteration`; None while too few points are known.

        A job that has diverged is not expected to get any better: its forecast falls by nothing.
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
    # Each part by itself, lest losses near the largest float add up to infinity.
    count = len(points)
    return sum(iteration / count for iteration, _ in points), sum(loss / count for _, loss in points)


def _fit(points: tuple[tuple[float, float], ...], *, diverged: bool) -> LossForecast | None:
    """The curve nearest to the points: least squares over a grid of shapes, once more without the outliers."""
    if diverged and points:
        return _curve(points[-1][1], 0.0, 1.0, 1.0)
    if len(points) < FEWEST_POINTS:
        return None
    iterations, losses = np.array(points).T
    # Losses of any size: only their shape matters to the fit, and their squares must not overflow.
    size = float(np.max(np.abs(losses))) or 1.0
    losses = losses / size
    span = max(1.0, float(iterations[-1]))
    slower = np.log1p(iterations / (span * _SCALES[:, None]))
    falls = np.exp(-_POWERS[:, None, None] * slower).reshape(-1, len(losses))
    best, floor, drop = _best(falls, losses)
    residuals = np.abs(losses - floor - drop * falls[best])
    usual = residuals <= _OUTLIER_MADS * float(np.median(residuals)) + 1e-12
    if FEWEST_POINTS <= int(usual.sum()) < len(losses):
        best, floor, drop = _best(falls[:, usual], losses[usual])
    power, scale = divmod(best, len(_SCALES))
    return _curve(floor * size, drop * size, span * float(_SCALES[scale]), float(_POWERS[power]))


def _best(falls: Numbers, losses: Numbers) -> tuple[int, float, float]:
    """The shape with the least squares, its floor and its drop; a drop below 0 counts as none. Ties: the first."""
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
