"""What an interrupted `themis reproduce` had made is found again, whole, and by the code that made it only."""

import math
from dataclasses import replace

import pytest

from tests.unit.themis_lab.simulator.sim_cases import app, cluster, job, settings, workload
from themis.errors import InputError
from themis_lab.paper import kept_runs, runner
from themis_lab.paper.plans import distinct_runs
from themis_lab.paper.port import Scale
from themis_lab.paper.registry import experiment_named
from themis_lab.paper.run_cache import KeptRuns, digest_of
from themis_lab.paper.runner import run_all, run_cell
from themis_lab.simulator.simulation import Simulation

FIG6 = [experiment_named("fig6")]


@pytest.fixture
def record():
    """A run with everything in it that a record can hold."""
    apps = [app(name, job(iterations=100, gpus=3, least=1)) for name in "ab"]
    run = Simulation(workload(*apps), replace(settings(cluster((2, 2))), record_rounds=True)).run()
    rounds = (replace(run.rounds[0], rho={"a": math.inf}, refused={"b": "late"}), *run.rounds[1:])
    return replace(run, rounds=rounds)


def kept(folder, *keys):
    return KeptRuns(folder, keys or ["k", "l"])


def files(folder):
    return sorted((folder / "unfinished").iterdir())


def test_what_is_kept_is_what_was_made(tmp_path, record):
    mine = kept(tmp_path)
    assert (mine.before, mine.told()) == ({}, "")
    mine.keep("k", record)
    assert mine.told() == f"1 run is kept in {tmp_path}/unfinished: the same command goes on from there\n"
    assert kept(tmp_path).before == {"k": record}
    mine.keep("l", record)
    assert mine.told().startswith("2 runs are kept in ")
    assert mine.drop() == ""
    assert list(tmp_path.iterdir()) == []
    assert mine.drop() == ""


def test_only_what_the_command_itself_kept_is_dropped(tmp_path, record):
    mine, others = kept(tmp_path, "a", "b"), kept(tmp_path, "b", "c")
    mine.keep("a", record)
    others.keep("c", record)
    (tmp_path / "unfinished" / "chapter.tex").write_text("somebody's own")
    for file in files(tmp_path):
        if file.name != "chapter.tex":
            half_written = file.with_name(f"{file.name}.77.part")
            half_written.write_bytes(b"")
    assert mine.drop() == (
        f"3 files stay in {tmp_path}/unfinished, of another command or of other code: remove what nobody goes on with\n"
    )
    assert len(files(tmp_path)) == 3
    assert kept(tmp_path, "a", "c").before == {"c": record}
    assert others.drop().startswith("1 file stays in ")
    assert [path.name for path in files(tmp_path)] == ["chapter.tex"]


def test_another_version_of_the_code_finds_nothing(tmp_path, record, monkeypatch):
    kept(tmp_path).keep("k", record)
    monkeypatch.setattr(kept_runs, "_code", lambda: "another")
    assert kept(tmp_path).before == {}


def test_the_code_is_told_by_sources_compiled_parts_and_versions(tmp_path):
    (tmp_path / "am").mkdir()
    for name in ("a.py", "b.so", "notes.md"):
        (tmp_path / "am" / name).write_text("1")
    (tmp_path / "am" / ".#a.py").symlink_to("nowhere")

    def digest(*versions):
        return digest_of(tmp_path, ["am"], versions)

    first = digest("numpy 1")
    (tmp_path / "am" / "notes.md").write_text("2")
    assert digest("numpy 1") == first != digest("numpy 2")
    for name in ("a.py", "b.so"):
        before = digest("numpy 1")
        (tmp_path / "am" / name).write_text("2")
        assert digest("numpy 1") != before
    assert kept_runs._code() != ""


@pytest.mark.parametrize("damaged", [lambda whole: whole[:-5], lambda whole: whole[:90] + b"x" + whole[91:]])
def test_what_is_damaged_is_made_again(tmp_path, record, damaged):
    kept(tmp_path).keep("k", record)
    (path,) = files(tmp_path)
    path.write_bytes(damaged(path.read_bytes()))
    again = kept(tmp_path)
    assert again.before == {}
    again.keep("k", record)
    assert kept(tmp_path).before == {"k": record}


def test_no_room_is_told(tmp_path, record):
    (tmp_path / "unfinished").write_text("a file where the folder should be")
    with pytest.raises(InputError, match="cannot make the folder"):
        kept(tmp_path).keep("k", record)


def test_runs_go_on_where_they_were_interrupted(tmp_path, monkeypatch):
    made, told = [], []
    runs = distinct_runs(FIG6, Scale.QUICK, 1)
    keys = [cell.key for cell in runs]

    def make(cell, watch):
        made.append(cell.key)
        return run_cell(cell, watch)

    def interrupted(cell, watch):
        if len(made) == 5:
            raise KeyboardInterrupt
        return make(cell, watch)

    monkeypatch.setattr(runner, "run_cell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(run_all(FIG6, Scale.QUICK, 1, 1, kept=kept(tmp_path, *keys)))
    assert len(made) == 5
    monkeypatch.setattr(runner, "run_cell", make)
    again = run_all(FIG6, Scale.QUICK, 1, 1, lambda *numbers: told.append(numbers[:2]), kept(tmp_path, *keys))
    ((_, done),) = again
    assert sorted(made) == sorted(keys)
    assert list(dict.fromkeys(told)) == [(number, len(runs)) for number in range(5, len(runs) + 1)]
    ((_, whole),) = run_all(FIG6, Scale.QUICK, 1, 1)
    assert [each.record.apps for each in done] == [each.record.apps for each in whole]
