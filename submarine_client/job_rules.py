"""Check the options of `job run` by Submarine's rules, and refuse those that are not supported yet."""

from __future__ import annotations

import re

from submarine_client.job_flags import FLAGS, Given
from submarine_client.resources import parse_resources
from themis.apps import NO_FRAMEWORK, PYTORCH, TENSORFLOW
from themis.errors import FoundErrors, InputError, UnknownNameError
from themis.number_parsing import as_whole

FRAMEWORKS = {"tensorflow": TENSORFLOW, "pytorch": PYTORCH, "standalone": NO_FRAMEWORK}
"""The values of `--framework`, and what a group file calls them."""
_OTHER_FRAMEWORKS = ("mxnet", "xgboost")
_LOCALIZATION = re.compile(r"(?P<remote>.+?):(?P<local>[^:/][^:]*|/[^/:][^:]*)(:r[ow]?)?")
_QUICKLINK = re.compile(r"[^=]+=https?://\S+")


def check_rules(options: Given) -> None:
    """Check the options against each other.

    Submarine's own rules come first: their errors matter more than a feature that Themis lacks.

    Raises:
        InputError: An option is missing, malformed, contradicts another, or is not supported yet.
    """
    found = FoundErrors()
    for name in _REQUIRED:
        found.run(required, options, name)
    for check in (workers, _check_servers, _check_forms, _check_security):
        found.run(check, options)
    for flag in FLAGS:
        if flag.refused and flag.name in options:
            error = InputError(f"--{flag.name} is not supported", value=options[flag.name][0], remedy=flag.refused)
            found.add(error)
    found.raise_all()


_OF_WORKERS = "workers need it; --num_workers is 1 unless given"
_REQUIRED = {
    "name": "every job has one",
    "input_path": _OF_WORKERS,
    "worker_resources": _OF_WORKERS,
    "worker_launch_cmd": _OF_WORKERS,
}


def required(options: Given, name: str) -> str:
    """Return the value of a flag that a job needs. Raises InputError if it is missing or empty."""
    _require(options, name, _REQUIRED[name])
    return options[name][0]


def whole(options: Given, name: str, default: int) -> int:
    """Return the value of a flag as a whole number of 0 or more."""
    text = options.get(name, (str(default),))[0]
    number = as_whole(text)
    if number is None:
        raise InputError(f"--{name} must be a whole number", value=text)
    return number


def workers(options: Given) -> int:
    """Return the number of workers. Raises InputError if it is 0 or no number."""
    number = whole(options, "num_workers", 1)
    if not number:
        remedy = "run tensorboard --logdir yourself, or give one worker or more"
        raise InputError("--num_workers 0 is a job of TensorBoard only", remedy=remedy)
    return number


def framework_of(options: Given) -> str:
    """Return the framework as a group file calls it, or an empty text if none is given.

    Raises:
        InputError: It is unknown, or not supported.
    """
    if "framework" not in options:
        return ""
    framework = options["framework"][0].lower()
    if framework in _OTHER_FRAMEWORKS:
        remedy = "leave --framework out; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT then describe each task's peers"
        raise InputError("--framework is not supported", value=framework, remedy=remedy)
    if framework not in FRAMEWORKS:
        raise UnknownNameError("framework", framework, (*FRAMEWORKS, *_OTHER_FRAMEWORKS))
    return FRAMEWORKS[framework]


def files_of(options: Given) -> list[str]:
    """Return the paths of all `--files`. Raises InputError if one is not on this machine."""
    paths = [each.strip() for text in options.get("files", ()) for each in text.split(",") if each.strip()]
    for path in paths:
        _check_here(path, "--files")
    return paths


def localization(entry: str) -> tuple[str, str]:
    """Return the path of a `--localization` on this machine, and where the command finds it.

    Raises:
        InputError: It is malformed, is not on this machine, or is to lie outside of the working folder.
    """
    match = _LOCALIZATION.fullmatch(entry)
    if match is None:
        raise InputError("--localization is not PATH:LOCAL[:rw]", value=entry)
    _check_here(match["remote"], "--localization")
    local = match["local"]
    if local.startswith("/") or ".." in local.split("/"):
        remedy = "give a relative path: every task finds its copy in its working folder"
        raise InputError("--localization cannot put a file there", value=local, remedy=remedy)
    return match["remote"], local


def _check_here(path: str, flag: str) -> None:
    if "://" in path:
        remedy = "fetch it first, with `hdfs dfs -get` for example, and name the copy; or let the program read it"
        raise InputError(f"{flag} takes files of this machine only", value=path, remedy=remedy)


def _require(options: Given, name: str, why: str) -> None:
    if not options.get(name, ("",))[0].strip():
        raise InputError(f"--{name} is missing", remedy=why)


def _check_servers(options: Given) -> None:
    servers = whole(options, "num_ps", 0)
    if not servers:
        return
    if whole(options, "num_workers", 1) <= 1:
        remedy = "give --num_workers 2 or more, or no --num_ps"
        raise InputError("parameter servers need more than one worker", value=f"num_ps={servers}", remedy=remedy)
    _require(options, "ps_resources", "parameter servers need it")
    parse_resources(options["ps_resources"][0], "--ps_resources")
    remedy = "leave --num_ps out; let the workers share the model, with tf.distribute.MultiWorkerMirroredStrategy"
    raise InputError("parameter servers are not supported", value=f"num_ps={servers}", remedy=remedy)


def _check_forms(options: Given) -> None:
    """Check options that are ignored or refused too: a typing error there is still an error."""
    found = FoundErrors()
    for name in ("ps_resources", "tensorboard_resources"):
        if name in options:
            found.run(parse_resources, options[name][0], f"--{name}")
    for entry in options.get("localization", ()):
        found.run(localization, entry)
    found.run(files_of, options)
    for entry in options.get("quicklink", ()):
        if not _QUICKLINK.fullmatch(entry):
            found.add(InputError("--quicklink is not LABEL=http(s)://ROLE-N:PORT", value=entry))
    found.run(framework_of, options)
    found.raise_all()


def _check_security(options: Given) -> None:
    if ("keytab" in options) != ("principal" in options):
        raise InputError("--keytab and --principal go together", remedy="give both or neither")
    if "distribute_keytab" in options and "keytab" not in options:
        raise InputError("--distribute_keytab needs --keytab and --principal", remedy="give both, or leave it out")
