"""`themis rm detect` prints a cluster file that `themis rm start` accepts, or one line and exit 2."""

from pathlib import Path

import pytest

from themis.config.cluster_file import load_cluster
from themis_cli.main import main

TWO_CARDS = """#!/bin/sh
echo '0, NVIDIA A100-SXM4-40GB, 40960, Disabled'
echo '1, NVIDIA A100-SXM4-40GB, 40960, Disabled'
"""


def install_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "nvidia-smi").write_text(script)
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_printed_file_has_all_cards(tmp_path, monkeypatch, capsys):
    install_nvidia_smi(tmp_path, monkeypatch, TWO_CARDS)
    assert main(["rm", "detect"]) == 0
    (tmp_path / "cards.yaml").write_text(capsys.readouterr().out)
    cluster = load_cluster(tmp_path / "cards.yaml")
    assert [(machine.slots, machine.device) for machine in cluster.machines] == [((2,), "a100")]


@pytest.mark.parametrize(
    ("arguments", "script", "error"),
    [
        (
            [],
            "#!/bin/sh\n",
            "themis: nvidia-smi shows no cards; check the driver, or use an emulated example cluster\n",
        ),
        (["--cpu-nodes", "-1"], TWO_CARDS, "themis: this number of CPU nodes does not fit: -1; "),
        ([], "#!/bin/sh\necho 'No devices were found'\n", "themis: unexpected answer of nvidia-smi "),
    ],
)
def test_wrong_input_ends_in_one_line(tmp_path, monkeypatch, capsys, arguments, script, error):
    install_nvidia_smi(tmp_path, monkeypatch, script)
    assert main(["rm", "detect", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith(error) and output.err.count("\n") == 1


def test_machine_without_nvidia_smi_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["rm", "detect"]) == 2
    assert capsys.readouterr().err.startswith("themis: nvidia-smi is not installed; install the driver")
