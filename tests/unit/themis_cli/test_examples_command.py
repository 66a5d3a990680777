"""`themis examples` lists every example file and copies them."""

from pathlib import Path

import pytest

from themis_cli.main import main

ROOT = Path(__file__).resolve().parents[3]


def test_list_names_every_example(capsys):
    assert main(["examples"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    folders = (
        "conf",
        "conf/apps",
        "conf/clusters",
        "conf/testbed",
        "conf/markets",
        "conf/instances/allox",
        "conf/instances/oef",
    )
    files = [path for folder in folders for path in (ROOT / folder).iterdir() if path.is_file()]
    # The unit for systemd is a template, not an example for a command.
    assert listed == {path.stem for path in files if path.suffix != ".service"}


def test_copy_writes_example_files(tmp_path, capsys):
    assert main(["examples", "--copy", str(tmp_path / "mine")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mine'}\n"
    assert (tmp_path / "mine/apps/digits-cnn.yaml").read_bytes() == (ROOT / "conf/apps/digits-cnn.yaml").read_bytes()


def test_copy_refuses_existing_folder(tmp_path, capsys):
    (tmp_path / "themis.yaml").write_text("policy: drf\n", encoding="utf-8")
    assert main(["examples", "--copy", str(tmp_path)]) == 2
    assert "the folder exists already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["themis.yaml"]


@pytest.mark.parametrize(
    ("page", "command", "name"), [("allox.md", "allox", "two-machines"), ("oef.md", "oef", "two-types")]
)
def test_instance_of_a_page_is_an_example(page, command, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, "--instance", name]) == 0
    assert "optimal" in capsys.readouterr().out
    shown = (ROOT / "docs/explanation" / page).read_text(encoding="utf-8").partition("```json\n")[2].partition("```")[0]
    assert shown == (ROOT / f"conf/instances/{command}/{name}.json").read_text(encoding="utf-8")
