"""Record `tf_jobs/tables/loss_curves.csv` by training our own programs: `python tools/record_loss_curves.py`.

Every value is measured in a real run on the digits data set; about a minute on one core. The replay job stretches
these curves to its own length.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tf_jobs.assembly import build_model
from tf_jobs.catalog import program
from tf_jobs.context import read_context
from tf_jobs.data import DataSet, load_digits
from tf_jobs.flags import parse
from tf_jobs.learner import Learner
from tf_jobs.tensorflow_setup import load_tensorflow
from tf_jobs.workers import Alone
from themis.values import Value

OUT = Path(__file__).resolve().parents[1] / "tf_jobs" / "tables" / "loss_curves.csv"
FAMILIES = ("digits_cnn", "digits_dense", "digits_lstm")
LEARNING_RATES = ("0.0003", "0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1.0")
ITERATIONS = 400
RECORD_AT = (1, 2, 4, 7, *range(10, 100, 10), *range(100, ITERATIONS + 1, 20))


class Point(Value, frozen=True, kw_only=True):
    """One recorded point: loss is the mean training loss of the iterations since the point before."""

    family: str
    learning_rate: str
    iteration: int
    loss: float
    validation_loss: float
    accuracy: float

    def row(self) -> tuple[str, ...]:
        """The point as the table's row."""
        numbers = (f"{n:.5g}" for n in (self.loss, self.validation_loss, self.accuracy))
        return (self.family, self.learning_rate, str(self.iteration), *numbers)


def main() -> int:
    """Train the grid and write the table; returns the exit code."""
    tf = load_tensorflow()
    data = load_digits()
    with OUT.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("family", "learning_rate", "iteration", "loss", "validation_loss", "accuracy"))
        for family in FAMILIES:
            for learning_rate in LEARNING_RATES:
                points = list(record(tf, data, family, learning_rate))
                writer.writerows(point.row() for point in points)
                sys.stdout.write(f"{family} {learning_rate}: accuracy {points[-1].accuracy:.3f}\n")
    return 0


def record(tf: Any, data: DataSet, family: str, learning_rate: str) -> Iterator[Point]:
    """Train one network and measure it at RECORD_AT."""
    values = parse(program(family), ["--iterations", str(ITERATIONS), "--learning_rate", learning_rate])
    context = read_context(family, {})
    learner = Learner(tf, build_model(family, values), values, data, context, Alone())
    losses: list[float] = []
    for iteration in range(1, ITERATIONS + 1):
        losses.append(learner.step(iteration, stop=False).loss)
        if iteration in RECORD_AT:
            validation_loss, accuracy = learner.validate()
            yield Point(
                family=family,
                learning_rate=learning_rate,
                iteration=iteration,
                loss=sum(losses) / len(losses),
                validation_loss=validation_loss,
                accuracy=accuracy,
            )
            losses.clear()


if __name__ == "__main__":
    sys.exit(main())
