"""The command line of `submarine`, except for `job run`, whose flags are Hadoop's."""

from __future__ import annotations

import math
import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any

from submarine_client import app_commands, cluster_commands, job_commands
from submarine_client.app_list import NEWEST, ORDERS, STATES
from submarine_client.app_references import app_references
from submarine_client.session import OK, Session
from themis.config.defaults import DEFAULT_RM_ADDRESS, RM_ADDRESS_VARIABLE
from themis.number_parsing import parse_number
from themis.parser import HelpfulParser
from themis.shell_completion import SHELLS, shell_code

Handler = Callable[[Session, Namespace], int]

_DESCRIPTION = "Submit, watch and end the apps of Themis, a GPU cluster scheduler that is fair in finish time."
_EPILOG = f"""\
The ResourceManager is the one that --rm names, else ${RM_ADDRESS_VARIABLE}, else {DEFAULT_RM_ADDRESS}.
An app is named by its id, or by its name where it is clear which app that is.
Exit codes: 0 done; 1 the app failed or was killed; 2 bad usage or input, or no ResourceManager; 3 interrupted;
141 the reader of the output closed the pipe.
"""

_COMPLETION = """\
Print the shell code that completes the command's words. For bash, put this line into ~/.bashrc:
eval "$(submarine completion bash)"
"""

LIST_LIMIT = 200
"""How many apps `list` shows unless `--limit` says otherwise."""

WATCH_EVERY_S = 2.0


class _Parser(HelpfulParser):
    """A parser that, with a `words_handler`, parses nothing itself and passes all words to the handler as `words`."""

    words_handler: Handler | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, or pass the words on to `words_handler`."""
        if self.words_handler is None:
            return super().parse_known_args(args, namespace)
        return Namespace(handler=self.words_handler, words=list(args or ())), []


def build_parser() -> ArgumentParser:
    """Build the parser. A parsed verb has `handler`, a function of the session and the arguments."""
    parser = _Parser(
        prog="submarine",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
        parents=[_rm_options()],
    )
    nouns = parser.add_subparsers(metavar="COMMAND", parser_class=_Parser)
    app = nouns.add_parser("app", help="apps: a program, its jobs, the tuner that searches them", allow_abbrev=False)
    app.set_defaults(usage_of=app)
    _add_app_verbs(_Verbs(_verbs_of(app)))
    job = nouns.add_parser("job", help="single jobs, as Hadoop's Submarine has them", allow_abbrev=False)
    job.set_defaults(usage_of=job)
    _add_job_verbs(_Verbs(_verbs_of(job)))
    alone = _Verbs(nouns)
    alone.add("cluster", cluster_commands.cluster, "the nodes, their devices, and how many are leased", _json())
    alone.add("top", cluster_commands.top, "GPUs, GPU hours and apps of each user", _json())
    alone.add("whoami", cluster_commands.whoami, "as whom the ResourceManager knows you", _json())
    completion = nouns.add_parser(
        "completion", help="print the shell code that completes the command's words", description=_COMPLETION
    )
    completion.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS))
    completion.set_defaults(handler=_print_completion, usage_of=completion)
    parser.set_defaults(usage_of=parser)
    return parser


def _print_completion(session: Session, arguments: Namespace) -> int:
    session.terminal.say(shell_code("submarine", arguments.shell))
    return OK


class _Verbs:
    """The verbs of one noun, `app` or `job`, or the verbs without a noun."""

    def __init__(self, parsers: Any) -> None:
        self._parsers = parsers

    def add(self, name: str, handler: Handler, text: str, *options: ArgumentParser) -> _Parser:
        """Add a verb with the options that all verbs share."""
        parents: list[Any] = [_rm_options(), *options]  # typeshed wants parents of the parser's own class
        verb: _Parser = self._parsers.add_parser(name, help=text, description=text, parents=parents, allow_abbrev=False)
        verb.set_defaults(handler=handler, usage_of=verb)
        return verb


def _verbs_of(noun: _Parser) -> Any:
    return noun.add_subparsers(metavar="VERB", parser_class=_Parser)


def _add_app_verbs(verbs: _Verbs) -> None:
    submit = verbs.add("submit", app_commands.submit, "submit a group file; prints the app's id", _submission())
    validate = verbs.add("validate", app_commands.validate, "check a group file and show what it asks for", _json())
    for verb in (submit, validate):
        verb.add_argument(
            "group", metavar="GROUP", help="a group file, or the name of an example such as replay-search"
        )
    validate.add_argument("--ask-rm", action="store_true", help="have the ResourceManager check it against its cluster")
    verbs.add("list", app_commands.list_apps, "list apps", _listing())
    show = verbs.add("show", app_commands.show, "show an app: state, best job, rho, leases, jobs", _json())
    wait = verbs.add("wait", app_commands.wait, "wait until apps have ended, with progress", _pace_options())
    logs = verbs.add("logs", app_commands.logs, "write what an app's tasks wrote", _follow())
    logs.add_argument("--job", metavar="JOB", default="", help="of this job only, such as job-00")
    pause = verbs.add(
        "pause",
        app_commands.pause,
        "let apps save checkpoints and give their GPUs back until they are resumed",
        _reason(),
        _pace_options(),
    )
    resume = verbs.add(
        "resume",
        app_commands.resume,
        "bring a paused app back, or submit an ended one again, from its checkpoints; prints the id",
        _submission(),
    )
    resubmit = verbs.add(
        "resubmit",
        app_commands.resubmit,
        "submit an app again, as a new app from the beginning; prints the new id",
        _submission(),
    )
    events = verbs.add("events", app_commands.events, "what happened to an app, a line per event", _json())
    events.add_argument(
        *("-f", "--follow"), action="store_true", help="go on until the app has ended; then as they come, not by time"
    )
    events.add_argument("--all", action="store_true", help="also the progress of jobs, which comes with each heartbeat")
    kill = verbs.add("kill", app_commands.kill, "end apps", _reason())
    for verb in (show, logs, resume, resubmit, events):
        _add_app(verb)
    for verb in (wait, pause, kill):
        _add_app(verb, dest="apps", nargs="+")


def _add_app(verb: _Parser, dest: str = "app", **more: Any) -> None:
    reference = verb.add_argument(dest, metavar="APP", **more)
    # argcomplete calls this for the candidates of a word.
    reference.completer = app_references  # type: ignore[attr-defined]


def _add_job_verbs(verbs: _Verbs) -> None:
    run = verbs.add("run", job_commands.run, "run one command as a job; its flags: submarine job run -h")
    run.words_handler = job_commands.run
    verbs.add("list", job_commands.list_jobs, "list apps that search nothing", _listing())
    show = verbs.add("show", job_commands.show, "show where a job's data lies", _json())
    wait = verbs.add("wait", job_commands.wait, "wait until a job has ended, with progress", _pace_options())
    logs = verbs.add("logs", job_commands.logs, "write what a job's tasks wrote", _follow())
    kill = verbs.add("kill", job_commands.kill, "end a job", _reason())
    for verb in (show, wait, logs, kill):
        verb.add_argument("-name", "--name", required=True, metavar="NAME", help="the job's name, or its app's id")


def _rm_options() -> ArgumentParser:
    # SUPPRESS: the verb's default would overwrite a value given before the verb.
    options = ArgumentParser(add_help=False)
    options.add_argument("--rm", metavar="HOST:PORT", default=SUPPRESS, help="the ResourceManager")
    options.add_argument("--ca", metavar="FILE", default=SUPPRESS, help="the authorities to trust with TLS")
    return options


def _json() -> ArgumentParser:
    options = ArgumentParser(add_help=False)
    options.add_argument("--json", action="store_true", help="JSON, for programs")
    return options


def _listing() -> ArgumentParser:
    options = ArgumentParser(add_help=False)
    output = options.add_mutually_exclusive_group()
    output.add_argument(
        *("-o", "--output"),
        choices=("table", "wide", "json", "name"),
        default="table",
        help="a table that fits the terminal (the default), all columns, JSON for programs, or the ids alone",
    )
    output.add_argument("--json", dest="output", action="store_const", const="json", help="the same as -o json")
    options.add_argument(
        *("--state",),
        action="append",
        choices=STATES,
        metavar="STATE",
        help=f"only these; repeatable: {', '.join(STATES)}; a WAITING app takes part in rounds, but has no GPU",
    )
    options.add_argument("--user", action="append", metavar="USER", help="only the apps of this user; repeatable")
    options.add_argument("--sort", choices=ORDERS, default=NEWEST, help="the order; default newest")
    options.add_argument(
        "--limit",
        type=_count,
        default=LIST_LIMIT,
        metavar="N",
        help=f"at most N; by newest, those that have not ended go first; default {LIST_LIMIT}, 0: all",
    )
    options.add_argument(
        "--watch",
        type=_seconds,
        nargs="?",
        const=WATCH_EVERY_S,
        metavar="SECONDS",
        help=f"list again every SECONDS, by default {WATCH_EVERY_S:g}, until Ctrl-C",
    )
    return options


def _follow() -> ArgumentParser:
    options = ArgumentParser(add_help=False)
    options.add_argument("-f", "--follow", action="store_true", help="go on until the app has ended")
    options.add_argument("--tail", type=_count, default=0, metavar="N", help="begin with the last N lines of each log")
    return options


def _reason() -> ArgumentParser:
    options = ArgumentParser(add_help=False)
    options.add_argument("--reason", default="", help="kept with the app")
    return options


def _pace_options() -> ArgumentParser:
    options = ArgumentParser(add_help=False)
    options.add_argument(
        "--poll", type=_seconds, default=1.0, metavar="SECONDS", help="time between two looks while waiting; default 1"
    )
    options.add_argument(
        "--patience",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long waiting puts up with a ResourceManager that does not answer; default 120",
    )
    return options


def _submission() -> ArgumentParser:
    options = ArgumentParser(add_help=False, parents=[_pace_options()])
    options.add_argument("--wait", action="store_true", help="wait until the app has ended, with progress")
    return options


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ArgumentTypeError(f"not a whole number from 0 on: {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = parse_number(float, text)
    except ValueError:
        value = math.nan
    if not 0.01 <= value <= 1e9:
        raise ArgumentTypeError(f"not a number of seconds: {text!r}")
    return value
