"""Command lines: catalogue programs by flags, shell commands by placeholders."""

import shlex
import subprocess
import sys

import pytest

from am.jobs.command import RESERVED, RunValues, job_command
from themis.apps import JobSpec, ProgramSpec
from themis.errors import InputError

RUN = RunValues(iterations=50, checkpoint_every=20, keep_checkpoints=2, seed=7)


def job(**hyper_parameters):
    return JobSpec(job_id="j0", iterations_total=100, hyper_parameters=hyper_parameters)


def test_catalogue_programs_get_flags():
    program = ProgramSpec(name="digits_cnn", arguments={"log_every": 5, "filters": 8})
    command = job_command(program, job(filters=16, learning_rate=1e-05, optimizer="adam", shuffle=True), RUN)
    assert command == (
        sys.executable,
        *("-P", "-m", "tf_jobs.digits_cnn"),
        *("--iterations=50", "--checkpoint_every=20", "--keep_checkpoints=2", "--seed=7"),
        *("--filters=16", "--learning_rate=1e-05", "--log_every=5", "--optimizer=adam", "--shuffle=true"),
    )


def test_order_of_the_mapping_does_not_matter():
    program = ProgramSpec(name="replay")
    assert job_command(program, job(a=1, b=2), RUN) == job_command(program, job(b=2, a=1), RUN)


def test_another_interpreter():
    assert job_command(ProgramSpec(name="replay"), job(), RUN, python="python3")[0] == "python3"


@pytest.mark.parametrize("name", ["os.path", "../evil", "Replay", "a-b"])
def test_unusable_program_names(name):
    with pytest.raises(InputError):
        job_command(ProgramSpec(name=name), job(), RUN)


@pytest.mark.parametrize("name", [*RESERVED, "a b", "--x", "9"])
def test_unusable_parameter_names(name):
    with pytest.raises(InputError):
        job_command(ProgramSpec(name="replay"), job(**{name: 1}), RUN)
    with pytest.raises(InputError):
        job_command(ProgramSpec(name="replay", arguments={name: 1}), job(), RUN)


def test_shell_commands_are_filled_in():
    program = ProgramSpec(command="train --lr %lr% --name %name% -n %iterations% --seed=%seed%", arguments={"lr": 0.5})
    run = RunValues(iterations=50, checkpoint_every=20)
    assert job_command(program, job(name="it's; rm x"), run) == (
        "train --lr 0.5 --name 'it'\"'\"'s; rm x' -n 50 --seed=0"
    )


def test_values_reach_the_shell_unharmed():
    value = "a b'\"$HOME`id`\\%x%"
    command = job_command(ProgramSpec(command="printf %s %value%"), job(value=value), RUN)
    assert shlex.split(command)[-1] == value
    command = job_command(ProgramSpec(command="cat <<E\nE\necho %value%"), job(value="a  b"), RUN)
    assert subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout == "a  b\n"


def test_other_percent_signs_are_kept():
    command = "date +%Y%m%d; echo ${f%%.*} 100%"
    assert job_command(ProgramSpec(command=command), job(), RUN) == command


@pytest.mark.parametrize(
    ("command", "run"),
    [
        ("date +%%Y%%m%%d_%%H > %lr%", "date +%Y%m%d_%H > 0.5"),
        ("echo %%lr%", "echo %lr%"),
        ("echo %lr%%%lr%", "echo 0.5%lr%"),
        ("printf '%d%%\\n' 3", "printf '%d%%\\n' 3"),
        ("echo ${lr%%lr*} ${a[1]%%b} ${1%%x}", "echo ${lr%%lr*} ${a[1]%%b} ${1%%x}"),
        ("echo ${x:-%lr%}", "echo ${x:-0.5}"),
    ],
)
def test_two_percent_signs_before_a_letter_are_one(command, run):
    assert job_command(ProgramSpec(command=command), job(lr=0.5), RUN) == run


def test_more_names_for_placeholders():
    run = RunValues(iterations=1, checkpoint_every=1, paths={"checkpoint_path": "/a b"})
    assert job_command(ProgramSpec(command="run %checkpoint_path%"), job(), run) == "run '/a b'"


def test_the_catalogue_parses_our_arguments():
    from tf_jobs.catalog import program
    from tf_jobs.flags import parse

    for name in ("replay", "digits_cnn"):
        command = job_command(ProgramSpec(name=name), job(learning_rate=0.25), RUN)
        values = parse(program(name), command[4:])
        assert (values.whole("iterations"), values.number("learning_rate")) == (50, 0.25)


def test_the_folder_of_an_interpreter_comes_first_in_path(tmp_path):
    python = tmp_path / "it's bin" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho mine $*\n")
    python.chmod(0o755)
    command = job_command(ProgramSpec(command="python3 train.py", python=str(python)), job(), RUN)
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert ended.stdout == "mine train.py\n"


def test_a_machine_without_the_interpreter_ends_the_task_as_for_wrong_usage():
    command = job_command(ProgramSpec(command="echo started", python="/no/such/python3"), job(), RUN)
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "themis: no interpreter here: /no/such/python3\n"
