"""Wrong speeds on three types of GPUs: the runs, their table, and that profiling runs leave nothing to gain."""

import pytest
from msgspec.structs import replace

from themis_lab.paper.misstated_speeds import CONTENDERS, EXPERIMENT
from themis_lab.paper.output import section
from themis_lab.paper.port import Done, Findings, Scale
from themis_lab.paper.report_frame import figure_png
from themis_lab.paper.runner import run_cell

CELLS = EXPERIMENT.cells(Scale.QUICK, 2)


def test_every_lie_has_an_honest_run_with_the_same_settings():
    honest = [cell for cell in CELLS if cell.labels["lie"] == "none"]
    assert len(honest) == 2 * len(CONTENDERS)
    assert len({cell.key for cell in CELLS}) == len(CELLS)
    for cell in CELLS:
        assert sum(each.settings == cell.settings for each in honest) == 1


def test_table_and_figure_have_every_policy_and_case():
    honest, lying = CELLS[0], [cell for cell in CELLS if cell.labels["lie"] != "none"]
    record = run_cell(replace(honest, workload_arguments={"seed": 1, "apps": 8}))
    named = replace(record, apps=tuple(replace(app, name=f"app-{place:03}") for place, app in enumerate(record.apps)))
    known = {app.name for app in named.apps}
    done = [Done(cell=cell, record=named) for cell in CELLS if cell.labels["liar"] in (known | {""})]
    findings = EXPERIMENT.evaluate(done)
    assert {row["gain_percent"] for row in findings.rows} == {0.0}
    assert {line[0] for line in findings.table[1:]} == {cell.labels["policy"] for cell in lying}
    assert "its user states it" in section(EXPERIMENT, findings).text()
    assert figure_png(lambda: EXPERIMENT.draw(findings))


def test_a_long_loss_is_cut_in_the_figure_and_states_its_value():
    gains = {0.5: -20.0, 2.0: -150.0}
    rows = [
        {"policy": policy, "case": "c", "factor": factor, "gain_percent": gain if policy == "themis" else 5.0}
        for policy in ("oef", "themis")
        for factor, gain in gains.items()
    ]
    whole, cut = EXPERIMENT.draw(Findings(rows=rows, comparisons=())).axes
    assert [text.get_text() for text in (*whole.texts, *cut.texts)] == ["-150 %, cut"]
    assert cut.get_xlim()[0] == -40.0


@pytest.mark.parametrize("policy", ["oef", "oef_noncooperative"])
def test_a_wrong_statement_gains_nothing_after_profiling_runs(policy):
    """It may cost: until its first run an app gets leftovers by what it stated, and then all goes another way."""
    cells = [cell for cell in CELLS if cell.labels["policy"] == policy and cell.settings.rounds.profiling_runs]
    honest, lying = (
        next(cell for cell in cells if (cell.labels["liar"], cell.labels["factor"]) == wanted)
        for wanted in (("", 1.0), ("app-003", 2.0))
    )
    (row,) = EXPERIMENT.evaluate([Done(cell=cell, record=run_cell(cell)) for cell in (honest, lying)]).rows
    assert row["gain_percent"] < 1.0
