import pytest

from themis_lab.paper.fig6 import BLIND, INSTANCES
from themis_lab.paper.port import Done, Scale
from themis_lab.paper.registry import experiment_named
from themis_lab.paper.runner import run_cell
from themis_lab.paper.sharing import judge, kept_by_name, violated_shares


@pytest.mark.parametrize(
    ("instance", "allocation", "violated"),
    [
        ("1", ((2, 2), (2, 2)), {"SI", "PE"}),
        ("1", ((4, 0), (0, 4)), set()),
        ("1", ((3, 1), (1, 3)), {"SI", "PE"}),
        ("2", ((4, 0, 0), (0, 2, 2)), {"SI", "EF", "PE"}),
        ("2", ((0, 2, 2), (4, 0, 0)), set()),
        ("2", ((2, 1, 1), (2, 1, 1)), {"SI", "PE"}),
    ],
)
def test_verdicts_equal_the_papers(instance, allocation, violated):
    reported = INSTANCES[instance]
    verdict = judge(reported.takers, reported.machines, allocation)
    assert {name for name, kept in kept_by_name(verdict).items() if not kept} == violated


def test_app_with_too_few_gpus_cannot_run_and_envies():
    reported = INSTANCES["1"]
    verdict = judge(reported.takers, reported.machines, ((4, 3), (0, 1)))
    assert verdict.slowdowns == (1.0, float("inf"))
    assert not verdict.envy_free


def test_the_papers_allocation_violates_the_named_properties():
    for reported in INSTANCES.values():
        kept = kept_by_name(judge(reported.takers, reported.machines, reported.blind))
        assert not any(kept[name] for name in reported.violated)


def test_almost_all_drf_choices_violate_a_property():
    first = INSTANCES["1"]
    assert violated_shares(first.takers, first.machines) == {"SI": 68 / 70, "EF": 0.0, "PE": 68 / 70}
    second = INSTANCES["2"]
    assert violated_shares(second.takers, second.machines) == {"SI": 69 / 70, "EF": 1 / 70, "PE": 69 / 70}


def test_remark_names_filter_if_it_causes_a_violation():
    experiment = experiment_named("fig6")
    cells = [cell for cell in experiment.cells(Scale.QUICK, 2) if str(cell.labels["policy"]).startswith("themis")]
    remarks = experiment.evaluate([Done(cell=cell, record=run_cell(cell)) for cell in cells]).remarks
    (text,) = [remark for remark in remarks if remark.startswith("Instance ")]
    assert text.startswith("Instance 2 under themis, f = 0.8: the filter asked A1 (inception3) in 100% of the seeds")
    assert text.endswith("In one shot (f = 0) both bid, violated: nothing.")


def test_one_shot_themis_violates_no_property():
    experiment = experiment_named("fig6")
    cells = [cell for cell in experiment.cells(Scale.QUICK, 2) if cell.labels["policy"] == "themis, f = 0"]
    findings = experiment.evaluate([Done(cell=cell, record=run_cell(cell)) for cell in cells])
    own = [row for row in findings.rows if row["policy"] != BLIND]
    assert {(row["instance"], row["held"]) for row in own} == {
        ("1", "4+0"), ("1", "0+4"), ("2", "0+2+2"), ("2", "4+0+0"),
    }  # fmt: skip
    assert all(row["keeps_SI"] == row["keeps_EF"] == row["keeps_PE"] == 1.0 for row in own)
