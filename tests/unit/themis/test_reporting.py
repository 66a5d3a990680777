"""`themis.report`: two lines in any program."""

import os
import subprocess
import sys

import pytest

from am.profiler.parser import LogReader
from am.profiler.records import Metric, StepLoss, Validation
from themis import report
from themis.apps import MetricSpec
from themis.reporting import FILE_VARIABLE


@pytest.fixture
def log(tmp_path, monkeypatch):
    path = tmp_path / "task-0.log"
    path.write_text(" 40%|##  | 4/10 [00:01<00:02, 3.00it/s]")
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    return path


def test_reports_are_read_with_their_times(log):
    report(step=10, loss=0.5)
    report(step=20, loss=0.4, val_loss=0.6, accuracy=0.7)
    first, second, validation = LogReader().read(log.read_bytes())
    assert (first.step, first.loss, first.seconds) == (10, 0.5, None)
    assert isinstance(second, StepLoss)
    assert 0 <= second.seconds < 60
    assert validation == Validation(step=20, loss=0.6, accuracy=0.7)


def test_other_values_can_be_declared_as_the_metric(log):
    report(step=10, auc=0.9)
    records = LogReader(metric=MetricSpec(name="auc", mode="max")).read(log.read_bytes())
    assert records[-1] == Metric(value=0.9, step=10)


def test_values_of_libraries_are_converted(log):
    class Tensor:
        def __float__(self):
            return 0.25

    report(step=1, loss=Tensor())
    assert LogReader().read(log.read_bytes())[0].loss == 0.25


def test_nan_is_reported_as_such(log):
    report(step=1, loss=float("nan"))
    assert LogReader().read(log.read_bytes())[0].loss != LogReader().read(log.read_bytes())[0].loss


def test_value_that_is_no_number_is_refused(log):
    with pytest.raises(ValueError, match="could not convert"):
        report(step=1, loss="low")


def test_without_a_file_it_prints(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "gone" / "log"))
    report(step=1, loss=0.5)
    assert '"loss": 0.5' in capfd.readouterr().out


def test_import_is_light():
    code = "import sys; from themis import report; print('msgspec' in sys.modules, 'themis.apps' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["False", "False"]
