"""`job run`: Submarine's flags, rules and job YAML, up to the app that is submitted."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from submarine_client.job_app import build_job_app, notes, tensorboard_note
from submarine_client.job_commands import read_options
from submarine_client.job_flags import FLAGS, parse_flags, wants_help
from submarine_client.job_help import help_text
from themis.apps import AppSpec, JobShape
from themis.errors import InputError

# From Submarine's documentation, with nothing changed but the placeholders of the documentation itself.
DOCUMENTED = """
    --env DOCKER_JAVA_HOME=/usr/lib/jvm/java-8-openjdk-amd64/jre/ --env DOCKER_HADOOP_HDFS_HOME=/hadoop-3.1.0
    --name tf-job-001 --docker_image IMAGE --input_path hdfs://default/dataset/cifar-10-data
    --checkpoint_path hdfs://default/tmp/cifar-10-jobdir --worker_resources memory=4G,vcores=2,gpu=2
    --worker_launch_cmd "python ..." --tensorboard
"""
DOCUMENTED_WITH_SERVERS = """
    --name tf-job-001 --docker_image IMAGE --input_path ... --checkpoint_path ... --num_workers 2
    --worker_resources memory=8G,vcores=2,gpu=1 --worker_launch_cmd "..." --num_ps 2
    --ps_resources memory=4G,vcores=2,gpu=0 --ps_launch_cmd "..."
"""
BASE = "--name j --input_path /data --worker_resources memory=1G,vcores=1,gpu=1 --worker_launch_cmd sh"


@pytest.fixture(autouse=True)
def _python_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    monkeypatch.setenv("HOME", "/home/alice")


def build(text: str) -> AppSpec:
    words = shlex.split(text)
    return build_job_app(read_options(words), words)


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        build(text)
    return str(caught.value)


def test_the_documented_command_line_becomes_a_rigid_gang_of_one_job() -> None:
    app = build(DOCUMENTED)
    assert (app.name, app.tuner.name, app.queue, len(app.jobs)) == ("tf-job-001", "single", "default", 1)
    assert app.jobs[0].shape == JobShape(tasks=1, min_tasks=1, gpus_per_task=2)
    assert app.jobs[0].iterations_total == 1
    assert (app.resources.memory_mb, app.resources.vcores) == (4096, 2)
    assert app.program.command == "python ..."
    environment = app.program.environment
    assert environment["DOCKER_JAVA_HOME"] == "/usr/lib/jvm/java-8-openjdk-amd64/jre/"
    assert environment["DOCKER_HADOOP_HDFS_HOME"] == "/hadoop-3.1.0"
    assert environment["SUBMARINE_SAVED_MODEL_PATH"] == "hdfs://default/tmp/cifar-10-jobdir"
    assert shlex.split(environment["SUBMARINE_RUN_PARAMETERS"]) == shlex.split(DOCUMENTED)


def test_ignored_flags_of_the_documented_command_are_noted() -> None:
    said = notes(parse_flags(shlex.split(DOCUMENTED)))
    assert [note.split()[0] for note in said] == ["--docker_image"]


def test_the_documented_command_line_is_refused_only_for_its_servers() -> None:
    assert parse_flags(shlex.split(DOCUMENTED_WITH_SERVERS))["num_ps"] == ("2",)
    assert "parameter servers are not supported" in refusal(DOCUMENTED_WITH_SERVERS)


def test_one_dash_two_dashes_and_equals_signs_are_the_same() -> None:
    assert parse_flags(["-name", "a", "--queue=b=c", "-verbose"]) == {
        "name": ("a",),
        "queue": ("b=c",),
        "verbose": ("true",),
    }


@pytest.mark.parametrize(
    ("words", "value"),
    [("--tensorboard", "true"), ("--tensorboard true", "true"), ("--tensorboard false", "false")],
)
def test_tensorboard_takes_true_false_or_nothing(words: str, value: str) -> None:
    given = parse_flags([*words.split(), "--name", "a"])
    assert given["tensorboard"] == (value,) and given["name"] == ("a",)


def test_tensorboard_names_the_command_for_the_checkpoint_path() -> None:
    words = shlex.split(f"{BASE} --checkpoint_path '/my jobs/ck' --tensorboard")
    options = read_options(words)
    assert tensorboard_note(options, build_job_app(options, words)).endswith("run tensorboard --logdir '/my jobs/ck'")
    assert notes(options) == ()


def test_tensorboard_says_where_a_relative_checkpoint_path_begins() -> None:
    words = shlex.split(f"{BASE} --checkpoint_path ck --tensorboard")
    options = read_options(words)
    note = tensorboard_note(options, build_job_app(options, words))
    assert "--logdir ck in jobs/job-00 below the folder" in note


@pytest.mark.parametrize("flag", ["", "--tensorboard false", "--tensorboard=False"])
def test_without_tensorboard_no_command_is_named(flag: str) -> None:
    words = shlex.split(f"{BASE} {flag}")
    options = read_options(words)
    assert tensorboard_note(options, build_job_app(options, words)) == ""


def test_help_is_asked_for_by_nothing_at_all_too() -> None:
    assert all(wants_help(words) for words in ([], ["-h"], ["--help"], ["--name", "a", "-help"]))
    assert not wants_help(["--name", "a"])


def test_the_help_names_every_flag() -> None:
    text = help_text()
    assert all(f"-{flag.name}" in text for flag in FLAGS)
    assert "themis.iterations" in text


def test_placeholders_are_filled_in() -> None:
    app = build(
        "--name j --input_path '/my data' --saved_model_path /m --worker_resources gpu=1,memory=1G "
        "--worker_launch_cmd 'python t.py --in %input_path% --ck %checkpoint_path% --out %saved_model_path% +%H%M'"
    )
    default = "/home/alice/submarine/jobs/j/staging/checkpoint_path"
    assert app.program.command == f"python t.py --in '/my data' --ck {default} --out /m +%H%M"


def test_workers_queue_and_settings_reach_the_app() -> None:
    app = build(f"{BASE} --num_workers 3 --queue q --conf themis.iterations=100 --conf themis.max_task_restarts=0")
    assert app.jobs[0].shape == JobShape(tasks=3, min_tasks=3, gpus_per_task=1)
    assert (app.queue, app.jobs[0].iterations_total, app.max_task_restarts) == ("q", 100, 0)


def test_a_setting_of_hadoop_is_noted_and_not_refused() -> None:
    text = f"{BASE} --conf yarn.x=1"
    build(text)
    assert notes(read_options(shlex.split(text))) == ("--conf yarn.x is ignored: it is no setting of Themis",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--nam j", "did you mean '--name'"),
        ("-workers 3", "unknown flag"),
        ("name", "unexpected word"),
        ("--name", "--name has no value"),
        ("--name --queue q", "--name has no value"),
        ("--name a --name b", "--name is given twice"),
        ("--verbose=yes", "--verbose takes no value"),
        ("--tensorboard=maybe", "--tensorboard is true or false"),
        ("--queue q", "--name is missing"),
        ("--name Tf_Job --input_path /d --worker_resources gpu=1 --worker_launch_cmd sh", "'Tf_Job'"),
        (BASE.replace("--input_path /data", ""), "--input_path is missing"),
        (BASE.replace("--worker_resources memory=1G,vcores=1,gpu=1", ""), "--worker_resources is missing"),
        (BASE.replace("--worker_launch_cmd sh", ""), "--worker_launch_cmd is missing"),
        (BASE.replace(",gpu=1", ""), "a worker needs a GPU"),
        (BASE.replace("gpu=1", "gpu=0"), "a worker needs a GPU"),
        (BASE.replace("memory=1G", "memory=0"), "a worker needs memory"),
        (BASE.replace("memory=1G", "memory=2048"), "memory=2048M for 2048 MB"),
        (BASE.replace("sh", "nosuchprogram"), "not a command on PATH"),
        (BASE.replace("sh", "'sh %input_pth%'"), "did you mean 'input_path'"),
        (f"{BASE} --num_workers 0", "TensorBoard only"),
        (f"{BASE} --num_workers two", "--num_workers must be a whole number"),
        (f"{BASE} --num_ps 1 --ps_resources gpu=0", "need more than one worker"),
        (f"{BASE} --num_workers 2 --num_ps 1", "--ps_resources is missing"),
        (f"{BASE} --tensorboard_resources memory=4", "memory has no unit"),
        (f"{BASE} --env NOVALUE", "--env is not K=V"),
        (f"{BASE} --env SUBMARINE_INPUT_PATH=/x", "sets itself"),
        (f"{BASE} --queue 'a\nb'", "--queue is not text that can be shown: 'a\\nb'; write"),
        (f"{BASE} --queue '\x1b[2J'", "--queue is not text that can be shown: '\\x1b[2J'; write"),
        (f"{BASE} --queue ''", "--queue is not text that can be shown: ''"),
        (f"{BASE} --conf themis.iteration=1", "did you mean 'themis.iterations'"),
        (f"{BASE} --conf themis.iterations=0", "whole number of 1 or more"),
        (f"{BASE} --conf x", "--conf is not K=V"),
        (f"{BASE} --keytab k", "go together"),
        (f"{BASE} --principal p", "go together"),
        (f"{BASE} --distribute_keytab", "needs --keytab"),
        (f"{BASE} --keytab k --principal p", "--keytab is not supported"),
        (f"{BASE} --localization x", "--localization is not"),
        (f"{BASE} --localization hdfs:///f:./f:rw", "--localization takes files of this machine only"),
        (f"{BASE} --quicklink x", "--quicklink is not"),
        (f"{BASE} --framework tensorflw", "did you mean 'tensorflow'"),
        (f"{BASE} --framework mxnet", "--framework is not supported: 'mxnet'; leave --framework out"),
    ],
)
def test_typos_and_unsupported_flags_are_refused(text: str, message: str) -> None:
    assert message in refusal(text)


@pytest.mark.parametrize(
    ("flags", "framework"), [("", ""), ("--framework PyTorch", "pytorch"), ("--framework standalone", "none")]
)
def test_framework_says_how_tasks_find_each_other(flags: str, framework: str) -> None:
    assert build(f"{BASE} {flags}").program.framework == framework


def test_a_login_name_that_cannot_be_shown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "al\nice")
    assert "job run: user is not text that can be shown: 'al\\nice'" in refusal(BASE)


YAML = """
spec: {name: tf-job, job_type: tensorflow, framework: tensorflow}
configs:
  input_path: /data
  checkpoint_path: /ck
  docker_image: IMAGE
  wait_job_finish: true
  envs: {A: shared, B: "1"}
  quicklinks: [Board=http://worker-0:6006]
scheduling: {queue: research}
roles:
  worker: {resources: "memory=2G,vcores=2,gpu=1", replicas: 2, launch_cmd: sh train, envs: {A: own}}
tensorBoard: {resources: "memory=4G,vcores=1"}
"""


def test_a_job_yaml_gives_the_same_options_as_flags(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(YAML)
    options = read_options(["-f", str(path), "--saved_model_path", "/m"])
    app = build_job_app(options, ())
    assert (app.name, app.queue, app.program.command) == ("tf-job", "research", "sh train")
    assert app.jobs[0].shape == JobShape(tasks=2, min_tasks=2)
    assert (app.program.environment["A"], app.program.environment["B"]) == ("own", "1")
    assert app.program.environment["SUBMARINE_SAVED_MODEL_PATH"] == "/m"
    assert "wait_job_finish" in options


@pytest.mark.parametrize(
    ("yaml", "flags", "message"),
    [
        (YAML, "--name other", "--name is given on the command line and in"),
        (YAML, "--env C=1", "--env is given on the command line and in"),
        ("specs: {name: a}", "", "did you mean 'spec'"),
        ("spec: {nme: a}", "", "did you mean 'name'"),
        ("roles: {worker: {replica: 1}}", "", "did you mean 'replicas'"),
        ("roles: {worker: {replicas: many}}", "", "roles.worker.replicas"),
        ("configs: {mounts: ['/a:/b']}", "", "mounts are not supported"),
        ("configs: {envs: {A=B: c}}", "", "the name of an environment variable"),
        ("roles: {ps: {envs: {A: b}}}", "", "roles.ps cannot be honoured"),
        ("security: {keytab: k}", "", "--name is missing"),
    ],
)
def test_a_job_yaml_that_does_not_fit_is_refused(tmp_path: Path, yaml: str, flags: str, message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml)
    assert message in refusal(f"-f {path} {flags}")
