"""Linear programmes by HiGHS: a vertex, its duals, rows added between solves, and failures as a status."""

import numpy as np
import pytest

from rm_plugin.solvers.highs_linear import HighsModel
from rm_plugin.solvers.linear import Constraint, LinearStatus
from themis.errors import InvariantError


def row(*values, **bounds):
    used = [number for number, value in enumerate(values) if value]
    numbers = np.array([values[number] for number in used], dtype=float)
    return Constraint(columns=np.array(used, dtype=np.int32), values=numbers, **bounds)


def test_an_optimum_has_values_and_duals():
    model = HighsModel(np.array([3.0, 2.0]))
    model.add_constraints([row(1, 1, upper=4.0), row(1, 0, upper=3.0)])
    optimum = model.maximise()
    assert optimum.status is LinearStatus.OPTIMAL
    assert optimum.objective == pytest.approx(11.0)
    assert list(optimum.values) == pytest.approx([3.0, 1.0])
    assert list(optimum.duals) == pytest.approx([2.0, 1.0])


def test_rows_can_be_added_after_a_solve():
    model = HighsModel(np.array([1.0, 1.0]))
    model.add_constraints([row(1, 1, upper=4.0)])
    assert model.maximise().objective == pytest.approx(4.0)
    model.add_constraints([])
    model.add_constraints([row(1, -1, lower=0.0, upper=0.0), row(1, 0, upper=1.0)])
    assert list(model.maximise().values) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("rows", [[], [row(1, 0, lower=2.0, upper=1.0)], [row(1, 0, upper=1.0), row(1, 0, lower=2.0)]])
def test_unbounded_and_infeasible_programmes_fail(rows):
    model = HighsModel(np.array([1.0, 1.0]))
    model.add_constraints(rows)
    optimum = model.maximise()
    assert optimum.status is LinearStatus.FAILED
    assert len(optimum.values) == 0


def test_a_programme_without_variables_is_solved():
    model = HighsModel(np.zeros(0))
    model.add_constraints([row(upper=1.0)])
    optimum = model.maximise()
    assert (optimum.status, optimum.objective, list(optimum.duals)) == (LinearStatus.OPTIMAL, 0.0, [0.0])


def test_a_column_that_is_missing_is_a_defect():
    with pytest.raises(InvariantError, match="HiGHS refuses"):
        HighsModel(np.array([1.0])).add_constraints([row(1, 1, upper=1.0)])
