import pickle
from importlib.util import find_spec

import pytest

from themis.errors import UnknownNameError
from themis_lab.paper.forecast import expected_s
from themis_lab.paper.plans import Load, distinct_runs, policies, policy_cells
from themis_lab.paper.port import Scale
from themis_lab.paper.registry import MODULES, experiment_named

MINE = ("fig6", "fig9", "fig10", "fig11", "fig12", "fig13", "tab5", "overheads")


def test_unknown_experiment_lists_known_ones():
    with pytest.raises(
        UnknownNameError, match=r"unknown experiment: 'fig99'; did you mean 'fig9'\? known: fig6, fig9, .*ablations"
    ):
        experiment_named("fig99")


@pytest.mark.parametrize("name", [name for name in MODULES if find_spec(MODULES[name])])
@pytest.mark.parametrize("scale", Scale)
def test_cells_can_be_pickled(name, scale):
    experiment = experiment_named(name)
    cells = experiment.cells(scale, 1)
    assert (experiment.name, bool(experiment.title)) == (name, True)
    assert cells
    assert len({tuple(sorted(cell.labels.items())) for cell in cells}) == len(cells)
    for cell in cells:
        assert repr(pickle.loads(pickle.dumps(cell))) == repr(cell)


def test_macrobenchmark_figures_share_runs():
    some = [experiment_named(name) for name in ("fig9", "fig11")]
    assert len(distinct_runs(some, Scale.QUICK, 2)) == len(some[0].cells(Scale.QUICK, 2)) == 2 * 2 * len(policies())
    every = [experiment_named(name) for name in ("fig9", "fig10", "fig11", "fig12", "fig13", "overheads")]
    assert len(distinct_runs(every, Scale.QUICK, 1)) == 2 * 2 * len(policies())


def test_forecast_covers_every_large_workload():
    for scale in Scale:
        for name in MODULES:
            for cell in experiment_named(name).cells(scale, 1):
                arguments = cell.workload_arguments
                workload = arguments.get("around") or (arguments.get("name") if "cluster" in arguments else None)
                assert (expected_s(cell) < 0.1) <= (workload is None)


def test_forecast_is_longest_for_staggered_themis():
    cells = policy_cells(Load(name="w2-small", options={}), "testbed", 1, names=("themis", "drf"))
    seconds = {(cell.labels["policy"], cell.labels["ends"]): expected_s(cell) for cell in cells}
    assert max(seconds, key=seconds.get) == ("themis", "staggered")
    assert min(seconds, key=seconds.get) == ("drf", "aligned")


def test_every_policy_runs_with_both_kinds_of_lease_ends():
    cells = list(policy_cells(Load(name="w1-small", options={}), "testbed", 1))
    assert {(cell.labels["policy"], cell.labels["ends"]) for cell in cells} == {
        (name, ends) for name in policies() for ends in ("aligned", "staggered")
    }
    assert policies()[0] == "themis"
    assert policies(("tiresias", "themis", "nobody")) == ("themis", "tiresias")


def test_forecast_of_fig18_is_longest_for_lexicographic_bundles():
    longest = {}
    for cell in experiment_named("fig18").cells(Scale.QUICK, 1):
        longest[cell.labels["setting"]] = expected_s(cell)
    first, twice, all_bid, for_life = longest.values()
    assert first < twice < all_bid < for_life / 5
