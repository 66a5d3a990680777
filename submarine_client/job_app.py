"""Build an app of one job from the options of `job run`.

The job is a rigid gang: all workers run at once or none do, since the user's command may not survive a change of their
number. It has `themis.iterations` iterations; with the default of 1 it runs until it exits 0.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from submarine_client.job_flags import FLAGS, Given
from submarine_client.job_rules import check_rules, framework_of, localization, whole
from submarine_client.programs import check_command
from submarine_client.resources import Resources, parse_resources
from submarine_client.tony import check_tony_setting
from themis.apps import AppSpec, CodeArchive, JobShape, JobSpec, ProgramSpec, TaskResources, TunerSpec
from themis.code_archive import pack_code
from themis.config.app_limits import check_limits
from themis.config.names import check_app_name, check_label, check_queue_name, login_name
from themis.config.placeholders import CHECKPOINT_PATH_VARIABLE, check_placeholders, substitute
from themis.config.tuner_settings import SINGLE
from themis.errors import InputError, UnknownNameError
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
    check_rules(options)
    workers = whole(options, "num_workers", 1)
    resources = _worker_resources(options)
    paths = _paths(options)
    conf = _conf(options)
    command, code = _command(options, paths), _code(options)
    check_command(command, "--worker_launch_cmd", code)
    job = JobSpec(
        job_id="job-00",
        shape=JobShape(tasks=workers, min_tasks=workers, gpus_per_task=resources.gpus or 0),
        iterations_total=conf["themis.iterations"],
    )
    app = AppSpec(
        name=check_app_name(options["name"][0], COMMAND_LINE),
        user=check_label(login_name(), "user", COMMAND_LINE),
        queue=check_queue_name(_one(options, "queue", "default"), "--queue", COMMAND_LINE),
        tuner=TunerSpec(name=SINGLE),
        program=ProgramSpec(
            command=command,
            code=code,
            environment=_environment(options, paths, parameters),
            framework=framework_of(options),
        ),
        jobs=(job,),
        resources=TaskResources(memory_mb=resources.memory_mb or 1024, vcores=resources.vcores or 1),
        checkpoint_every=conf["themis.checkpoint_every"],
        max_task_restarts=conf["themis.max_task_restarts"],
    )
    check_limits(app, COMMAND_LINE)
    return app


def notes(options: Given) -> tuple[str, ...]:
    """Return a line for every option that is accepted but has no effect."""
    ignored = [f"--{flag.name} is ignored: {flag.ignored}" for flag in FLAGS if flag.ignored and flag.name in options]
    foreign = [entry.partition("=")[0] for entry in options.get("conf", ())]
    return (
        *(note for note in ignored if options.get("tensorboard") != ("false",) or "tensorboard" not in note),
        *(f"--conf {name} is ignored: it is no setting of Themis" for name in foreign if name not in CONF),
    )


def tensorboard_command(options: Given, app: AppSpec) -> str:
    """Return the shell command that shows the event files of a job, or an empty text if `--tensorboard` is not given.

    They are looked for below the checkpoint path, where the profiler looks too.
    """
    if options.get("tensorboard") != ("true",):
        return ""
    return shlex.join(["tensorboard", "--logdir", app.program.environment[CHECKPOINT_PATH]])


def _one(options: Given, name: str, default: str) -> str:
    return options.get(name, (default,))[0]


def _worker_resources(options: Given) -> Resources:
    resources = parse_resources(options["worker_resources"][0], "--worker_resources")
    if not resources.gpus:
        remedy = "add gpu=1 to --worker_resources"
        raise InputError("a worker needs a GPU: what Themis leases are GPUs", value=resources.gpus, remedy=remedy)
    if 0 in (resources.memory_mb, resources.vcores):
        raise InputError("a worker needs memory and a core", value=options["worker_resources"][0])
    return resources


def _paths(options: Given) -> dict[str, str]:
    """Return the three paths by the names of the launch command's placeholders."""
    # Submarine's default, below the home folder of this machine: there may be no HDFS.
    default = Path("~/submarine/jobs").expanduser() / options["name"][0] / "staging" / "checkpoint_path"
    checkpoint = _one(options, "checkpoint_path", str(default))
    return {
        "input_path": options["input_path"][0],
        "checkpoint_path": checkpoint,
        "saved_model_path": _one(options, "saved_model_path", checkpoint),
    }


def _command(options: Given, paths: Mapping[str, str]) -> str:
    template = options["worker_launch_cmd"][0]
    check_placeholders(template, paths, "--worker_launch_cmd")
    # Quoted as the app master quotes the values of placeholders.
    return substitute(template, {name: shlex.quote(path) for name, path in paths.items()}, doubled="%%")


def _code(options: Given) -> CodeArchive | None:
    """Pack the files that travel with the job. Each has the name by which the command finds it."""
    sources: dict[str, Path] = {}
    pairs = [(path, ".") for path in _listed(options, "files")]
    for path, local in (*pairs, *map(localization, options.get("localization", ()))):
        name = posixpath.normpath(local)
        name = Path(path).absolute().name if name == "." else name
        if name in sources:
            remedy = "give one of them another name with --localization PATH:NAME"
            raise InputError("two files have one name", value=name, remedy=remedy)
        sources[name] = Path(path)
    return pack_code(sources, "--files") if sources else None


def _listed(options: Given, name: str) -> list[str]:
    return [each.strip() for text in options.get(name, ()) for each in text.split(",") if each.strip()]


def _environment(options: Given, paths: Mapping[str, str], parameters: Sequence[str]) -> dict[str, str]:
    environment: dict[str, str] = {}
    for entry in options.get("env", ()):
        name, equals, value = entry.partition("=")
        if not equals or not name.isidentifier():
            raise InputError("--env is not K=V", value=entry)
        if name in RESERVED:
            raise InputError("--env names a variable that job run sets itself", value=name)
        environment[name] = value
    return {
        **environment,
        INPUT_PATH: paths["input_path"],
        CHECKPOINT_PATH: paths["checkpoint_path"],
        SAVED_MODEL_PATH: paths["saved_model_path"],
        RUN_PARAMETERS: shlex.join(parameters),
    }


def _conf(options: Given) -> dict[str, int]:
    values = {name: entry.default for name, entry in CONF.items()}
    for entry in options.get("conf", ()):
        name, equals, text = entry.partition("=")
        if not equals:
            raise InputError("--conf is not K=V", value=entry)
        check_tony_setting(name)
        if name not in CONF:
            if name.startswith("themis."):
                raise UnknownNameError("setting in --conf", name, CONF)
            continue  # A setting of Hadoop's: noted, not refused.
        number = as_whole(text)
        if number is None or number < CONF[name].low:
            raise InputError(f"--conf {name} must be a whole number of {CONF[name].low} or more", value=text)
        values[name] = number
    return values
