"""The loss curve of a job resized ten times equals that of the same job left alone."""

import importlib.util
import signal
import sys
from itertools import groupby, pairwise

import pytest
from documents import ROOT
from elastic_script import documented_script

real = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="real programs need the extra 'tf'")
long = pytest.mark.timeout(600)
FLOAT_NOISE = 2e-4
"""Relative: sums over other parts of a batch differ in the last bits, and training makes more of it; 1e-5 was seen."""


@real
@long
@pytest.mark.slow
@pytest.mark.nightly
def test_ten_resizes_do_not_change_the_loss_curve(recorder, tmp_path):
    assert len(recorder.TASKS) == 11
    assert max(recorder.TASKS) == 4
    resized = recorder.play(recorder.Gang(tmp_path / "resized", recorder.program_command()), recorder.TASKS)
    assert [point.iteration for point in resized] == list(range(1, len(resized) + 1)), "an iteration lost or repeated"
    assert {point.tasks for point in resized} == set(recorder.TASKS)
    alone = recorder.alone(recorder.Gang(tmp_path / "alone", recorder.program_command()), len(resized))
    assert [point.loss for point in resized] == pytest.approx([point.loss for point in alone], rel=FLOAT_NOISE)
    assert alone[-1].loss < 0.8 * alone[0].loss, "a curve to compare"


@real
@long
@pytest.mark.slow
def test_a_gang_of_eight_shrinks_to_five_and_one_and_grows_again(recorder, tmp_path, monkeypatch):
    """Eight tasks, four to a core here: fewer iterations of each start than above."""
    monkeypatch.setattr(recorder, "MIN_ITERATIONS", 12)
    tasks_by_start = (8, 5, 1, 2)
    resized = recorder.play(recorder.Gang(tmp_path / "resized", recorder.program_command()), tasks_by_start)
    assert [point.iteration for point in resized] == list(range(1, len(resized) + 1)), "an iteration lost or repeated"
    assert [tasks for tasks, _ in groupby(point.tasks for point in resized)] == list(tasks_by_start)
    alone = recorder.alone(recorder.Gang(tmp_path / "alone", recorder.program_command()), len(resized))
    assert [point.loss for point in resized] == pytest.approx([point.loss for point in alone], rel=FLOAT_NOISE)
    assert alone[-1].loss < 0.9 * alone[0].loss, "a curve to compare"


@real
@long
@pytest.mark.slow
def test_a_resized_keras_script_learns_as_an_undisturbed_one(recorder, tmp_path):
    script, _ = documented_script()
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, str(tmp_path / "train.py")]
    resized, seen = recorder.Gang(tmp_path / "resized", command), {}
    for tasks in (1, 2):
        running = resized.start("100000" if tasks == 1 else str(max(seen) // 25 + 6), tasks=tasks)
        if tasks == 1:
            resized.until_iterations(8)
            running[0].send_signal(signal.SIGTERM)
        assert resized.finish() == [75 if tasks == 1 else 0] * tasks, resized.log()
        seen |= resized.losses()
    alone = recorder.Gang(tmp_path / "alone", command)
    alone.start(str(max(seen) // 25 + 1))
    assert alone.finish() == [0], alone.log()
    common = sorted(seen.keys() & alone.losses().keys())
    assert len(common) > 10
    # Keras' kernels may sum in another order for other shapes of a batch: oneDNN is left as the script has it.
    assert [seen[step] for step in common] == pytest.approx([alone.losses()[step] for step in common], rel=1e-3)


def test_five_changed_lines_make_the_documented_script_elastic():
    script, changes = documented_script()
    assert changes <= 5
    compile(script, "train.py", "exec")
    assert "job.fit(model, " in script


def test_the_recorded_figure_shows_ten_resizes_within_float_noise():
    rows = [line.split(",") for line in (ROOT / "docs" / "figures" / "elastic.csv").read_text().splitlines()[1:]]
    tasks = [int(row[1]) for row in rows]
    assert sum(one != two for one, two in pairwise(tasks)) == 10
    assert [float(row[2]) for row in rows] == pytest.approx([float(row[3]) for row in rows], rel=FLOAT_NOISE)
