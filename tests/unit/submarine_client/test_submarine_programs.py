"""Programs and commands, checked before anything is submitted; the examples that ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from submarine_client.groups import load_app
from submarine_client.programs import check_command
from themis.code_archive import pack_code
from themis.errors import InputError

EXAMPLES = sorted((Path(__file__).parents[3] / "conf" / "apps").glob("*.yaml"))


def load(tmp_path: Path, text: str):
    path = tmp_path / "g.yaml"
    path.write_text(text)
    return load_app(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_valid_and_named_as_its_file(path: Path) -> None:
    assert path.read_text().startswith("# ")
    app = load_app(path)
    assert app.name == path.stem
    assert app.replay == (app.program.name == "replay")


def test_the_four_examples_exist() -> None:
    names = {path.stem for path in EXAMPLES}
    assert names >= {"digits-cnn", "digits-dense-single", "replay-resnet50", "replay-search"}


@pytest.mark.parametrize(
    "uri",
    [
        "hdfs:///x",
        "hdfs://nn/x",
        "HDFS://nn:8020/x/y",
        "webhdfs://[::1]:50/x",
        "hdfs://[::1]/x",
        "hdfs://me@nn:65535/x/",
    ],
)
def test_a_checkpoint_uri_of_an_hdfs_is_taken(tmp_path: Path, uri: str) -> None:
    assert load(tmp_path, f"name: a\ncommand: sh\ncheckpoint_uri: '{uri}'\n").checkpoint_uri == uri


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("arguments: {model: resnet5}", "unknown model: 'resnet5'"),
        ("arguments: {slowdown: 'a,b'}", "--slowdown does not parse: 'a,b'"),
        ("arguments: {curve: nosuch}", "unknown family of loss curves: 'nosuch'"),
        ("arguments: {checkpoint_bytes: 9223372036854775808}", "a whole number of 64 bits at most is wanted"),
        ("estimate: {serial_iteration_s: 1e-320}", "estimate.serial_iteration_s: should be greater"),
        ("estimate: {serial_iteration_s: 1e+300}", "estimate.serial_iteration_s: should be less"),
    ],
)
def test_invalid_replay_arguments_are_refused_before_submission(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(tmp_path, f"name: a\nprogram: replay\njob: {{iterations: 5}}\n{line}\n")


@pytest.mark.parametrize("command", ["exit 0", "command ls", "~/bin/train", "# a note\npython3 train.py", "wait"])
def test_shell_syntax_and_builtins_are_accepted(command: str) -> None:
    check_command(command, "g.yaml")


def test_a_very_long_word_that_is_no_program_is_cut() -> None:
    with pytest.raises(InputError, match=r"is not a command on PATH, nor a file: 'a{199}\.\. \(5002 "):
        check_command("a" * 5_000, "g.yaml")


def test_values_become_the_programs_types(tmp_path: Path) -> None:
    app = load(
        tmp_path,
        "name: a\nprogram: digits_dense\njob: {iterations: 5}\narguments: {batch_size: 32.0}\n"
        "hyper_parameters: [{learning_rate: 1, hidden: 16.0}]\n",
    )
    assert repr(dict(app.program.arguments)) == "{'batch_size': 32}"
    assert repr(dict(app.jobs[0].hyper_parameters)) == "{'learning_rate': 1.0, 'hidden': 16}"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://bucket/x", "unknown scheme in a checkpoint URI: 's3://bucket/x'; known: a plain path, file:///path, "),
        ("file://elsewhere/x", "a file URI must name a local absolute path: 'file://elsewhere/x'; write file:///path"),
        ('"a\\0b"', "a checkpoint URI with a NUL: "),
        ("hdfs://", "not an HDFS URI that names a folder: 'hdfs://'; known: "),
        ("hdfs://host:9000/", "not an HDFS URI that names a folder: "),
        ("hdfs://host:99999/x", "not an HDFS URI that names a folder: "),
        ("webhdfs://host:port/x", "not an HDFS URI that names a folder: "),
        ("webhdfs:///x", "not an HDFS URI that names a folder: "),
        ("hdfs://h/../x", "not an HDFS URI that names a folder: "),
        ("'hdfs://h/#LATEST'", "not an HDFS URI that names a folder: "),
        ("'hdfs://h:\uff18\uff10/x'", "not an HDFS URI that names a folder: "),
        ("'hdfs://[::1/x'", "not an HDFS URI that names a folder: "),
        ("'hdfs://h /x'", "not an HDFS URI that names a folder: "),
        ("'hdfs://:8020/x'", "not an HDFS URI that names a folder: "),
        ("hdfs://h:65536/x", "not an HDFS URI that names a folder: "),
        ("file:///a%00b", "a checkpoint URI with a NUL: "),
    ],
)
def test_a_checkpoint_uri_that_the_resource_manager_would_refuse_is_refused(
    tmp_path: Path, uri: str, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, f"name: a\ncommand: sh\ncheckpoint_uri: {uri}\n")
    assert str(caught.value).startswith(f"{tmp_path}/g.yaml: {expected}")


@pytest.mark.parametrize(
    ("uri", "meant"),
    [("", ""), ("/a", "/a"), ("a/b", "{}/a/b"), ("HDFS://h/a", "HDFS://h/a"), ("file:///a", "file:///a")],
)
def test_a_relative_checkpoint_folder_is_meant_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, meant: str
) -> None:
    monkeypatch.chdir(tmp_path)
    app = load(tmp_path, f"name: a\ncommand: sh\ncheckpoint_uri: '{uri}'\n")
    assert app.checkpoint_uri == meant.format(tmp_path)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("program: digits_cn", "did you mean 'digits_cnn'"),
        ("program: digits_cnn\narguments: {batch: 1}", "batch"),
        ("program: digits_cnn\narguments: {batch_size: many}", "takes a whole number"),
        ("program: digits_cnn\nhyper_parameters: [{learning_rat: 1}]", "did you mean '--learning_rate'"),
        ("program: digits_cnn\nhyper_parameters: [{dropout: 2}]", "out of range"),
        ("program: digits_cnn\nhyper_parameters: [{optimizer: adm}]", "did you mean 'adam'"),
        ("program: digits_cnn\nhyper_parameters: [{batch_size: 1}]", "does not let a search vary"),
        ("program: replay\narguments: {model: resnet5}", "did you mean 'resnet50'"),
        ("command: nosuchprogram --x", "not a command on PATH"),
    ],
)
def test_unknown_arguments_of_a_program_are_refused(tmp_path: Path, rest: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, f"name: a\njob: {{iterations: 5}}\n{rest}\n")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{ordered_parts: 7}", "--ordered_parts is out of range: 7; use 8 (tasks) to 64 (batch_size)"),
        ("{ordered_parts: 65}", "--ordered_parts is out of range: 65"),
        ("{ordered_parts: 17, batch_size: 16}", "use 8 (tasks) to 16 (batch_size)"),
        ("{batch_size: 7}", "--batch_size is below the number of tasks: 7"),
    ],
)
def test_a_batch_that_cannot_be_dealt_to_the_most_tasks_is_refused(
    tmp_path: Path, arguments: str, message: str
) -> None:
    rest = "job: {iterations: 5, min_tasks: 1, tasks: 8}"
    with pytest.raises(InputError) as caught:
        load(tmp_path, f"name: a\nprogram: digits_dense\n{rest}\narguments: {arguments}\n")
    assert message in str(caught.value)
    assert "g.yaml: " in str(caught.value)


def test_a_batch_that_can_be_dealt_just_so_passes(tmp_path: Path) -> None:
    arguments = "arguments: {ordered_parts: 8, batch_size: 8}"
    app = load(tmp_path, f"name: a\nprogram: digits_dense\njob: {{iterations: 5, tasks: 8}}\n{arguments}\n")
    assert dict(app.program.arguments) == {"ordered_parts": 8, "batch_size": 8}


def test_replays_accept_a_batch_smaller_than_their_tasks(tmp_path: Path) -> None:
    app = load(tmp_path, "name: a\nprogram: replay\njob: {iterations: 5, tasks: 8}\narguments: {batch_size: 1}\n")
    assert app.replay


@pytest.mark.parametrize(
    "command",
    [
        *("sh -c x", "cd / && sh x", "A=1 B=2 sh x", "/bin/sh", "$HOME/x", "(sh x)", "exec sh", "%program% x"),
        "n=$(cat n 2>/dev/null || echo 0); sh x $n",
        "n=`cat n 2>/dev/null`; sh x $n",
        "D=${DATA:-my data dir} sh x",
        "sh x  # don't stop",
        "# it's a note\nsh x",
        "cat > note <<END\nit's a note\nEND\nsh x",
    ],
)
def test_commands_that_a_shell_could_run_pass(command: str) -> None:
    check_command(command, "g")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("A=1", "is empty"),
        ("sh 'x", "not a shell command"),
        ("A=$HOME no-such-program", "nor a file"),
        ("/no/such/file", "nor a file"),
        ("{file}", "is not executable"),
    ],
)
def test_commands_that_cannot_run_are_refused(tmp_path: Path, command: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as caught:
        check_command(command.replace("{file}", str(tmp_path / "file")), "g")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("./run.sh --x 1", ""),
        ("bin/../run.sh", ""),
        ("sh notes.txt", ""),
        ("./notes.txt", "is not executable: './notes.txt'; chmod +x makes it so"),
        ("./own.sh", "is not a command on PATH, nor a file: './own.sh'"),
        ("nosuchprogram", "is not a command on PATH, nor a file"),
    ],
)
def test_a_command_may_begin_with_a_program_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, wrong: str
) -> None:
    for name, mode in (("training/run.sh", 0o755), ("training/notes.txt", 0o644), ("own.sh", 0o755)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    # A program of this folder does not travel.
    monkeypatch.chdir(tmp_path)
    code = pack_code({".": tmp_path / "training"}, "g.yaml")
    if wrong:
        with pytest.raises(InputError) as refused:
            check_command(command, "g.yaml", code)
        assert wrong in str(refused.value)
    else:
        check_command(command, "g.yaml", code)


def test_a_program_beside_another_interpreter_need_not_be_on_this_machine() -> None:
    check_command("accelerate launch train.py", "g.yaml", own_path=True)
    with pytest.raises(InputError, match="nor a file"):
        check_command("/no/such/program", "g.yaml", own_path=True)
