"""The verbs of `submarine job`: apps of one job, addressed by name as in Hadoop's Submarine."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from submarine_client import job_app
from submarine_client.address import rm_address
from submarine_client.app_commands import selection
from submarine_client.as_json import dump
from submarine_client.job_flags import Given, parse_flags, wants_help
from submarine_client.job_help import help_text
from submarine_client.job_yaml import merge, read_job_yaml
from submarine_client.session import OK, Session
from submarine_client.show import spec_text
from submarine_client.table import MISSING
from submarine_client.terminal import harmless
from themis.config.tuner_settings import SINGLE
from themis.parser import version_line
from themis.wire import themis_pb2 as pb
from themis.wire.app_document import app_document


def read_options(words: Sequence[str]) -> Given:
    """Return the options of `job run`: its flags, and the job YAML that they name."""
    flags = parse_flags(words)
    if "f" not in flags:
        return flags
    path = flags["f"][0]
    return merge(flags, read_job_yaml(Path(path)), path)


def run(session: Session, arguments: Namespace) -> int:
    """Submit one job."""
    words: Sequence[str] = arguments.words
    if wants_help(words):
        session.terminal.say(help_text())
        return OK
    options = read_options(words)
    if "version" in options:
        session.terminal.say(version_line("submarine"))
        return OK
    app = job_app.build_job_app(options, words)
    for note in job_app.notes(options):
        session.terminal.note(note)
    if "verbose" in options:
        for line in spec_text(app).splitlines():
            session.terminal.note(line)
    if "rm" in options:
        session = replace(session, address=rm_address(options["rm"][0], {}))
    if "ca" in options:
        session = replace(session, ca=options["ca"][0])
    board = job_app.tensorboard_note(options, app)
    notes = [board] if board else []
    with session.connect() as client:
        return session.submit(client, app, wait="wait_job_finish" in options, notes=notes)


def list_jobs(session: Session, arguments: Namespace) -> int:
    """List the apps that do not search: those with the tuner `single`."""
    return session.list_apps(selection(arguments, tuner=SINGLE), arguments, what="jobs")


def show(session: Session, arguments: Namespace) -> int:
    """Show the paths of one job's data."""
    with session.connect() as client:
        app = client.show(arguments.name, environment=True)
    session.terminal.say(dump(app_document(app)) if arguments.json else meta_info(app))
    return OK


def wait(session: Session, arguments: Namespace) -> int:
    """Wait for one job."""
    with session.connect() as client:
        return session.wait(client, [client.show(arguments.name).app_id])


def logs(session: Session, arguments: Namespace) -> int:
    """Print one job's logs."""
    with session.connect() as client:
        session.write_logs(client, client.show(arguments.name).app_id, "", follow=arguments.follow, tail=arguments.tail)
    return OK


def kill(session: Session, arguments: Namespace) -> int:
    """Kill one job."""
    with session.connect() as client:
        session.kill(client, client.show(arguments.name), arguments.reason)
    return OK


def meta_info(app: pb.AppStatus) -> str:
    """Return the block that Submarine prints for a job, with `-` for values that only `job run` sets."""
    environment = app.spec.program.environment
    fields = (
        ("Application Id", app.app_id),
        ("Input Path", environment.get(job_app.INPUT_PATH, MISSING)),
        ("Saved Model Path", environment.get(job_app.SAVED_MODEL_PATH, MISSING)),
        ("Checkpoint Path", environment.get(job_app.CHECKPOINT_PATH, MISSING)),
        ("Run Parameters", environment.get(job_app.RUN_PARAMETERS, MISSING)),
    )
    return "\n".join(["Job Meta Info:", *(f"\t{label}: {harmless(value)}" for label, value in fields)])
