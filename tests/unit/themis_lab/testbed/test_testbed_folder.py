"""The folder of a run: what may be replaced, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from themis.errors import InputError
from themis_lab.testbed.audit_values import HistoryLine
from themis_lab.testbed.histories import read_histories
from themis_lab.testbed.run_folder import RunFolder, fresh_folder, run_folder


def test_new_folder_is_created_with_parents(tmp_path: Path):
    with fresh_folder(tmp_path / "a" / "b") as folder:
        assert folder.root.is_dir()


def test_empty_folder_is_used(tmp_path: Path):
    with fresh_folder(tmp_path) as folder:
        assert folder.root == tmp_path


@pytest.mark.parametrize("name", ["cluster.yaml", "rm.yaml"])
def test_old_run_is_replaced(tmp_path: Path, name: str):
    out = tmp_path / "out"
    (out / "state").mkdir(parents=True)
    (out / name).touch()
    with fresh_folder(out):
        assert {path.name for path in out.iterdir()} == {"lock"}


def test_run_without_output_is_replaced(tmp_path: Path):
    with fresh_folder(tmp_path / "out"):
        pass
    with fresh_folder(tmp_path / "out"):
        pass


def test_folder_with_other_files_is_refused(tmp_path: Path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match="left alone"), fresh_folder(tmp_path):
        pass
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize("strangers", [["report.json"], ["report.json", "chapter"], ["rm.yaml", "rm.log", "notes.txt"]])
def test_folder_with_similar_names_is_refused(tmp_path: Path, strangers: list[str]):
    for name in strangers:
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="left alone"), fresh_folder(tmp_path):
        pass
    assert {path.name for path in tmp_path.iterdir()} == set(strangers)


def test_link_is_refused(tmp_path: Path):
    (tmp_path / "there").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "there")
    with pytest.raises(InputError, match="is a link"), fresh_folder(tmp_path / "out"):
        pass


def test_folder_that_cannot_be_created_is_an_error():
    with pytest.raises(InputError, match="cannot make"), fresh_folder(Path("/proc/none/out")):
        pass


def test_file_is_refused(tmp_path: Path):
    (tmp_path / "out").touch()
    with pytest.raises(InputError, match="is a file"), fresh_folder(tmp_path / "out"):
        pass


def test_working_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "rm.yaml").touch()
    (tmp_path / "state").mkdir()
    monkeypatch.chdir(tmp_path / "state")
    with pytest.raises(InputError, match="holds the working folder"), fresh_folder(tmp_path):
        pass
    assert (tmp_path / "rm.yaml").exists()


def test_folder_without_run_cannot_be_reported(tmp_path: Path):
    with pytest.raises(InputError, match="holds no run"):
        run_folder(tmp_path)


def test_histories_are_read_up_to_first_partial_line(tmp_path: Path):
    folder = RunFolder(tmp_path)
    path = folder.history("app-1", "job-0")
    path.parent.mkdir(parents=True)
    path.write_text(
        '{"incarnation": 1, "event": "start", "from_iteration": 0, "time_s": 1}\n'
        '{"incarnation": 1, "event": "checkpoint", "iteration": 20}\n'
        '{"incarnation": 1, "event": "validation", "iteration": 20}\n'
        '{"incarnation": 1, "event": "sto'
    )
    found = read_histories(folder, [("app-1", "job-0"), ("app-1", "job-1")])
    assert found == {
        ("app-1", "job-0"): (
            HistoryLine(incarnation=1, event="start", iteration=0),
            HistoryLine(incarnation=1, event="checkpoint", iteration=20),
        )
    }
