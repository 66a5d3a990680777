"""What an interrupted `themis reproduce` had made is found again, whole, and by the code that made it only."""

import math
from dataclasses import replace

import pytest

from simulator.experiments import kept_runs, runner
from simulator.experiments.kept_runs import KeptRuns
from simulator.experiments.plans import distinct_runs
from simulator.experiments.port import Scale
from simulator.experiments.registry import experiment_named
from simulator.experiments.runner import run_all, run_cell
from simulator.simulation import Simulation
from tests.unit.simulator.sim_cases import app, cluster, job, settings, workload
from themis.errors import InputError

FIG6 = [experiment_named("fig6")]


@pytest.fixture
def kept(tmp_path):
    return KeptRuns(tmp_path)


@pytest.fixture
def record():
    """A run with everything in it that a record can hold."""
    apps = [app(name, job(iterations=100, gpus=3, least=1)) for name in "ab"]
    run = Simulation(workload(*apps), replace(settings(cluster((2, 2))), record_rounds=True)).run()
    rounds = (replace(run.rounds[0], rho={"a": math.inf}, refused={"b": "late"}), *run.rounds[1:])
    return replace(run, rounds=rounds)


def test_what_is_kept_is_what_was_made(kept, record):
    assert (kept.find("k"), kept.has("k"), kept.told()) == (None, False, "")
    kept.keep("k", record)
    assert kept.find("k") == record
    assert kept.find("another") is None
    assert kept.told().startswith("1 runs are kept in ")
    kept.drop()
    assert kept.find("k") is None


def test_another_version_of_the_code_finds_nothing(kept, record, monkeypatch):
    kept.keep("k", record)
    monkeypatch.setattr(kept_runs, "_code", lambda: "another")
    assert kept.find("k") is None


def test_what_is_damaged_is_made_again(kept, record, tmp_path):
    kept.keep("k", record)
    (path,) = (tmp_path / "unfinished").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert kept.find("k") is None
    kept.keep("k", record)
    assert kept.find("k") == record


def test_no_room_is_told(tmp_path, record):
    (tmp_path / "unfinished").write_text("a file where the folder should be")
    with pytest.raises(InputError, match="cannot make the folder"):
        KeptRuns(tmp_path).keep("k", record)


def test_runs_go_on_where_they_were_interrupted(kept, monkeypatch):
    made, told = [], []

    def make(cell):
        made.append(cell.key)
        return run_cell(cell)

    def interrupted(cell):
        if len(made) == 5:
            raise KeyboardInterrupt
        return make(cell)

    monkeypatch.setattr(runner, "run_cell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(run_all(FIG6, Scale.QUICK, 1, 1, kept=kept))
    assert len(made) == 5
    monkeypatch.setattr(runner, "run_cell", make)
    ((_, done),) = run_all(FIG6, Scale.QUICK, 1, 1, lambda *numbers: told.append(numbers[:2]), kept)
    runs = distinct_runs(FIG6, Scale.QUICK, 1)
    assert sorted(made) == sorted(cell.key for cell in runs)
    assert told == [(number, len(runs)) for number in range(6, len(runs) + 1)]
    ((_, whole),) = run_all(FIG6, Scale.QUICK, 1, 1)
    assert [each.record.apps for each in done] == [each.record.apps for each in whole]
