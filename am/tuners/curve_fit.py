"""Extrapolate learning curves: fit several families by least squares, and average them with weights and error bars.

Every curve is `floor + drop * g(x)`. Here x is the share of the job's iterations, and g falls from about 1 towards 0.
The shapes g come from a fixed grid. So each fit is linear in floor and drop and has a closed form, without iteration or
start values, and is deterministic. The families are from Domhan, Springenberg, Hutter, "Speeding up Automatic
Hyperparameter Optimization of Deep Neural Networks by Extrapolation of Learning Curves", IJCAI 2015, table 1. The paper
samples their parameters, this module weighs a grid of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from themis.values import Value

Numbers = npt.NDArray[np.float64]
Shape = Callable[[Numbers], Numbers]

MIN_POINTS = 6
"""Minimum number of points of a forecast. With fewer, the fit cannot distinguish noise from shape."""

MAX_POINTS = 64
"""Maximum number of fitted points. More points are merged into means of neighbours."""

_NOISE_FLOOR = 1e-3
"""Minimum of the assumed noise, as a share of the spread of the losses."""

_OLDEST_WEIGHT = 0.1
"""Weight of the first point in the fit. Weights grow linearly to 1 at the newest point."""

_DROP_DEVIATION = 1.0
"""Prior standard deviation of a drop, as a share of the largest loss."""

_GRID = 64
"""Number of equal parts of a job's iterations at whose ends a forecast has values."""


def _power(scale: float, power: float) -> Shape:
    return lambda x: (1.0 + x / scale) ** -power


def _exponential(scale: float, power: float) -> Shape:
    return lambda x: np.exp(-((x / scale) ** power))


def _hill(scale: float, power: float) -> Shape:
    return lambda x: 1.0 / (1.0 + (x / scale) ** power)


def _logarithmic(scale: float, power: float) -> Shape:
    return lambda x: np.log(math.e + x / scale) ** -power


_FAMILIES: tuple[tuple[Callable[[float, float], Shape], Sequence[float], Sequence[float]], ...] = (
    (_power, np.geomspace(0.01, 3.0, 12).tolist(), (0.25, 0.5, 1.0, 2.0)),
    (_exponential, np.geomspace(0.02, 3.0, 12).tolist(), (0.5, 1.0, 2.0)),
    (_hill, np.geomspace(0.02, 3.0, 12).tolist(), (0.75, 1.5, 3.0, 6.0)),
    (_logarithmic, np.geomspace(0.0005, 0.5, 8).tolist(), (0.5, 1.0, 2.0)),
)

_SHAPES: tuple[Shape, ...] = tuple(
    family(scale, power) for family, scales, powers in _FAMILIES for power in powers for scale in scales
)
# All families have the same prior weight, regardless of the size of their grids.
_PRIOR: Numbers = np.concatenate(
    [np.full(len(scales) * len(powers), 1.0 / (len(scales) * len(powers))) for _, scales, powers in _FAMILIES]
)

_AHEAD: Numbers = np.arange(1, _GRID + 1) / _GRID
_SHAPES_AHEAD: Numbers = np.stack([shape(_AHEAD) for shape in _SHAPES])


class Forecast(Value, frozen=True):
    """The expected loss of a job at the ends of `_GRID` equal parts of its iterations. The last one is its end.

    The forecast is one normal distribution with the mean and the variance of the mixture of all shapes. The mixture
    itself would have error bars that are too small for recorded curves.

    Attributes:
        means: Expected loss, in units of `size`.
        deviations: Standard deviation in units of `size`, including the noise of a single loss.
        size: The largest loss seen. Losses are divided by it, so that their squares do not overflow.
    """

    means: Numbers
    deviations: Numbers
    size: float

    def end_below(self, loss: float) -> float:
        """Return the probability that the job's loss at its end is below `loss`."""
        z = (loss / self.size - float(self.means[-1])) / float(self.deviations[-1])
        return 0.5 * math.erfc(-z / math.sqrt(2.0))

    def band(self, deviations: float) -> Numbers:
        """Return the expected loss plus `deviations` standard deviations, at the end of each part."""
        band: Numbers = (self.means + deviations * self.deviations) * self.size
        return band


def iterations_ahead(total: int) -> Numbers:
    """Return the iterations at which the parts of a forecast end, for a job of `total` iterations."""
    return np.ceil(total * _AHEAD)


def forecast(iterations: Sequence[int], losses: Sequence[float], total: int) -> Forecast | None:
    """Return the forecast of a job of `total` iterations. Returns None with fewer than MIN_POINTS finite losses."""
    known = [(at, loss) for at, loss in zip(iterations, losses, strict=True) if math.isfinite(loss)]
    if len(known) < MIN_POINTS:
        return None
    points = np.array(known, dtype=np.float64)
    if len(points) > MAX_POINTS:
        points = np.stack([part.mean(axis=0) for part in np.array_split(points, MAX_POINTS)])
    x, y = points[:, 0], points[:, 1]
    size = float(np.max(np.abs(y))) or 1.0
    return _fit(np.stack([shape(x / total) for shape in _SHAPES]), y / size, size)


def _fit(shapes: Numbers, y: Numbers, size: float) -> Forecast:
    """Fit all shapes at once by least squares. Newer points have larger weights.

    Negative drops become 0. If no loss is negative, a shape with a negative floor is fitted again with a floor of 0.
    """
    count = len(y)
    trust = np.linspace(_OLDEST_WEIGHT, 1.0, count)
    trust /= trust.mean()
    means = (trust * shapes).mean(axis=1, keepdims=True)
    middle = float((trust * y).mean())
    centred = shapes - means
    spread = np.maximum((trust * centred**2).sum(axis=1), 1e-12)
    drops = np.maximum(0.0, centred @ (trust * (y - middle)) / spread)
    floors = middle - drops * means[:, 0]
    if y.min() >= 0.0:
        grounded = (trust * shapes) @ y / np.maximum((trust * shapes**2).sum(axis=1), 1e-12)
        drops = np.where(floors < 0.0, grounded, drops)
        floors = np.maximum(0.0, floors)
    squares = (trust * (y - floors[:, None] - drops[:, None] * shapes) ** 2).sum(axis=1)
    squares += count * (_NOISE_FLOOR * (float(np.ptp(y)) + 1e-9)) ** 2
    # Each fit has four parameters: floor and drop, and two of the shape.
    variance = squares / max(1, count - 4)
    # Residuals of neighbouring points are correlated: n points count like about sqrt(n) independent ones.
    worth = math.sqrt(count)
    likelihood = np.log(_PRIOR) - 0.5 * worth * np.log(squares / squares.min())
    weights = np.exp(likelihood - likelihood.max())
    # The variance of a drop, from the data and from the prior that losses do not fall by much more than their size.
    drop_variance = 1.0 / (worth / count * spread / variance + 1.0 / _DROP_DEVIATION**2)
    errors = variance[:, None] * (1.0 + 1.0 / worth) + drop_variance[:, None] * (_SHAPES_AHEAD - means) ** 2
    weights /= weights.sum()
    lines = floors[:, None] + drops[:, None] * _SHAPES_AHEAD
    mean = weights @ lines
    return Forecast(mean, np.sqrt(weights @ (errors + (lines - mean) ** 2)), size)
