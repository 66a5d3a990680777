"""The verbs about the cluster as a whole: `submarine cluster` and `submarine top`."""

from __future__ import annotations

from argparse import Namespace

from msgspec import to_builtins

from submarine_client.as_json import dump
from submarine_client.session import OK, Session
from submarine_client.usage import cluster_object, cluster_text, top_text, usage_by_user


def cluster(session: Session, arguments: Namespace) -> int:
    """Show the machines, and how many of their devices are leased."""
    with session.connect() as client:
        status = client.cluster()
    text = dump(cluster_object(status)) if arguments.json else cluster_text(status, session.terminal.width)
    session.terminal.say(text)
    return OK


def top(session: Session, arguments: Namespace) -> int:
    """Show what each user's apps hold and have used."""
    with session.connect() as client:
        usage = usage_by_user(client.list())
    if arguments.json:
        session.terminal.say(dump(to_builtins(usage)))
    elif usage:
        session.terminal.say(top_text(usage, session.terminal.width))
    else:
        session.terminal.note("no apps")
    return OK
