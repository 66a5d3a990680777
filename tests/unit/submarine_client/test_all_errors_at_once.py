"""A group file, or a command line, is refused with every error that does not follow from another one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from submarine_client.groups import load_app
from submarine_client.job_app import build_job_app
from submarine_client.job_commands import read_options
from themis.errors import InputError


def group_errors(folder: Path, text: str) -> list[str]:
    file = folder / "g.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load_app(file)
    return str(caught.value).replace(str(file), "g").splitlines()


def flag_errors(line: str) -> list[str]:
    words = shlex.split(line)
    with pytest.raises(InputError) as caught:
        build_job_app(read_options(words), words)
    return str(caught.value).splitlines()


def assert_begin(lines: list[str], beginnings: list[str]) -> None:
    assert [line[: len(wanted)] for line, wanted in zip(lines, beginnings, strict=False)] == beginnings
    assert len(lines) == len(beginnings)


def test_errors_of_every_stage_are_reported_together(tmp_path: Path) -> None:
    text = """
name: Digits
program: digits_cn
queue: =1
environment: {LANG: no, TEXT: [1]}
tuner: {name: successive_halving, etta: 2}
job: {tasks: many, iterations: 10}
seed: 1
seed: 2
metric: {name: loss, regex: '('}
checkpoint_uri: ftp://host/folder
colour: red
"""
    beginnings = [
        "g is not valid YAML, line 9: \"key 'seed' is given twice\"",
        "g, line 5: a word that YAML reads as false: 'no'",
        "g: unknown key colour",
        "g: environment.TEXT: the value of an environment variable is text",
        "g: job.tasks: should be a whole number: 'many'",
        "g: a name is up to 63 of a-z",
        "g: queue does not begin with",
        "unknown setting of tuner successive_halving in g: 'etta'",
        "g: metric.regex is malformed",
        "unknown program: 'digits_cn'",
        "g: unknown scheme in a checkpoint URI: 'ftp://host/folder'",
    ]
    assert_begin(group_errors(tmp_path, text), beginnings)


def test_errors_of_a_command_are_reported_with_those_of_its_limits_and_its_files(tmp_path: Path) -> None:
    text = f"""
name: a
command: ./train {"x" * 100_001}
code: missing
tuner: {{name: hyperband, eta: 1, max_resource: 0}}
search_space: {{lr: {{uniform: [1, 0]}}}}
"""
    beginnings = [
        "g: search_space.lr: the first end of a range must be below the second",
        "g: the command never uses a parameter: 'lr'",
        "g: tuner.eta must be",
        "g: tuner.max_resource must be",
        "g: code: there is no such file or folder",
    ]
    assert_begin(group_errors(tmp_path, text), beginnings)


BAD_RANGE = "lr: {log_uniform: [1, 0.1]}"
BAD_RANGE_ERROR = "g: search_space.lr: the first end of a range must be below the second"


@pytest.mark.parametrize(
    ("text", "beginnings"),
    [
        # The names of hyper-parameters, also of the one that cannot be read, and the values of the others.
        (
            "program: digits_cnn\njob: {iterations: 9}\njobs: 1\n"
            f"search_space: {{{BAD_RANGE}, dropout: {{grid: [7]}}}}\n",
            ["--dropout is out of range", "unknown flag of digits_cnn: '--lr'"],
        ),
        # The only range: placeholders are known by name.
        (
            f"command: env %lr% %mom%\nsearch_space: {{{BAD_RANGE}}}\n",
            ["unknown placeholder in the command of g: 'mom'"],
        ),
        # How many jobs there are.
        (
            f"command: env %lr% %m%\njobs: 4\nsearch_space: {{{BAD_RANGE}, m: {{grid: [1, 2, 3]}}}}\n",
            ["g: 4 jobs cannot sample the 3 points"],
        ),
        (
            "command: env %lr%\njobs: 3\ntuner: {name: successive_halving, phases: 4x1}\n"
            f"search_space: {{{BAD_RANGE}}}\n",
            ["g: tuner.phases"],
        ),
        (
            f"command: env %lr%\nhyper_parameters: [{{lr: 1}}]\nsearch_space: {{{BAD_RANGE}}}\n",
            ["g: give hyper_parameters or a search_space, not both"],
        ),
        # Without `jobs` the range could have been a grid, which says how many there are.
        (f"command: env %lr% %m%\nsearch_space: {{{BAD_RANGE}, m: {{uniform: [0, 1]}}}}\n", []),
    ],
)
def test_a_bad_range_hides_no_error_that_does_not_follow_from_it(
    text: str, beginnings: list[str], tmp_path: Path
) -> None:
    assert_begin(group_errors(tmp_path, f"name: a\n{text}"), [BAD_RANGE_ERROR, *beginnings])


def test_values_are_checked_where_the_number_of_jobs_is_unknown(tmp_path: Path) -> None:
    text = "name: a\nprogram: digits_cnn\njob: {iterations: 9}\njobs: many\n"
    beginnings = ["g: jobs: should be a whole number", "--dropout is out of range"]
    assert_begin(group_errors(tmp_path, f"{text}search_space: {{dropout: {{uniform: [4, 7]}}}}\n"), beginnings)
    beginnings = ["g: jobs is 5, but the file describes 1", "--dropout is out of range"]
    text = text.replace("many", "5")
    assert_begin(group_errors(tmp_path, f"{text}hyper_parameters: [{{dropout: 7}}]\n"), beginnings)


@pytest.mark.parametrize(
    ("text", "beginnings"),
    [
        # A misspelt key leaves neither its own key missing nor its parameters unknown.
        ("name: a\nprogram: digits_cnn\njob: {iteration: 10}\n", ["g: unknown key job.iteration"]),
        ("name: a\ncommand: env %lr%\nhyper_paramters: [{lr: 1}]\n", ["g: unknown key hyper_paramters"]),
        # Without the sets it is unknown which placeholders have values, and what the tuner has to compare.
        (
            "name: a\ncommand: env %lr%\nhyper_parameters: 3\ntuner: {name: successive_halving, phases: 4x1}\n",
            ["g: hyper_parameters: should be a list"],
        ),
        ("name: a\ncommand: env\nprogram: digits_cnn\n", ["g: give exactly one of program and command"]),
        # The settings of a tuner are checked together.
        (
            "name: a\ncommand: env\ntuner: {name: successive_halving, phases: [1]}\njob: {tasks: 1}\n",
            ["g: tuner.phases"],
        ),
        ("name: a\nprogram: [digits_cnn]\n", ["g: program: should be text"]),
        ("name: [a]\njob: [1]\nprogram: digits_cnn\n", ["g: name: should be text", "g: job: should be keys and"]),
        ("command: env\n", ["g: name is missing"]),
        ("machines: []\ndevices: {}\n", ["g looks like a cluster file"]),
    ],
)
def test_what_follows_from_an_error_is_not_reported(text: str, beginnings: list[str], tmp_path: Path) -> None:
    assert_begin(group_errors(tmp_path, text), beginnings)


def test_hyper_parameters_of_a_job_are_all_checked(tmp_path: Path) -> None:
    text = "name: a\nprogram: digits_cnn\narguments: {batch_size: x, log_evry: 1}\nhyper_parameters: [{dropout: 7}]\n"
    beginnings = ["g: job.iterations is missing", "--batch_size takes a whole", "unknown flag", "--dropout is out of"]
    assert_begin(group_errors(tmp_path, text), beginnings)


def test_flags_that_are_none_are_reported_together() -> None:
    line = "--nme a b --queu=q --verbose=1 --name --queue q --queue r stray"
    beginnings = [
        "unknown flag of job run: '--nme'",
        "unknown flag of job run: '--queu'",
        "--verbose takes no value",
        "--name has no value",
        "--queue is given twice",
        "unexpected word: 'stray'",
    ]
    assert_begin(flag_errors(line), beginnings)


def test_options_of_a_job_are_all_checked() -> None:
    line = (
        "--name A --num_workers x --worker_resources gpu=0 --worker_launch_cmd nonesuch --env A"
        " --conf themis.iterations=0 --conf themis.none=1 --framework mxnet --files hdfs://h/f --queue =1"
    )
    beginnings = [
        "--input_path is missing",
        "--num_workers must be a whole number",
        "--files takes files of this machine only",
        "--framework is not supported",
        "job run: a name is up to",
        "job run: --queue does not begin",
        "a worker needs a GPU",
        "--conf themis.iterations must be",
        "unknown setting in --conf",
        "--env is not K=V",
    ]
    assert_begin(flag_errors(line), beginnings)


def test_a_list_or_mapping_is_shown_with_the_words_that_yaml_would_change(tmp_path: Path) -> None:
    lines = group_errors(tmp_path, "name: a\ncommand: ls\nhyper_parameters: {lang: [no, a]}\n")
    assert lines[1:] == ["g: hyper_parameters: should be a list: {'lang': ['no', 'a']}"]


@pytest.mark.parametrize("name", ["", "name: [a]\n"])
def test_errors_of_drawn_sets_are_reported_beside_a_name_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    text = f"{name}program: digits_cnn\njob: {{iterations: 10}}\nsearch_space: {{rate: {{grid: [1]}}}}\njobs: 2\n"
    lines = group_errors(tmp_path, text.replace("jobs: 2", "tuner: {name: successive_halving, phases: 4x1}"))
    assert_begin(lines, ["g: name", "g: tuner.phases does not begin with all", "unknown flag of digits_cnn: '--rate'"])
    beginnings = ["g: name", "g: the grids have 1 points, not 2", "unknown flag of digits_cnn: '--rate'"]
    assert_begin(group_errors(tmp_path, text), beginnings)


def test_errors_of_other_hyper_parameters_are_reported_beside_one_that_cannot_be_read(tmp_path: Path) -> None:
    text = """
name: a
program: digits_cnn
job: {iterations: 10}
arguments: {batch_size: [8], log_evry: 1}
environment: {A: [1], THEMIS_X=: 1, B: 2}
hyper_parameters: [{dropout: [1], rate: 1}, 3, {dropout: 7}]
jobs: 2
"""
    beginnings = [
        "g: arguments.batch_size: a number, text, true or false",
        "g: environment.A: the value of an environment variable is text",
        "g: environment: the name of an environment variable is not empty",
        "g: hyper_parameters[0].dropout: a number, text, true or false",
        "g: hyper_parameters[1]: should be keys and values",
        "g: jobs is 2, but the file describes 3",
    ]
    lines = group_errors(tmp_path, text)
    assert_begin(lines[: len(beginnings)], beginnings)
    without = group_errors(tmp_path, text.replace("jobs: 2\n", ""))
    assert [line[:14] for line in without[5:]] == ["unknown flag o", "unknown flag o", "--dropout is o"]


@pytest.mark.parametrize(
    "search",
    [
        "hyper_parameters: [{lr: [1], size: 2}, {lr: 1, size: 2}, 3]",
        "search_space: {lr: {uniform: [2, 1]}, size: {grid: [1]}}",
    ],
)
def test_names_of_hyper_parameters_that_cannot_be_read_are_known_to_the_command(search: str, tmp_path: Path) -> None:
    text = f"name: a\ncommand: env %lr% %epochs% %nonesuch%\narguments: {{epochs: [1], unused: 2}}\n{search}\n"
    lines = group_errors(tmp_path, text)
    assert [line for line in lines if "nonesuch" in line]
    unused = group_errors(tmp_path, text.replace(" %nonesuch%", ""))
    assert {line.partition("; ")[0] for line in unused if "never uses" in line} == {
        "g: the command never uses a parameter: 'unused'",
        "g: the command never uses a parameter: 'size'",
    }
    assert not [line for line in unused if "has no" in line]


def test_errors_of_every_job_are_reported_once(tmp_path: Path) -> None:
    sets = "[{dropout: 7, seed: 1}, {lr: x, seed: 2}, {dropout: 7, seed: 3}]"
    text = f"name: a\nprogram: digits_cnn\njob: {{iterations: 5}}\nhyper_parameters: {sets}\n"
    beginnings = [
        "g: no argument or hyper-parameter can be called: 'seed'",
        "--dropout is out of",
        "g: digits_cnn does not let a search vary: 'seed'",
        "unknown flag",
    ]
    assert_begin(group_errors(tmp_path, text), beginnings)


def test_sets_written_beside_a_search_space_are_one_error(tmp_path: Path) -> None:
    text = "name: a\ncommand: env %lr%\nsearch_space: {lr: {grid: [1]}}\nhyper_parameters: [{rate: 1}]\n"
    assert_begin(group_errors(tmp_path, text), ["g: give hyper_parameters or a search_space, not both"])
