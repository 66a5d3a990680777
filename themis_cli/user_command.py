"""`themis user`: give users of the network tokens, list them, and revoke them."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from themis_cli.parsers import Subcommands
from themis_cli.rm_command import add_connection_to, admin_of

if TYPE_CHECKING:
    from themis.wire import themis_pb2 as pb

_DAY_S = 86_400.0


def add_to(commands: Subcommands) -> None:
    """Add `user add`, `list` and `revoke`."""
    group = commands.add_parser("user", help="tokens of users on other machines").add_subparsers(
        metavar="COMMAND", required=True
    )
    add = group.add_parser("add", help="give a user a token, and print it: it is shown this once")
    add.add_argument(
        "--days", type=float, default=365.0, metavar="DAYS", help="how long the token is valid; default: 365"
    )
    add.set_defaults(run=_add)
    listed = group.add_parser("list", help="list the users who have tokens")
    listed.set_defaults(run=_list)
    revoke = group.add_parser("revoke", help="make a user's token invalid")
    revoke.set_defaults(run=_revoke)
    for parser in (add, revoke):
        parser.add_argument("user", metavar="USER", help="name of the user")
    for parser in (add, listed, revoke):
        add_connection_to(parser)


def _add(options: argparse.Namespace) -> int:
    with admin_of(options) as admin:
        token = admin.add_user(options.user, valid_s=options.days * _DAY_S)
    sys.stdout.write(f"{token}\n")
    sys.stderr.write(
        f"the token of {options.user}, which is not shown again: put it into ~/.config/themis/HOST_PORT/token"
        " (mode 600) of this user, where HOST:PORT is the ResourceManager's address there, or into THEMIS_TOKEN\n"
    )
    return 0


def _list(options: argparse.Namespace) -> int:
    from submarine_client.table import table
    from submarine_client.terminal import Terminal

    with admin_of(options) as admin:
        users = admin.users()
    rows = [
        (user.user, _day(user.created_at_s), user.created_by, _day(user.expires_at_s), _role(user)) for user in users
    ]
    terminal = Terminal.of_process()
    terminal.say(table(("USER", "ADDED", "BY", "VALID UNTIL", "ROLE"), rows, terminal.width))
    return 0


def _role(user: pb.UserStatus) -> str:
    if user.is_admin:
        return "admin"
    return f"admin of {', '.join(user.queues)}" if user.queues else "user"


def _revoke(options: argparse.Namespace) -> int:
    with admin_of(options) as admin:
        admin.revoke_user(options.user)
    sys.stdout.write(f"the token of {options.user} is no longer valid\n")
    return 0


def _day(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).astimezone().date().isoformat()
