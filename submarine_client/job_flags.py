"""The flags of `submarine job run`, the same as in Hadoop's Submarine, and their parser.

argparse does not fit: flags have one dash or two, some take true, false or nothing, and an error is one line that names
the nearest known flag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from submarine_client.tony import TONY_FLAGS
from themis.errors import FoundErrors, InputError, UnknownNameError
from themis.values import Value

Given = Mapping[str, tuple[str, ...]]
"""The values of the given flags: one value each, several for flags that may be repeated."""


class Takes(Enum):
    """The argument of a flag: one value; one value per repetition; none; or optionally `true` or `false`."""

    VALUE = auto()
    MANY = auto()
    NOTHING = auto()
    TRUTH = auto()


class JobFlag(Value, frozen=True, kw_only=True):
    """One flag.

    Attributes:
        name: Without dashes.
        takes: Its argument.
        help: One line.
        placeholder: The name of its value in the help.
        ignored: Why the flag has no effect, and why that is harmless. Printed on standard error if it is given.
        refused: Why the flag is not supported yet and must not be ignored. The error if it is given.
    """

    name: str
    takes: Takes = Takes.VALUE
    help: str
    placeholder: str = ""
    ignored: str = ""
    refused: str = ""


_PROCESSES = "tasks run as processes of the machine that their lease names, not in containers"
_NO_PS = "there are no parameter servers"
_NO_KERBEROS = "no engine with Kerberos yet"
_NO_TENSORBOARD = "TensorBoard runs where you start it"

FLAGS: tuple[JobFlag, ...] = (
    JobFlag(name="name", help="name of the job: a-z, 0-9 and '-'; required", placeholder="NAME"),
    JobFlag(name="f", help="job YAML; no option may be in both", placeholder="FILE"),
    JobFlag(name="queue", help="queue; default: default", placeholder="QUEUE"),
    JobFlag(name="input_path", help="where the data lies, %input_path% in the command; required", placeholder="PATH"),
    JobFlag(name="checkpoint_path", help="where the command keeps checkpoints, %checkpoint_path%", placeholder="PATH"),
    JobFlag(name="saved_model_path", help="%saved_model_path%; default: checkpoint_path", placeholder="PATH"),
    JobFlag(name="num_workers", help="workers, all of which run at once; default 1", placeholder="N"),
    JobFlag(name="worker_resources", help="of each worker: memory=4G,vcores=2,gpu=1; required", placeholder="RES"),
    JobFlag(name="worker_launch_cmd", help="what each worker runs; required", placeholder="COMMAND"),
    JobFlag(name="worker_docker_image", help="image of the workers", placeholder="IMAGE", ignored=_PROCESSES),
    JobFlag(name="docker_image", help="image of every role", placeholder="IMAGE", ignored=_PROCESSES),
    JobFlag(name="env", takes=Takes.MANY, help="environment variable of every task", placeholder="K=V"),
    JobFlag(name="num_ps", help="parameter servers; only 0", placeholder="N"),
    JobFlag(name="ps_resources", help="of each parameter server", placeholder="RES", ignored=_NO_PS),
    JobFlag(name="ps_launch_cmd", help="what each parameter server runs", placeholder="COMMAND", ignored=_NO_PS),
    JobFlag(name="ps_docker_image", help="image of the parameter servers", placeholder="IMAGE", ignored=_NO_PS),
    JobFlag(name="tensorboard", takes=Takes.TRUTH, help="print the command that starts TensorBoard"),
    JobFlag(name="tensorboard_resources", help="of TensorBoard", placeholder="RES", ignored=_NO_TENSORBOARD),
    JobFlag(name="tensorboard_docker_image", help="image of TensorBoard", placeholder="IMAGE", ignored=_NO_TENSORBOARD),
    JobFlag(
        name="localization",
        takes=Takes.MANY,
        help="file or folder of this machine that travels with the job; LOCAL is where the command finds it",
        placeholder="PATH:LOCAL[:rw]",
    ),
    JobFlag(
        name="files",
        takes=Takes.MANY,
        help="files and folders that travel with the job, comma-separated; the command finds each by its last name",
        placeholder="PATH,..",
    ),
    JobFlag(
        name="quicklink",
        takes=Takes.MANY,
        help="link to show for the job",
        placeholder="LABEL=URL",
        ignored="no page shows it yet",
    ),
    JobFlag(name="framework", help="tensorflow, pytorch or standalone: how tasks find each other", placeholder="NAME"),
    JobFlag(name="keytab", help="Kerberos keytab", placeholder="FILE", refused=_NO_KERBEROS),
    JobFlag(name="principal", help="Kerberos principal", placeholder="NAME", refused=_NO_KERBEROS),
    JobFlag(name="distribute_keytab", takes=Takes.NOTHING, help="send the keytab along", refused=_NO_KERBEROS),
    JobFlag(name="insecure", takes=Takes.NOTHING, help="no security", ignored="there is none to switch off"),
    JobFlag(name="conf", takes=Takes.MANY, help="setting; see below", placeholder="K=V"),
    JobFlag(name="wait_job_finish", takes=Takes.NOTHING, help="wait until the job has ended"),
    JobFlag(name="verbose", takes=Takes.NOTHING, help="say what is submitted"),
    JobFlag(name="rm", help="the ResourceManager; default: $THEMIS_RM, else 127.0.0.1:8650", placeholder="HOST:PORT"),
    JobFlag(name="ca", help="the authorities to trust with TLS; default: $THEMIS_CA", placeholder="FILE"),
    JobFlag(name="version", takes=Takes.NOTHING, help="show the version and exit"),
    JobFlag(name="h", takes=Takes.NOTHING, help="this text"),
    JobFlag(name="help", takes=Takes.NOTHING, help="this text"),
)

_BY_NAME: Mapping[str, JobFlag] = {flag.name: flag for flag in FLAGS}
_TRUTHS = ("true", "false")


def parse_flags(words: Sequence[str]) -> Given:
    """Read `--name value`, `-name value` and `--name=value`.

    Raises:
        InputError: A flag is unknown or repeated, a value is missing or superfluous, or a word belongs to no flag.
    """
    given: dict[str, tuple[str, ...]] = {}
    rest, found = list(words), FoundErrors()
    while rest:
        read = found.run(_next_flag, rest)
        if read is None:
            # Up to the next flag words may belong to what was wrong.
            while rest and not rest[0].startswith("-"):
                rest.pop(0)
            continue
        flag, value = read
        if flag.name in given and flag.takes is not Takes.MANY:
            found.add(InputError(f"--{flag.name} is given twice", remedy="give it once"))
        given[flag.name] = (*given.get(flag.name, ()), value)
    # Any option may be meant by a word that is none, so the options are checked after this.
    found.raise_all()
    return given


def _next_flag(rest: list[str]) -> tuple[JobFlag, str]:
    """Remove a flag and its value from the remaining words, and return them."""
    flag, value = _flag_of(rest.pop(0))
    if value is None:
        value = _next_value(flag, rest)
    elif flag.takes is Takes.NOTHING:
        raise InputError(f"--{flag.name} takes no value", value=value)
    return flag, _checked_truth(flag, value)


def wants_help(words: Sequence[str]) -> bool:
    """Whether there are no words, or one of them is a help flag in the position of a flag."""
    return not words or any(word in ("-h", "--h", "-help", "--help") for word in words)


def is_flag(word: str) -> bool:
    """Whether a word is a known flag, with or without a value."""
    name = word.lstrip("-").partition("=")[0]
    return word.startswith("-") and name in _BY_NAME


def _flag_of(word: str) -> tuple[JobFlag, str | None]:
    if not word.startswith("-") or not word.strip("-"):
        raise InputError("unexpected word", value=word, remedy="is a value with spaces in quotes?")
    dashes = "--" if word.startswith("--") else "-"
    name, equals, value = word.removeprefix(dashes).partition("=")
    if name in TONY_FLAGS:
        raise InputError(f"--{name} is a flag of TonY", remedy=TONY_FLAGS[name])
    if name not in _BY_NAME:
        raise UnknownNameError("flag of job run", f"{dashes}{name}", (f"{dashes}{known}" for known in _BY_NAME))
    return _BY_NAME[name], value if equals else None


def _next_value(flag: JobFlag, rest: list[str]) -> str:
    """Remove the value of a flag from the remaining words, and return it."""
    if flag.takes is Takes.NOTHING:
        return "true"
    if flag.takes is Takes.TRUTH:
        return rest.pop(0) if rest and rest[0].lower() in _TRUTHS else "true"
    if not rest or is_flag(rest[0]):
        raise InputError(f"--{flag.name} has no value", remedy=f"meaning: {flag.help}")
    return rest.pop(0)


def _checked_truth(flag: JobFlag, value: str) -> str:
    if flag.takes is not Takes.TRUTH:
        return value
    if value.lower() not in _TRUTHS:
        raise InputError(f"--{flag.name} is true or false", value=value)
    return value.lower()
