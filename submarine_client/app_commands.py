"""The verbs of `submarine app`."""

from __future__ import annotations

import json
from argparse import Namespace

from submarine_client.advice import advice
from submarine_client.app_list import Selection
from submarine_client.as_json import dump, spec_object
from submarine_client.events import FREQUENT, event_line, event_object
from submarine_client.groups import load_app
from submarine_client.resuming import resumed, spec_of
from submarine_client.session import OK, Session
from submarine_client.show import app_text, spec_text
from themis.wire.app_document import app_document
from themis.wire.app_status import is_paused


def submit(session: Session, arguments: Namespace) -> int:
    """Submit a group. Without `--wait`, standard output holds only the app's id."""
    app = load_app(arguments.group)
    with session.connect() as client:
        return session.submit(client, app, wait=arguments.wait, notes=advice(app))


def resume(session: Session, arguments: Namespace) -> int:
    """Bring a paused app back, or submit an ended one again from its checkpoints.

    Without `--wait`, standard output holds only the id of the app that runs then.
    """
    with session.connect() as client:
        app = client.show(arguments.app)
        if not is_paused(app):
            whole = client.show(app.app_id, environment=True)
            return session.submit(client, resumed(whole), wait=arguments.wait)
        client.resume(app.app_id)
        session.terminal.say(app.app_id)
        return session.wait(client, [app.app_id]) if arguments.wait else OK


def pause(session: Session, arguments: Namespace) -> int:
    """Pause apps, and wait until they are. All of them are looked up before the first one is asked."""
    with session.connect() as client:
        apps = {app.app_id: app for app in map(client.show, arguments.apps)}
        for app_id in apps:
            client.pause(app_id, arguments.reason)
        session.wait_at_rest(client, list(apps))
    return OK


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
    session.terminal.say(f"{arguments.group} is valid\n\n{spec_text(app, session.terminal.width)}")
    if summary:
        session.terminal.say(f"\n{summary}")
    for note in advice(app):
        session.terminal.note(note)
    return OK


def list_apps(session: Session, arguments: Namespace) -> int:
    """List apps."""
    return session.list_apps(selection(arguments), arguments, what="apps")


def selection(arguments: Namespace, *, tuner: str = "") -> Selection:
    """Return the apps that the flags of a list select."""
    return Selection(
        states=tuple(arguments.state or ()),
        users=tuple(arguments.user or ()),
        tuner=tuner,
        sort=arguments.sort,
        limit=arguments.limit,
    )


def show(session: Session, arguments: Namespace) -> int:
    """Show one app."""
    with session.connect() as client:
        app = client.show(arguments.app)
    if arguments.json:
        session.terminal.say(dump(app_document(app)))
    else:
        session.terminal.show(app_text(app, session.terminal.width))
    return OK


def wait(session: Session, arguments: Namespace) -> int:
    """Wait for apps."""
    with session.connect() as client:
        ids = [client.show(reference).app_id for reference in arguments.apps]
        return session.wait(client, list(dict.fromkeys(ids)))


def logs(session: Session, arguments: Namespace) -> int:
    """Print an app's logs."""
    with session.connect() as client:
        session.write_logs(
            client, client.show(arguments.app).app_id, arguments.job, follow=arguments.follow, tail=arguments.tail
        )
    return OK


def kill(session: Session, arguments: Namespace) -> int:
    """Kill apps. All of them are looked up before the first one is killed."""
    with session.connect() as client:
        apps = {app.app_id: app for app in map(client.show, arguments.apps)}
        for app in apps.values():
            session.kill(client, app, arguments.reason)
    return OK


def resubmit(session: Session, arguments: Namespace) -> int:
    """Submit an app's specification again, as a new app without checkpoints. Prints the new id."""
    with session.connect() as client:
        app = client.show(arguments.app, environment=True)
        return session.submit(client, spec_of(app), wait=arguments.wait)


def events(session: Session, arguments: Namespace) -> int:
    """Print what happened to an app, by time. As JSON, each event is a line."""
    with session.connect() as client:
        app = client.show(arguments.app)
        seen = client.watch(app.app_id, follow=arguments.follow)
        # App masters report what happened a moment ago, so the log is not quite in the order of times.
        for event in seen if arguments.follow else sorted(seen, key=lambda event: event.time_s):
            if arguments.all or event.kind not in FREQUENT:
                line = event_line(event, app.device_noun, session.terminal.width)
                session.terminal.say(json.dumps(event_object(event)) if arguments.json else line)
    return OK
