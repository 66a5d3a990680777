"""Steps, losses and seconds in the lines that `themis.report` writes."""

import pytest

from am.profiler.records import StepLoss, Validation
from am.profiler.report_format import ReportFormat


def line(values):
    return f"INFO:themis:report {values}"


def test_first_report_has_no_seconds_and_the_next_one_those_between():
    reader = ReportFormat()
    first = reader.read(line('{"step": 3, "loss": 0.5, "time_s": 10.0}'))
    assert first == (StepLoss(step=3, loss=0.5, seconds=None),)
    assert reader.read(line('{"step": 5, "time_s": 12.5}')) == (StepLoss(step=5, loss=None, seconds=2.5),)
    reader.begin()
    assert reader.read(line('{"time_s": 20.0}')) == (StepLoss(step=0, loss=None, seconds=None),)


@pytest.mark.parametrize(
    ("values", "step", "seconds"),
    [
        ('{"time_s": 9.0}', 3, 0.0),
        ('{"step": -1, "time_s": 11.0}', 3, 1.0),
        ('{"step": 4}', 4, None),
        ('{"step": 4, "time_s": true}', 4, None),
    ],
)
def test_what_a_report_lacks_is_that_of_the_one_before(values, step, seconds):
    reader = ReportFormat()
    reader.read(line('{"step": 3, "time_s": 10.0}'))
    assert reader.read(line(values)) == (StepLoss(step=step, loss=None, seconds=seconds),)


def test_held_out_values_are_a_validation():
    read = ReportFormat().read(line('{"step": 2, "val_loss": 0.25, "accuracy": 0.5}'))
    assert read == (StepLoss(step=2, loss=None), Validation(step=2, loss=0.25, accuracy=0.5))


@pytest.mark.parametrize("values", ["", "[1]", "3", "{"])
def test_line_that_is_no_report_has_no_records(values):
    assert ReportFormat().read(line(values)) == ()
