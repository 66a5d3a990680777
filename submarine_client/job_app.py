"""Build an app of one job from the options of `job run`.

The job is a rigid gang: all workers run at once or none do, since the user's command may not survive a change of their
number. It has `themis.iterations` iterations; with the default of 1 it runs until it exits 0.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from submarine_client.job_flags import FLAGS, Given
from submarine_client.job_rules import check_rules, files_of, framework_of, localization, required, workers
from submarine_client.programs import check_command
from submarine_client.resources import Resources, parse_resources
from submarine_client.tony import check_tony_setting
from themis.apps import AppSpec, CodeArchive, JobShape, JobSpec, MetricSpec, ProgramSpec, TaskResources, TunerSpec
from themis.code_archive import pack_code
from themis.config.app_limits import check_limits
from themis.config.names import check_app_name, check_label, check_queue_name, login_name
from themis.config.placeholders import CHECKPOINT_PATH_VARIABLE, check_placeholders, substitute
from themis.config.tuner_settings import SINGLE
from themis.errors import FoundErrors, InputError, UnknownNameError
from themis.number_parsing import as_whole
from themis.values import Value

COMMAND_LINE = "job run"

INPUT_PATH = "SUBMARINE_INPUT_PATH"
CHECKPOINT_PATH = CHECKPOINT_PATH_VARIABLE
SAVED_MODEL_PATH = "SUBMARINE_SAVED_MODEL_PATH"
RUN_PARAMETERS = "SUBMARINE_RUN_PARAMETERS"
RESERVED = (INPUT_PATH, CHECKPOINT_PATH, SAVED_MODEL_PATH, RUN_PARAMETERS)
"""Environment variables of every task of such a job; `job show` reads them."""


class ConfEntry(Value, frozen=True, kw_only=True):
    """A `--conf` key of Themis: a whole number, with its default, minimum and meaning."""

    default: int
    low: int
    help: str


CONF: Mapping[str, ConfEntry] = {
    "themis.iterations": ConfEntry(
        default=1, low=1, help="iterations to the job's end; 1: it runs until it exits 0, whatever it logs"
    ),
    "themis.checkpoint_every": ConfEntry(default=50, low=1, help="iterations between checkpoints"),
    "themis.max_task_restarts": ConfEntry(default=3, low=0, help="restarts of the job after failures"),
}


def build_job_app(options: Given, parameters: Sequence[str]) -> AppSpec:
    """Return the app of one job that these options describe.

    Args:
        options: Flags and job YAML, merged.
        parameters: The words of the command line, kept for `job show`.

    Raises:
        InputError: An option is missing, malformed, against Submarine's rules, or not supported yet.
    """
    draft = _JobDraft(options, parameters)
    draft.found.run(check_rules, options)
    draft.check()
    return draft.app()


class _JobDraft:
    """The app that options describe, part by part: to read a part with an error raises the error.

    See `themis.config.group_file.AppDraft`.
    """

    def __init__(self, options: Given, parameters: Sequence[str]) -> None:
        self.found = FoundErrors()
        self.metric = MetricSpec()
        self.tuner = TunerSpec(name=SINGLE)
        self._options = options
        self._parameters = parameters

    @cached_property
    def name(self) -> str:
        """The app's name."""
        return check_app_name(required(self._options, "name"), COMMAND_LINE)

    @cached_property
    def user(self) -> str:
        """Whose app it is."""
        return check_label(login_name(), "user", COMMAND_LINE)

    @cached_property
    def queue(self) -> str:
        """The app's queue."""
        return check_queue_name(_one(self._options, "queue", "default"), "--queue", COMMAND_LINE)

    @cached_property
    def resources(self) -> Resources:
        """What each worker needs."""
        return _worker_resources(self._options)

    @cached_property
    def conf(self) -> Mapping[str, int]:
        """Settings of Themis."""
        return _conf(self._options)

    @cached_property
    def code(self) -> CodeArchive | None:
        """The files that travel with the job."""
        return _code(self._options)

    @cached_property
    def command(self) -> str:
        """What each worker runs."""
        command = _command(self._options, _paths(self._options))
        check_command(command, "--worker_launch_cmd", self.code)
        return command

    @cached_property
    def program(self) -> ProgramSpec:
        """The command with all that it runs with."""
        return ProgramSpec(
            command=self.command,
            code=self.code,
            environment=_environment(self._options, self._parameters),
            framework=framework_of(self._options),
        )

    @cached_property
    def jobs(self) -> tuple[JobSpec, ...]:
        """The one job."""
        tasks = workers(self._options)
        shape = JobShape(tasks=tasks, min_tasks=tasks, gpus_per_task=self.resources.gpus or 0)
        return (JobSpec(job_id="job-00", shape=shape, iterations_total=self.conf["themis.iterations"]),)

    def check(self) -> None:
        """Collect all errors."""
        for part in ("name", "user", "queue", "resources", "conf", "code", "command", "program", "jobs"):
            self.found.run(getattr, self, part)
        self.found.run(_given_environment, self._options)
        self.found.run(check_limits, self, COMMAND_LINE)

    def app(self) -> AppSpec:
        """The app. Raises InputError with all that was found."""
        self.found.raise_all()
        return AppSpec(
            name=self.name,
            user=self.user,
            queue=self.queue,
            tuner=self.tuner,
            program=self.program,
            jobs=self.jobs,
            resources=TaskResources(memory_mb=self.resources.memory_mb or 1024, vcores=self.resources.vcores or 1),
            checkpoint_every=self.conf["themis.checkpoint_every"],
            max_task_restarts=self.conf["themis.max_task_restarts"],
        )


def notes(options: Given) -> tuple[str, ...]:
    """Return a line for every option that is accepted but has no effect."""
    ignored = [f"--{flag.name} is ignored: {flag.ignored}" for flag in FLAGS if flag.ignored and flag.name in options]
    foreign = [entry.partition("=")[0] for entry in options.get("conf", ())]
    return (
        *(note for note in ignored if options.get("tensorboard") != ("false",) or "tensorboard" not in note),
        *(f"--conf {name} is ignored: it is no setting of Themis" for name in foreign if name not in CONF),
    )


def tensorboard_note(options: Given, app: AppSpec) -> str:
    """Return how to see the event files of a job in TensorBoard, or an empty text if `--tensorboard` is not given.

    They are looked for below the checkpoint path, where the profiler looks too.
    """
    if options.get("tensorboard") != ("true",):
        return ""
    path = app.program.environment[CHECKPOINT_PATH]
    note = f"its TensorBoard: run {shlex.join(['tensorboard', '--logdir', path])}"
    if path.startswith("/") or "://" in path:
        return note
    folder = f"jobs/{app.jobs[0].job_id}{'/code' if app.program.code else ''}"
    return f"{note} in {folder} below the folder that `submarine app show` prints"


def _one(options: Given, name: str, default: str) -> str:
    return options.get(name, (default,))[0]


def _worker_resources(options: Given) -> Resources:
    given = required(options, "worker_resources")
    resources = parse_resources(given, "--worker_resources")
    if not resources.gpus:
        remedy = "add gpu=1 to --worker_resources"
        raise InputError("a worker needs a GPU: what Themis leases are GPUs", value=resources.gpus, remedy=remedy)
    if 0 in (resources.memory_mb, resources.vcores):
        raise InputError("a worker needs memory and a core", value=given)
    return resources


def _paths(options: Given) -> dict[str, str]:
    """Return the three paths by the names of the launch command's placeholders."""
    # Submarine's default, below the home folder of this machine: there may be no HDFS.
    default = Path("~/submarine/jobs").expanduser() / _one(options, "name", "") / "staging" / "checkpoint_path"
    checkpoint = _one(options, "checkpoint_path", str(default))
    return {
        "input_path": required(options, "input_path"),
        "checkpoint_path": checkpoint,
        "saved_model_path": _one(options, "saved_model_path", checkpoint),
    }


def _command(options: Given, paths: Mapping[str, str]) -> str:
    template = required(options, "worker_launch_cmd")
    check_placeholders(template, paths, "--worker_launch_cmd")
    # Quoted as the app master quotes the values of placeholders.
    return substitute(template, {name: shlex.quote(path) for name, path in paths.items()}, doubled="%%")


def _code(options: Given) -> CodeArchive | None:
    """Pack the files that travel with the job. Each has the name by which the command finds it."""
    sources: dict[str, Path] = {}
    pairs = [(path, ".") for path in files_of(options)]
    for path, local in (*pairs, *map(localization, options.get("localization", ()))):
        name = posixpath.normpath(local)
        name = Path(path).absolute().name if name == "." else name
        if name in sources:
            remedy = "give one of them another name with --localization PATH:NAME"
            raise InputError("two files have one name", value=name, remedy=remedy)
        sources[name] = Path(path)
    return pack_code(sources, "--files") if sources else None


def _given_environment(options: Given) -> dict[str, str]:
    found, environment = FoundErrors(), {}
    for entry in options.get("env", ()):
        name, equals, value = entry.partition("=")
        if not equals or not name.isidentifier():
            found.add(InputError("--env is not K=V", value=entry))
        if name in RESERVED:
            found.add(InputError("--env names a variable that job run sets itself", value=name))
        environment[name] = value
    found.raise_all()
    return environment


def _environment(options: Given, parameters: Sequence[str]) -> dict[str, str]:
    paths = _paths(options)
    return {
        **_given_environment(options),
        INPUT_PATH: paths["input_path"],
        CHECKPOINT_PATH: paths["checkpoint_path"],
        SAVED_MODEL_PATH: paths["saved_model_path"],
        RUN_PARAMETERS: shlex.join(parameters),
    }


def _conf(options: Given) -> dict[str, int]:
    found, values = FoundErrors(), {name: entry.default for name, entry in CONF.items()}
    for entry in options.get("conf", ()):
        setting = found.run(_setting, entry)
        values.update([setting] if setting else [])
    found.raise_all()
    return values


def _setting(entry: str) -> tuple[str, int] | None:
    """The name and value of a setting of Themis. None for one of Hadoop's: it is noted, not refused."""
    name, equals, text = entry.partition("=")
    if not equals:
        raise InputError("--conf is not K=V", value=entry)
    check_tony_setting(name)
    if name not in CONF:
        if name.startswith("themis."):
            raise UnknownNameError("setting in --conf", name, CONF)
        return None
    number = as_whole(text)
    if number is None or number < CONF[name].low:
        raise InputError(f"--conf {name} must be a whole number of {CONF[name].low} or more", value=text)
    return name, number
