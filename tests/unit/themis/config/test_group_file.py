"""Group files: every key, every refusal, the same bytes for the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from themis.apps import AppSpec, JobShape, Slowdown, TunerSpec
from themis.code_archive import files_in
from themis.config.group_file import GroupFile, build_app, load_group
from themis.config.loader import fit, parse_yaml
from themis.errors import InputError, UnknownNameError

MINIMAL = "name: a\nprogram: digits_cnn\njob: {iterations: 10}\n"
COMMAND = 'name: a\ncommand: "python train.py --lr %learning_rate%"\n'


def build(text: str) -> AppSpec:
    return build_app(fit(GroupFile, parse_yaml(text, "g.yaml"), "g.yaml"), "g.yaml")


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        build(text)
    return str(caught.value)


def test_a_minimal_group_is_one_job_with_the_documented_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "alice")
    app = build(MINIMAL)
    assert (app.user, app.queue, app.tuner) == ("alice", "default", TunerSpec(name="single"))
    assert [job.job_id for job in app.jobs] == ["job-00"]
    assert app.jobs[0].shape == JobShape(tasks=1, min_tasks=1, gpus_per_task=1)
    assert (app.resources.memory_mb, app.resources.vcores) == (1024, 1)
    assert (app.checkpoint_every, app.keep_checkpoints, app.max_task_restarts, app.seed) == (50, 3, 3, 0)
    assert app.checkpoint_uri == "" and not app.replay


def test_every_key_reaches_the_app() -> None:
    app = build(
        """
name: digits-search
user: alice
queue: research
program: digits_cnn
arguments: {batch_size: 64}
environment: {KEY: value, NUMBER: 3}
framework: pytorch
tuner: {name: successive_halving, eta: 3, first_iterations: 40}
job: {tasks: 4, min_tasks: 2, gpus_per_task: 2, iterations: 400}
hyper_parameters: [{learning_rate: 0.1}, {learning_rate: 1e-3}]
jobs: 2
seed: 5
resources: {memory_mb: 2048, vcores: 2}
checkpoint_every: 20
checkpoint_uri: file:///checkpoints
keep_checkpoints: 2
max_task_restarts: 0
estimate:
  serial_iteration_s: 0.05
  slowdown: {slot: 1, machine: 1, rack: 1.1, cluster: 1.3}
  speed: {k80: 1, v100: 3.1, cpu: 2e-1}
"""
    )
    assert (app.name, app.user, app.queue) == ("digits-search", "alice", "research")
    assert app.program.arguments == {"batch_size": 64}
    assert app.program.environment == {"KEY": "value", "NUMBER": "3"}
    assert app.program.framework == "pytorch"
    assert app.tuner == TunerSpec(name="successive_halving", settings={"eta": 3, "first_iterations": 40})
    assert [dict(job.hyper_parameters) for job in app.jobs] == [{"learning_rate": 0.1}, {"learning_rate": 0.001}]
    assert all(job.shape == JobShape(tasks=4, min_tasks=2, gpus_per_task=2) for job in app.jobs)
    assert all(job.iterations_total == 400 for job in app.jobs)
    assert (app.resources.memory_mb, app.resources.vcores, app.seed) == (2048, 2, 5)
    assert (app.checkpoint_every, app.keep_checkpoints, app.max_task_restarts) == (20, 2, 0)
    assert app.checkpoint_uri == "file:///checkpoints"
    assert app.estimate.serial_iteration_s == 0.05
    assert app.estimate.slowdown == Slowdown(1.0, 1.0, 1.1, 1.3)
    assert all(job.speed_by_device == {"k80": 1.0, "v100": 3.1, "cpu": 0.2} for job in app.jobs)


def test_code_is_packed_from_beside_the_group_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "groups" / "training").mkdir(parents=True)
    (tmp_path / "groups" / "training" / "train.py").write_text("1")
    group = tmp_path / "groups" / "g.yaml"
    group.write_text("{name: a, command: python3 train.py, code: ./training, python: /opt/env/bin/python3}")
    monkeypatch.chdir(tmp_path)
    program = load_group(group).program
    assert program.code is not None
    assert (set(files_in(program.code)), program.python) == ({"train.py"}, "/opt/env/bin/python3")


@pytest.mark.parametrize("named", ["env/requirements.txt", "./env/requirements.txt"])
def test_requirements_are_a_file_of_the_code(tmp_path: Path, named: str) -> None:
    (tmp_path / "training" / "env").mkdir(parents=True)
    (tmp_path / "training" / "env" / "requirements.txt").write_text("numpy\n")
    group = tmp_path / "g.yaml"
    group.write_text(f"{{name: a, command: python3 train.py, code: ./training, requirements: {named}}}")
    assert load_group(group).program.requirements == named


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ("requirements: requirements.txt", "requirements is a file of the code that travels: 'requirements.txt'"),
        ("code: ., requirements: other.txt", "the requirements file is not in the code: 'other.txt'"),
        ("code: ., requirements: /etc/hostname", "the requirements file is not in the code: '/etc/hostname'"),
        ("code: ., requirements: ../g.yaml", "the requirements file is not in the code: '../g.yaml'"),
    ],
)
def test_requirements_that_do_not_travel_are_refused(tmp_path: Path, keys: str, wrong: str) -> None:
    group = tmp_path / "g.yaml"
    group.write_text(f"{{name: a, command: python3 train.py, {keys}}}")
    with pytest.raises(InputError) as refused:
        load_group(group)
    assert wrong in str(refused.value)


def test_values_keep_the_type_that_the_file_gives_them() -> None:
    app = build(MINIMAL + "hyper_parameters: [{a: 1, b: 1.0, c: true, d: text, e: '1', f: 2e3}]\n")
    values = app.jobs[0].hyper_parameters
    assert [type(value) for value in values.values()] == [int, float, bool, str, str, float]


def test_a_command_is_a_rigid_gang_of_one_iteration_unless_it_says_more() -> None:
    job = build('name: a\ncommand: "true"\njob: {tasks: 3}\n').jobs[0]
    assert job.shape == JobShape(tasks=3, min_tasks=3)
    assert job.iterations_total == 1
    elastic = build('name: a\ncommand: "true"\njob: {tasks: 3, min_tasks: 1, iterations: 50}\n').jobs[0]
    assert (elastic.shape.min_tasks, elastic.iterations_total) == (1, 50)


def test_more_than_a_hundred_jobs_still_sort_by_id() -> None:
    app = build(MINIMAL + "search_space: {x: {uniform: [0, 1]}}\njobs: 101\n")
    ids = [job.job_id for job in app.jobs]
    assert ids[0] == "job-000" and ids == sorted(ids)


def test_a_search_is_the_same_to_the_byte_for_the_same_seed_and_name() -> None:
    text = MINIMAL + "search_space: {learning_rate: {log_uniform: [0.001, 0.3]}}\njobs: 3\nseed: 0\n"
    rates = [job.hyper_parameters["learning_rate"] for job in build(text).jobs]
    # Pinned: a change here changes what every user's seed means.
    assert rates == [0.00590309, 0.212141, 0.009731]
    assert [job.hyper_parameters["learning_rate"] for job in build(text.replace("seed: 0", "seed: 1")).jobs] != rates


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("program: p\njob: {iterations: 1}\n", "name is missing"),
        ("name: Bad_Name\nprogram: p\njob: {iterations: 1}\n", "a-z, 0-9 and '-'"),
        ("name: a\nprogram: p\njob: [1]\n", "g.yaml: job: should be keys and values: [1]"),
        ("name: -a\nprogram: p\njob: {iterations: 1}\n", "'-a'"),
        ("name: a\njob: {iterations: 1}\n", "exactly one of program and command"),
        (COMMAND + "program: p\n", "exactly one of program and command"),
        ("name: a\nprogram: p\n", "job.iterations is missing"),
        ("name: a\nprogram: p\njob: {iterations: 0}\n", "job.iterations"),
        (MINIMAL + "learning: 1\n", "unknown key learning"),
        (MINIMAL + "argumets: {a: 1}\n", "did you mean 'arguments'"),
        (MINIMAL + "resources: {memory: 2}\n", "did you mean 'memory_mb'"),
        ("name: a\nprogram: p\njob: {iteratons: 1}\n", "did you mean 'iterations'"),
        (MINIMAL.replace("10}", "10, min_tasks: 2}"), "job.min_tasks is more than job.tasks, which is 1: 2"),
        (MINIMAL + "tuner: successive_halvin\n", "did you mean 'successive_halving'"),
        (MINIMAL + "tuner: {name: successive_halving, etta: 2}\n", "did you mean 'eta'"),
        (MINIMAL + "tuner: {name: successive_halving, eta: 1}\n", "tuner.eta must be a whole number of 2 or more: 1"),
        (MINIMAL + "tuner: {name: successive_halving, eta: 2.5}\n", "tuner.eta must be a whole number"),
        (MINIMAL + "tuner: {name: successive_halving, eta: true}\n", "tuner.eta must be a whole number"),
        (MINIMAL + "tuner: {name: successive_halving, first_iterations: 11}\n", "beyond the jobs' end"),
        (MINIMAL + "tuner: {name: single, eta: 2}\n", "unknown setting of tuner single"),
        (MINIMAL + "tuner: {name: successive_halving, phases: 1x5, eta: 2}\n", "in place of the other settings"),
        (MINIMAL + "tuner: {name: successive_halving, phases: 1by5}\n", "tuner.phases is malformed"),
        (
            MINIMAL + "tuner: {name: successive_halving, phases: 2x5}\n",
            "does not begin with all jobs: '2x5'; start with 1x",
        ),
        (MINIMAL + "tuner: {name: successive_halving, phases: '1x5,1x6'}\n", "raise job.iterations to 11"),
        (MINIMAL + "jobs: 2\n", "the file describes 1"),
        (MINIMAL + "jobs: 3\nhyper_parameters: [{a: 1}, {a: 2}]\n", "the file describes 2"),
        (MINIMAL + "hyper_parameters: []\n", "hyper_parameters"),
        (MINIMAL + "hyper_parameters: [{a: 1}]\nsearch_space: {a: {grid: [1]}}\n", "not both"),
        (MINIMAL + "hyper_parameters: [{a: [1]}]\n", "hyper_parameters[0].a"),
        (MINIMAL + "hyper_parameters: [{a: .nan}]\n", "hyper_parameters[0].a: a finite number is wanted: nan"),
        (MINIMAL + "hyper_parameters: [{a: {b: 1}}]\n", "[0].a: a number, text, true or false is wanted"),
        (MINIMAL + "tuner: {name: performance_curve, threshold: .nan}\n", "tuner.threshold: a finite number is wanted"),
        (
            MINIMAL + "tuner: {name: performance_curve, threshold: -.inf}\n",
            "tuner.threshold: a finite number is wanted",
        ),
        (
            MINIMAL + "tuner: {name: median_stopping, warmup: 10}\nhyper_parameters: [{a: 1}, {a: 2}]\n",
            "tuner.warmup so high it can never act: 10; use",
        ),
        (MINIMAL + "hyper_parameters: [{a-b: 1}]\n", "no digit first: 'a-b'"),
        (MINIMAL + "arguments: {a: 1}\nhyper_parameters: [{a: 1}]\n", "an argument is also a hyper-parameter"),
        (MINIMAL + "arguments: {seed: 1}\n", "the key seed of the group file sets it"),
        (MINIMAL + "hyper_parameters: [{iterations: 1}]\n", "the key job.iterations of the group file sets it"),
        (MINIMAL + "environment: {A: (hidden)}\n", "environment.A was hidden when it was read"),
        (MINIMAL + "environment: {A: true}\n", "put it in quotes"),
        (MINIMAL + "environment: {A=B: x}\n", "holds no '='"),
        (MINIMAL + "environment: {A-B: x}\n", "no digit first: 'A-B'"),
        (MINIMAL + "hyper_parameters: [{lang: no}]\n", "line 4: a word that YAML reads as false: 'no'"),
        (MINIMAL + "hyper_parameters: [{a: 1.10}]\n", "1.10 would lose its last zeros; write 1.1, or '1.10' as text"),
        (MINIMAL + "search_space: {a: {grid: [0.10, 0.2]}}\n", "search_space.a.grid[0]: 0.10 would lose"),
        (MINIMAL + "resources: {memory_mb: 4X}\n", "as in 4G or 512Mi: '4X'"),
        (MINIMAL + "resources: {memory_mb: 1K}\n", "should be a whole number of MB: '1K'"),
        (MINIMAL + f"environment: {{A: {'x' * 100_001}}}\n", "environment.A cannot be passed on: '100001 bytes'"),
        (
            MINIMAL + "environment: {" + ", ".join(f"A{n}: {'x' * 99_000}" for n in range(11)) + "}\n",
            "the environment is too large",
        ),
        ("name: a\ncommand: " + "x" * 100_001 + "\n", "command cannot be passed on: '100001 bytes'"),
        (MINIMAL + "metric: {name: a, regex: '('}\n", "metric.regex is malformed"),
        (MINIMAL + "metric: {name: a, regex: '(a{99999999999})'}\n", "metric.regex is malformed"),
        (MINIMAL + "metric: {name: a, regex: 'a'}\n", "metric.regex has no group"),
        (
            f"name: a\ncommand: run %a%\nhyper_parameters: [{{a: x}}, {{a: {'x' * 99_999}}}]\n",
            "the command of job-01 cannot be run: '100003 bytes'",
        ),
        (MINIMAL + "environment: {A: 1.50}\n", "put it in quotes"),
        (MINIMAL + "code: ./training\n", "a program takes neither code nor python: 'digits_cnn'"),
        (MINIMAL + "python: /usr/bin/python3\n", "a program takes neither code nor python"),
        ("name: a\ncommand: sh\npython: bin/python3\n", "no absolute path: 'bin/python3'; give its absolute path"),
        (f"name: a\ncommand: sh\npython: /{'x' * 100_000}\n", "python cannot be passed on"),
        (MINIMAL + "environment: {A: 010}\n", "in quotes where it is text"),
        (MINIMAL + "estimate: {serial_iteration_s: 0}\n", "estimate.serial_iteration_s"),
        (MINIMAL + "estimate: {slowdown: {rack: 2, cluster: 1.5}}\n", "a slowdown cannot shrink"),
        (MINIMAL + "estimate: {speed: {k80: 0}}\n", "estimate.speed.k80"),
        (MINIMAL + "estimate: {speed: {k80: -1}}\n", "estimate.speed.k80"),
        (MINIMAL + "estimate: {speed: {k80: .nan}}\n", "estimate.speed.k80"),
        (MINIMAL + "estimate: {speed: {k80: .inf}}\n", "estimate.speed.k80"),
        (MINIMAL + "estimate: {speed: {k80: true}}\n", "estimate.speed.k80"),
        (MINIMAL + "seed: -1\n", "seed"),
        (COMMAND, "unknown placeholder in the command of g.yaml: 'learning_rate'"),
        (COMMAND + "hyper_parameters: [{learning_rat: 1}]\n", "did you mean 'learning_rat'"),
        (COMMAND + "hyper_parameters: [{learning_rate: 1, b: 2}]\n", "write %b% where its value belongs"),
        (COMMAND + "hyper_parameters: [{learning_rate: 1}, {}]\n", "hyper_parameters[1] has no learning_rate"),
    ],
)
def test_invalid_files_are_refused_with_position_and_remedy(text: str, message: str) -> None:
    assert message in refusal(text)


def test_all_errors_of_a_group_file_are_reported_at_once() -> None:
    text = "name: A b\ncommand: run %zz%\narguments: {iterations: 3}\njob: {tasks: 2, min_tasks: 3}\n"
    beginnings = ["g.yaml: a name is", "g.yaml: no argument", "unknown placeholder", "g.yaml: job.min_tasks is more"]
    lines = refusal(text).splitlines()
    assert [line[: len(wanted)] for line, wanted in zip(lines, beginnings, strict=True)] == beginnings


@pytest.mark.parametrize(
    ("size", "memory_mb"), [("4G", 4096), ("4Gi", 4096), ("512Mi", 512), ("2048k", 2), ("1T", 1024**2), ("300", 300)]
)
def test_memory_may_have_a_unit(size: str, memory_mb: int) -> None:
    assert build(MINIMAL + f"resources: {{memory_mb: {size}}}\n").resources.memory_mb == memory_mb


def test_setting_of_a_tuner_may_end_in_zeros() -> None:
    tuner = "tuner: {name: performance_curve, threshold: 0.10}\nhyper_parameters: [{a: 1}, {a: 2}]\n"
    assert build(MINIMAL + tuner).tuner.settings["threshold"] == 0.1


@pytest.mark.parametrize("key", ["user", "queue"])
@pytest.mark.parametrize("name", ["a\\nb", "a\\r", "\\e[31mred", "\\x9b2J", "a\\u2028b", "\\u202Ea", "a\\0", ""])
def test_users_and_queues_hold_only_printable_text(key: str, name: str) -> None:
    reported = refusal(f'{MINIMAL}{key}: "{name}"\n')
    assert reported.startswith(f"g.yaml: {key} is not text that can be shown: ")
    assert reported.isprintable() and "; write letters" in reported


def test_users_and_queues_may_be_of_any_language() -> None:
    app = build(MINIMAL + "user: Jos\u00e9 \u5c71\u7530\nqueue: root.team-1_a/b@c\n")
    assert (app.user, app.queue) == ("Jos\u00e9 \u5c71\u7530", "root.team-1_a/b@c")


def test_a_login_name_that_cannot_be_shown_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "al\x1b[2Jice")
    assert "user is not text that can be shown: 'al\\x1b[2Jice'" in refusal(MINIMAL)


@pytest.mark.parametrize("name", ["", "A=B", "=", "A\\0"])
def test_a_variable_has_a_name_that_a_system_takes(name: str) -> None:
    reported = refusal(f'{MINIMAL}environment: {{"{name}": x}}\n')
    assert reported.startswith("g.yaml: environment: the name of an environment variable is not empty and holds no '='")


def test_the_value_of_a_variable_holds_no_nul() -> None:
    reported = refusal(MINIMAL + 'environment: {A: "x\\0y"}\n')
    assert reported == "g.yaml: environment.A: the value of an environment variable holds no NUL: 'x\\x00y'"


def test_letters_of_a_date_format_and_the_app_masters_own_names_are_let_through() -> None:
    build('name: a\ncommand: "date +%H%M%S; train --to %iterations% --in %checkpoint_path%"\n')


def test_a_file_is_read_and_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "group.yaml"
    path.write_text(MINIMAL)
    app = load_group(path)
    assert replace(app, user="x").name == "a"
    with pytest.raises(InputError, match=r"missing\.yaml"):
        load_group(tmp_path / "missing.yaml")
    with pytest.raises(UnknownNameError):
        path.write_text(MINIMAL + "tuner: x\n")
        load_group(path)


def test_every_key_of_the_schema_has_its_meaning_written_down() -> None:
    obvious = {"name", "tuner", "metric", "job", "resources", "estimate", "queue"}
    lacking = [n for n, f in GroupFile.model_fields.items() if not f.description and n not in obvious]
    assert lacking == []
