"""The verbs of `submarine app`."""

from __future__ import annotations

from argparse import Namespace

from submarine_client.as_json import app_object, dump, spec_object
from submarine_client.groups import load_app
from submarine_client.resuming import resumed
from submarine_client.session import OK, Session
from submarine_client.show import app_text, spec_text


def submit(session: Session, arguments: Namespace) -> int:
    """Submit a group. Without `--wait`, standard output holds only the app's id."""
    app = load_app(arguments.group)
    with session.connect() as client:
        reply = client.submission(app)
        session.say_submitted(reply)
        return session.wait(client, [reply.app_id]) if arguments.wait else OK


def resume(session: Session, arguments: Namespace) -> int:
    """Submit an ended app again, to go on from its checkpoints. Without `--wait`, standard output holds only the id."""
    with session.connect() as client:
        reply = client.submission(resumed(client.show(arguments.app)))
        session.say_submitted(reply)
        return session.wait(client, [reply.app_id]) if arguments.wait else OK


def validate(session: Session, arguments: Namespace) -> int:
    """Check a group on this machine, or by the ResourceManager as well."""
    app = load_app(arguments.group)
    summary = ""
    if arguments.ask_rm:
        with session.connect() as client:
            summary = client.validate(app)
    if arguments.json:
        session.terminal.say(dump(spec_object(app)))
        return OK
    session.terminal.say(f"{arguments.group} is valid\n\n{spec_text(app)}")
    if summary:
        session.terminal.say(f"\n{summary}")
    return OK


def list_apps(session: Session, arguments: Namespace) -> int:
    """List apps."""
    with session.connect() as client:
        apps, more = client.first(arguments.state or (), most=arguments.limit or None)
    session.say_apps(apps, more, as_json=arguments.json, what="apps")
    return OK


def show(session: Session, arguments: Namespace) -> int:
    """Show one app."""
    with session.connect() as client:
        app = client.show(arguments.app)
    session.terminal.say(dump(app_object(app)) if arguments.json else app_text(app))
    return OK


def wait(session: Session, arguments: Namespace) -> int:
    """Wait for apps."""
    with session.connect() as client:
        ids = [client.show(reference).app_id for reference in arguments.apps]
        return session.wait(client, list(dict.fromkeys(ids)))


def logs(session: Session, arguments: Namespace) -> int:
    """Print an app's logs."""
    with session.connect() as client:
        session.write_logs(client, client.show(arguments.app).app_id, arguments.job, follow=arguments.follow)
    return OK


def kill(session: Session, arguments: Namespace) -> int:
    """Kill an app."""
    with session.connect() as client:
        session.kill(client, client.show(arguments.app), arguments.reason)
    return OK
