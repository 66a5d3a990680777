"""Read the tables of the replay job: measured slowdowns, and recorded loss curves."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from math import inf, log
from pathlib import Path

from tf_jobs.context import LEVELS
from themis.errors import InputError, UnknownNameError
from themis.number_parsing import parse_number
from themis.values import Value

TABLES = Path(__file__).parent / "tables"

FAMILIES = {
    "resnet18_cifar10": "digits_cnn",
    "resnet50": "digits_cnn",
    "yolov3": "digits_cnn",
    "neumf": "digits_dense",
    "transformer": "digits_dense",
}
"""The family of recorded curves that represents each model. Models of sequences use the LSTM's."""
OTHER_FAMILY = "digits_lstm"


class Speed(Value, frozen=True, kw_only=True):
    """The training speed of a model.

    Attributes:
        serial_iteration_time_s: Seconds an iteration takes on one GPU.
        slowdown: S by locality level; 1 is perfect scaling.
    """

    serial_iteration_time_s: float
    slowdown: dict[str, float]

    def iteration_time_s(self, gpus: int, level: str) -> float:
        """Return the seconds per iteration on `gpus` GPUs that share `level` (Themis, NSDI'20, section 4.1).

        For example, an iteration of 0.8 s takes 0.8 * 1.5 / 4 = 0.3 s on 4 GPUs at a level of S = 1.5.
        """
        # One GPU does not communicate, so its level has no effect.
        slowdown = self.slowdown[level] if gpus > 1 else 1.0
        return self.serial_iteration_time_s * slowdown / gpus


class Curve(Value, frozen=True, kw_only=True):
    """One recorded run: training loss, held-out loss and accuracy at some iterations, the last one included."""

    learning_rate: float
    iterations: tuple[int, ...]
    losses: tuple[float, ...]
    validation_losses: tuple[float, ...]
    accuracies: tuple[float, ...]

    def loss(self, share: float) -> float:
        """Return the training loss at a share of the recorded run; above 1, the last value."""
        return self._at(share, self.losses)

    def validation(self, share: float) -> tuple[float, float]:
        """Return held-out loss and accuracy at a share of the recorded run."""
        return self._at(share, self.validation_losses), self._at(share, self.accuracies)

    def _at(self, share: float, values: tuple[float, ...]) -> float:
        """Interpolate linearly between the recorded iterations."""
        x = share * self.iterations[-1]
        right = bisect_right(self.iterations, x)
        if right == 0 or right == len(self.iterations):
            return values[max(right - 1, 0)]
        x0, x1 = self.iterations[right - 1], self.iterations[right]
        return values[right - 1] + (values[right] - values[right - 1]) * (x - x0) / (x1 - x0)


def read_speeds() -> dict[str, Speed]:
    """Return the measured speed of each model."""
    speeds: dict[str, Speed] = {}
    for row in _rows("slowdown.csv"):
        serial_s = float(row["serial_iteration_time_s"])
        speed = speeds.setdefault(row["model"], Speed(serial_iteration_time_s=serial_s, slowdown={"slot": 1.0}))
        speed.slowdown[row["level"]] = float(row["slowdown"])
    return speeds


def model_speed(model: str) -> Speed:
    """Return the measured speed of one model. Raises UnknownNameError, which names the nearest."""
    speeds = read_speeds()
    if model not in speeds:
        raise UnknownNameError("model", model, speeds)
    return speeds[model]


def parse_slowdown(text: str) -> dict[str, float]:
    """Parse S by level from `slot,machine,rack,cluster`. Raises InputError unless these four rise from 1 on."""
    try:
        numbers = [parse_number(float, part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != len(LEVELS) or not numbers[0] >= 1.0 or numbers != sorted(numbers) or numbers[-1] == inf:
        raise InputError("--slowdown does not parse", value=text, remedy="write slot,machine,rack,cluster: 1,1.1,1.5,2")
    return dict(zip(LEVELS, numbers, strict=True))


def parse_speeds(text: str) -> dict[str, float]:
    """Parse speeds by device type from `type=speed,..`. Raises InputError unless every speed is positive and finite.

    >>> parse_speeds("k80=0.3,v100=1")
    {'k80': 0.3, 'v100': 1.0}
    """
    speeds: dict[str, float] = {}
    for part in text.split(",") if text else ():
        device, _, number = part.partition("=")
        try:
            speed = parse_number(float, number)
        except ValueError:
            speed = 0.0
        if not device or not 0.0 < speed < inf:
            raise InputError("--speeds does not parse", value=text, remedy="write type=speed,..: k80=0.3,v100=1")
        speeds[device] = speed
    return speeds


def family_of(model: str) -> str:
    """Return the family of recorded curves that represents a model."""
    return FAMILIES.get(model, OTHER_FAMILY)


def nearest_curve(family: str, learning_rate: float) -> Curve:
    """Return the curve of a family with the nearest learning rate by ratio; the smaller rate on a tie.

    For example, of recorded rates 0.01 and 0.1 the rate 0.02 gets the first: the ratios are 2 and 5.

    Raises:
        UnknownNameError: The family has no recorded curves.
    """
    families = _curves()
    if family not in families:
        raise UnknownNameError("family of loss curves", family, families)
    # At a rate of 0 nothing is learned. The slowest recorded curve is the nearest.
    wanted = log(max(learning_rate, 1e-12))
    return min(families[family], key=lambda curve: abs(log(curve.learning_rate) - wanted))


@cache
def _curves() -> dict[str, tuple[Curve, ...]]:
    """Return the recorded curves by family, slowest learning rate first. Read once, as each job needs them."""
    rows: dict[str, dict[float, list[dict[str, str]]]] = {}
    for row in _rows("loss_curves.csv"):
        rows.setdefault(row["family"], {}).setdefault(float(row["learning_rate"]), []).append(row)
    return {family: tuple(_curve(rate, by_rate[rate]) for rate in sorted(by_rate)) for family, by_rate in rows.items()}


def _curve(learning_rate: float, rows: list[dict[str, str]]) -> Curve:
    return Curve(
        learning_rate=learning_rate,
        iterations=tuple(int(row["iteration"]) for row in rows),
        losses=tuple(float(row["loss"]) for row in rows),
        validation_losses=tuple(float(row["validation_loss"]) for row in rows),
        accuracies=tuple(float(row["accuracy"]) for row in rows),
    )


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (TABLES / name).open(newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)
