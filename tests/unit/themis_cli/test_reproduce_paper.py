"""`themis reproduce oef`: the files and the summary of another paper's experiments."""

import json

import pytest

from themis_cli.main import main
from themis_lab.paper.oef import registry
from themis_lab.paper.oef.examples import EXPERIMENTS


@pytest.fixture(autouse=True)
def exact_examples_only(monkeypatch):
    monkeypatch.setattr(registry, "EXPERIMENTS", EXPERIMENTS)


def test_every_experiment_has_its_files_and_a_section(tmp_path, capsys):
    assert main(["reproduce", "oef", "--out", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert "oef_fig1: diverse speedups" in output.out
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    for experiment in EXPERIMENTS:
        assert f"### {experiment.name}: {experiment.title}" in summary
        assert {path.suffix for path in tmp_path.glob(f"{experiment.name}.*")} == {".csv", ".png", ".txt", ".md"}


def test_the_document_compares_each_line_with_the_paper(tmp_path, capsys):
    assert main(["reproduce", "oef", "--seeds", "1", "--json", "--out", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["scale"], document["seeds"]) == ("quick", 1)
    assert document["experiments"][0]["comparisons"][0]["ratio"] == pytest.approx(1.0)


def test_equal_runs_write_equal_bytes(tmp_path, capsys):
    for folder in ("one", "other"):
        assert main(["reproduce", "oef", "--out", str(tmp_path / folder)]) == 0
    for path in (tmp_path / "one").iterdir():
        if path.name != "summary.md":
            assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("oef", "fig9"), "such an evaluation is made alone"),
        (("off",), "known: fig6"),
        (("oef", "--seeds", "0"), "--seeds must be 1 or more"),
    ],
)
def test_bad_input_exits_with_2(tmp_path, capsys, words, said):
    assert main(["reproduce", *words, "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
