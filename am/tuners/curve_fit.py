"""Learning curves ahead: several families fitted by least squares, weighed against each other, with error bars.

Every curve is `floor + drop * g(x)`, x the share of the job's iterations, g falling from about 1 towards 0. The shapes
g come from a fixed grid, so that each fit is linear in floor and drop and has a closed form: no iteration, no start
value, the same result each time. The families are among those of Domhan, Springenberg, Hutter, "Speeding up Automatic
Hyperparameter Optimization of Deep Neural Networks by Extrapolation of Learning Curves", IJCAI 2015, table 1; they
sample parameters where a grid is weighed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from themis.values import Value

Numbers = npt.NDArray[np.float64]
Shape = Callable[[Numbers], Numbers]

FEWEST_POINTS = 6
"""Fewer points make no forecast: there is nothing left to tell noise from shape by."""

MOST_POINTS = 64
"""Points that are fitted; more are merged into means of neighbours."""

_NOISE_FLOOR = 1e-3
"""Least noise that is believed in, as a share of the spread of the losses."""

_OLDEST_WEIGHT = 0.1
"""What the first point weighs in the fit; the weight grows evenly to 1 at the newest."""

_DROP_DEVIATION = 1.0
"""What is known of a drop before anything is seen: its standard deviation, as a share of the largest loss."""

_GRID = 64
"""Parts of a job's iterations at which a forecast is known."""


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
# Each family weighs the same before anything is seen, however fine its grid.
_PRIOR: Numbers = np.concatenate(
    [np.full(len(scales) * len(powers), 1.0 / (len(scales) * len(powers))) for _, scales, powers in _FAMILIES]
)

_AHEAD: Numbers = np.arange(1, _GRID + 1) / _GRID
_SHAPES_AHEAD: Numbers = np.stack([shape(_AHEAD) for shape in _SHAPES])


class Forecast(Value, frozen=True):
    """What a job's loss is expected to be at each part of its iterations, the last of which is its end.

    All shapes together make one normal distribution, with the mean and the variance of their mixture: taken apart, the
    shapes are surer of themselves than recorded curves bear out.

    Attributes:
        means: Expected loss, in units of `size`.
        deviations: Its standard deviation likewise, with the noise of a single loss in it.
        size: The largest loss seen, by which losses are divided lest their squares overflow.
    """

    means: Numbers
    deviations: Numbers
    size: float

    def end_below(self, loss: float) -> float:
        """The probability that the job's loss at its end is below this one."""
        z = (loss / self.size - float(self.means[-1])) / float(self.deviations[-1])
        return 0.5 * math.erfc(-z / math.sqrt(2.0))

    def band(self, deviations: float) -> Numbers:
        """The loss at each part of the iterations, so many standard deviations above what is expected."""
        band: Numbers = (self.means + deviations * self.deviations) * self.size
        return band


def iterations_ahead(total: int) -> Numbers:
    """The iterations at which the parts of a forecast end, of a job of `total` iterations."""
    return np.ceil(total * _AHEAD)


def forecast(iterations: Sequence[int], losses: Sequence[float], total: int) -> Forecast | None:
    """The forecast of a job of `total` iterations; None while fewer than FEWEST_POINTS finite losses are known."""
    known = [(at, loss) for at, loss in zip(iterations, losses, strict=True) if math.isfinite(loss)]
    if len(known) < FEWEST_POINTS:
        return None
    x, y = _merged(np.array(known, dtype=np.float64))
    size = float(np.max(np.abs(y))) or 1.0
    return _fit(np.stack([shape(x / total) for shape in _SHAPES]), y / size, size)


def _merged(points: Numbers) -> tuple[Numbers, Numbers]:
    if len(points) > MOST_POINTS:
        points = np.stack([part.mean(axis=0) for part in np.array_split(points, MOST_POINTS)])
    return points[:, 0], points[:, 1]


def _fit(shapes: Numbers, y: Numbers, size: float) -> Forecast:
    """Least squares of every shape at once, newer points weighing more.

    A drop below 0 counts as none. Where no loss is negative no floor is: the shape is fitted anew with a floor of 0.
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
    # Two parameters of the line and two of its shape are fitted.
    variance = squares / max(1, count - 4)
    # What is left over goes the same way at neighbouring points: so many points are worth about their root.
    worth = math.sqrt(count)
    likelihood = np.log(_PRIOR) - 0.5 * worth * np.log(squares / squares.min())
    weights = np.exp(likelihood - likelihood.max())
    # How sure a drop is: by what was seen of it, and because losses do not fall by much more than they ever were.
    drop_variance = 1.0 / (worth / count * spread / variance + 1.0 / _DROP_DEVIATION**2)
    errors = variance[:, None] * (1.0 + 1.0 / worth) + drop_variance[:, None] * (_SHAPES_AHEAD - means) ** 2
    weights /= weights.sum()
    lines = floors[:, None] + drops[:, None] * _SHAPES_AHEAD
    mean = weights @ lines
    return Forecast(mean, np.sqrt(weights @ (errors + (lines - mean) ** 2)), size)
