"""Empty options of the experiment are refused, not replaced by a default."""

import pytest

from themis_cli.main import main


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--policies", ""], "a policy without a name in --policies: ''"),
        (["--policies", ","], "a policy without a name"),
        (["--policies", "themis,,tiresias"], "a policy without a name in --policies: 'themis,,tiresias'"),
        (["--policies", "themis,"], "a policy without a name"),
        (["--scale", ""], "unknown scale of the experiment: ''"),
    ],
)
def test_empty_name_is_refused(options, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("themis_lab.paper.live.command._forecast", lambda *_: pytest.fail("the experiment was begun"))
    out = tmp_path / "out"
    assert main(["testbed", "--workload", "w1", *options, "--out", str(out)]) == 2
    assert expected in capsys.readouterr().err
    assert not out.exists()


def test_blanks_between_names_are_ignored(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr("themis_lab.paper.live.command.run_experiment", lambda **given: asked.update(given) or 0)
    assert main(["testbed", "--workload", "w1", "--policies", "themis, tiresias"]) == 0
    assert asked["policies"] == ["themis", "tiresias"]
