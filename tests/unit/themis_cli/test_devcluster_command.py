"""`themis devcluster`: refused input, and the output about a cluster."""

import argparse

import pytest
from documents import code, table_rows

from themis_cli import devcluster_command
from themis_cli.main import main

PAGE = "docs/how-to/devcluster.md"


@pytest.fixture(autouse=True)
def without_hadoop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    for name in ("THEMIS_HADOOP_JARS", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("start --nodes 2 --gpus 4,4,2", r"--nodes and --gpus disagree: 2; --gpus 4,4,2 names 3 nodes"),
        ("start --gpus 4,x", r"--gpus cannot be read: '4,x'; whole numbers"),
        ("start --gpus ,", "--gpus cannot be read"),
        ("start --gpus -1", "a number of GPUs that cannot be: -1"),
        ("start --gpus=4,-1", "a number of GPUs that cannot be: -1"),
        ("start --nodes 0", "a number of nodes that cannot be: 0"),
        ("start --nodes 1000", "a number of nodes that cannot be: 1000"),
        ("start", "there is no `java` on this machine; install Java 17"),
        ("start --dir used", "the cluster's folder is in use"),
        ("status", "there is no development cluster in this folder"),
        ("stop", "there is no development cluster in this folder"),
        ("run -- true", "there is no development cluster in this folder"),
        ("run", "required: COMMAND"),
        ("", "required: COMMAND"),
    ],
)
def test_wrong_input_exits_2_with_remedy(tmp_path, capsys, words, message):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.txt").touch()
    assert main(["devcluster", *words.split()]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["used"]


@pytest.mark.parametrize(
    ("nodes", "gpus", "wanted"),
    [(None, None, (4, 4, 2)), (2, None, (4, 4)), (None, "1,2", (1, 2)), (3, "0,0,8", (0, 0, 8))],
)
def test_nodes_and_gpus_options_set_cluster(nodes, gpus, wanted):
    assert devcluster_command._gpus(nodes, gpus) == wanted


def test_page_documents_every_option():
    parser = argparse.ArgumentParser()
    devcluster_command.add_to(parser.add_subparsers())
    (group,) = parser._subparsers._group_actions
    (actions,) = group.choices["devcluster"]._subparsers._group_actions
    known = {}
    for name, action in actions.choices.items():
        for option in action._actions:
            if option.option_strings and option.dest != "help":
                known.setdefault(option.option_strings[-1], []).append(name)
    written = {code(row[0])[0]: code(row[1]) or list(actions.choices) for row in table_rows(PAGE, "option")}
    assert written == known
