"""The cache of runs that an interrupted `themis reproduce` leaves: found again if whole and made by the same code."""

import math

import pytest
from msgspec.structs import replace
from sim_cases import app, cluster, job, settings, workload

from themis.errors import InputError
from themis_lab.paper import run_cache, runner
from themis_lab.paper.plans import distinct_runs
from themis_lab.paper.port import Scale
from themis_lab.paper.registry import experiment_named
from themis_lab.paper.run_cache import RunCache, digest_of
from themis_lab.paper.runner import run_all, run_cell
from themis_lab.simulator.simulation import Simulation

FIG6 = [experiment_named("fig6")]


@pytest.fixture
def record():
    """A run that uses every field of a record."""
    apps = [app(name, job(iterations=100, gpus=3, least=1)) for name in "ab"]
    run = Simulation(workload(*apps), replace(settings(cluster((2, 2))), record_rounds=True)).run()
    rounds = (replace(run.rounds[0], rho={"a": math.inf}, refused={"b": "late"}), *run.rounds[1:])
    return replace(run, rounds=rounds)


def cache(folder, *keys):
    return RunCache(folder, keys or ["k", "l"])


def files(folder):
    return sorted((folder / "unfinished").iterdir())


def test_cache_returns_the_stored_record(tmp_path, record):
    mine = cache(tmp_path)
    assert (mine.found, mine.resume_hint()) == ({}, "")
    mine.store("k", record)
    assert mine.resume_hint() == f"1 run is kept in {tmp_path}/unfinished: the same command goes on from there\n"
    assert cache(tmp_path).found == {"k": record}
    mine.store("l", record)
    assert mine.resume_hint().startswith("2 runs are kept in ")
    assert mine.clear() == ""
    assert list(tmp_path.iterdir()) == []
    assert mine.clear() == ""


def test_clear_removes_only_own_records(tmp_path, record):
    mine, others = cache(tmp_path, "a", "b"), cache(tmp_path, "b", "c")
    mine.store("a", record)
    others.store("c", record)
    (tmp_path / "unfinished" / "chapter.tex").write_text("a user's own file")
    for file in files(tmp_path):
        if file.name != "chapter.tex":
            half_written = file.with_name(f"{file.name}.77.part")
            half_written.write_bytes(b"")
    assert mine.clear() == (
        f"3 files stay in {tmp_path}/unfinished, of another command or of other code: remove those you do not need\n"
    )
    assert len(files(tmp_path)) == 3
    assert cache(tmp_path, "a", "c").found == {"c": record}
    assert others.clear().startswith("1 file stays in ")
    assert [path.name for path in files(tmp_path)] == ["chapter.tex"]


def test_other_code_finds_no_records(tmp_path, record, monkeypatch):
    cache(tmp_path).store("k", record)
    monkeypatch.setattr(run_cache, "_code", lambda: "another")
    assert cache(tmp_path).found == {}


def test_digest_covers_sources_binaries_and_versions(tmp_path):
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
    assert run_cache._code() != ""


@pytest.mark.parametrize("damaged", [lambda whole: whole[:-5], lambda whole: whole[:90] + b"x" + whole[91:]])
def test_damaged_record_is_ignored(tmp_path, record, damaged):
    cache(tmp_path).store("k", record)
    (path,) = files(tmp_path)
    path.write_bytes(damaged(path.read_bytes()))
    again = cache(tmp_path)
    assert again.found == {}
    again.store("k", record)
    assert cache(tmp_path).found == {"k": record}


def test_unwritable_folder_raises_input_error(tmp_path, record):
    (tmp_path / "unfinished").write_text("a file where the folder should be")
    with pytest.raises(InputError, match="cannot make the folder"):
        cache(tmp_path).store("k", record)


def test_interrupted_runs_continue(tmp_path, monkeypatch):
    made, seen = [], []
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
        list(run_all(FIG6, Scale.QUICK, 1, 1, cache=cache(tmp_path, *keys)))
    assert len(made) == 5
    monkeypatch.setattr(runner, "run_cell", make)
    again = run_all(FIG6, Scale.QUICK, 1, 1, lambda *numbers: seen.append(numbers[:2]), cache(tmp_path, *keys))
    ((_, done),) = again
    assert sorted(made) == sorted(keys)
    assert list(dict.fromkeys(seen)) == [(number, len(runs)) for number in range(5, len(runs) + 1)]
    ((_, whole),) = run_all(FIG6, Scale.QUICK, 1, 1)
    assert [each.record.apps for each in done] == [each.record.apps for each in whole]
