"""Connections of gRPC's port: a peer that takes many loses its oldest, and app masters keep theirs."""

import asyncio
import contextlib
import socket
import sqlite3
import subprocess
import sys

import pytest

from rm_plugin.service import connection_shares
from rm_plugin.service.connection_shares import FEWEST, ConnectionShares

MOST = 40


class Port:
    """A port of this process, and connections to it, of which both ends are here."""

    def __init__(self, stack):
        self._stack = stack
        self._server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.number = self._server.getsockname()[1]

    def open(self, count):
        """Return the clients' ends."""
        clients = []
        for _ in range(count):
            clients.append(self._stack.enter_context(socket.create_connection(("127.0.0.1", self.number))))
            self._stack.enter_context(self._server.accept()[0])
        return clients


@pytest.fixture
def port():
    with contextlib.ExitStack() as stack:
        yield Port(stack)


def name_of(client):
    """The client's end as gRPC names it at the other end."""
    host, number = client.getsockname()
    return f"ipv4:{host}:{number}"


def ended(clients):
    """Which of these connections the server has ended, by place."""
    found = []
    for place, client in enumerate(clients):
        with contextlib.suppress(BlockingIOError):
            if client.recv(1, socket.MSG_DONTWAIT) == b"":
                found.append(place)
    return found


def test_while_a_quarter_is_free_no_connection_is_ended(port):
    shares = ConnectionShares(MOST)
    clients = port.open(MOST * 3 // 4)
    assert shares.shed(port.number) == 0
    assert ended(clients) == []


def test_oldest_connections_of_the_peer_with_the_most_are_ended(port):
    shares = ConnectionShares(MOST)
    # Which are older is known of those that were open at an earlier look.
    first = port.open(25)
    shares.shed(port.number)
    last = port.open(10)
    assert shares.shed(port.number) == 35 - MOST // 2
    assert len(ended(first)) == 35 - MOST // 2
    assert ended(last) == []


def test_look_that_ended_nothing_is_repeated_only_for_more_files_or_after_a_while(port, monkeypatch):
    monkeypatch.setattr(connection_shares, "LOOK_S", 0.001)
    monkeypatch.setattr(connection_shares, "IDLE_S", 3600.0)
    shares = ConnectionShares(MOST)
    handles, looks = [MOST], []
    monkeypatch.setattr(connection_shares, "_open_handles", lambda: handles[0])
    monkeypatch.setattr(shares, "shed", lambda port: looks.append(handles[0]) or 0)

    async def scenario():
        looking = asyncio.create_task(shares.run(port.number))
        for wanted in ([MOST], [MOST, MOST + 1]):
            async with asyncio.timeout(20):
                while looks != wanted:
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            assert looks == wanted
            handles[0] += 1
        monkeypatch.setattr(connection_shares, "IDLE_S", 0.0)
        async with asyncio.timeout(20):
            while len(looks) < 6:
                await asyncio.sleep(0.001)
        looking.cancel()

    asyncio.run(scenario())


def test_users_of_one_machine_are_peers_of_their_own(port, monkeypatch):
    mine = port.open(FEWEST)
    my_ends = [client.getsockname() for client in mine]

    def uids(connections):
        return {peer: 1 if peer in my_ends else 2 for peer, _ in connections}

    monkeypatch.setattr(connection_shares, "local_peer_uids", uids)
    others = port.open(30)
    assert ConnectionShares(MOST).shed(port.number) == FEWEST + len(others) - MOST // 2
    assert ended(mine) == []


def test_connections_of_sessions_stay_and_a_user_with_a_token_has_a_share_of_its_own(port):
    shares = ConnectionShares(MOST)
    sessions, with_token, strangers = port.open(12), port.open(6), port.open(20)
    for client in with_token:
        shares.note_user(name_of(client), "ann")
    with contextlib.ExitStack() as open_sessions:
        for client in sessions:
            open_sessions.enter_context(shares.session(name_of(client)))
        # A peer keeps its fewest connections, though more than half of the places are taken then.
        assert shares.shed(port.number) == len(strangers) - FEWEST
        assert ended([*sessions, *with_token]) == []


def test_connection_of_a_session_that_has_ended_is_one_like_others(port):
    shares = ConnectionShares(MOST)
    clients = port.open(35)
    with contextlib.ExitStack() as open_sessions:
        for client in clients:
            open_sessions.enter_context(shares.session(name_of(client)))
        assert shares.shed(port.number) == 0
    assert shares.shed(port.number) == 35 - MOST // 2


def test_what_is_not_a_connection_of_the_port_is_left_alone(port):
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket(socket.AF_UNIX) as local:
        clients = [socket.create_connection(other.getsockname()) for _ in range(MOST)]
        accepted = [other.accept()[0] for _ in clients]
        assert ConnectionShares(MOST).shed(port.number) == 0
        assert ended(clients) == []
        assert local.fileno() > 0
        for each in (*clients, *accepted):
            each.close()


def test_a_look_at_connections_leaves_the_locks_of_the_store_alone(port, tmp_path):
    path = tmp_path / "state.db"
    # A program that closes the store removes its log, unless SQLite sees the lock of another one.
    other = f"import sqlite3; db = sqlite3.connect({str(path)!r}); db.execute('SELECT count(*) FROM t'); db.close()"
    with contextlib.closing(sqlite3.connect(path)) as store:
        store.execute("PRAGMA journal_mode=WAL")
        store.execute("CREATE TABLE t (x)")
        store.commit()
        ConnectionShares(MOST).shed(port.number)
        subprocess.run([sys.executable, "-c", other], check=True)
        store.execute("INSERT INTO t VALUES (1)")
        store.commit()
        with contextlib.closing(sqlite3.connect(path)) as reader:
            assert reader.execute("SELECT count(*) FROM t").fetchone() == (1,)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("ipv4:10.0.0.7:43122", ("10.0.0.7", 43122)),
        ("ipv6:%5B::1%5D:43122", ("::1", 43122)),
        ("ipv6:%5B::ffff:10.0.0.7%5D:43122", ("10.0.0.7", 43122)),
        ("unix:", ("", 0)),
    ],
)
def test_peer_is_found_by_the_name_that_grpc_gives_it(name, end):
    assert connection_shares._end(name) == end
