"""The verbs about the cluster as a whole: `submarine cluster`, `submarine top` and `submarine whoami`."""

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


def whoami(session: Session, arguments: Namespace) -> int:
    """Show as whom the ResourceManager knows the caller."""
    with session.connect() as client:
        status = client.cluster()
    who = {"user": status.user, "is_admin": status.is_admin, "cluster": status.cluster.name}
    role = "an administrator" if status.is_admin else "a user"
    text = f"{status.user}, {role} of the cluster {status.cluster.name}"
    session.terminal.say(dump(who) if arguments.json else text)
    return OK
