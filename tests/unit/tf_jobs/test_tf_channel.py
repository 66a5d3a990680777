"""Connections between the tasks of a replay job: who is taken in, and what bad company does."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
from free_ports import free_port
from msgspec.structs import replace
from replay_gang import tf_config

from tf_jobs import peers, replay_job, waiting
from tf_jobs.addresses import Address, read_addresses
from tf_jobs.channel import LINE_LIMIT_BYTES
from tf_jobs.context import read_context
from tf_jobs.peers import Chief, Follower
from tf_jobs.waiting import Waiting
from themis.errors import InputError, ThemisError


@pytest.fixture
def context(tmp_path):
    """The chief's context, of three tasks."""
    addresses = [f"127.0.0.{i + 1}:{free_port(f'127.0.0.{i + 1}')}" for i in range(3)]
    environment = {
        "THEMIS_APP_ID": "a",
        "THEMIS_JOB_ID": "j",
        "THEMIS_TASKS": "3",
        "THEMIS_INCARNATION": "4",
        "THEMIS_CHECKPOINT_URI": str(tmp_path / "ck"),
        "THEMIS_JOB_DIR": str(tmp_path / "job"),
        "TF_CONFIG": tf_config(addresses, 0),
    }
    return read_context("replay", environment)


def as_task(context, index):
    return replace(context, task_index=index)


@contextmanager
def dialled(context):
    """A plain connection to the chief."""
    address = context.addresses[0]
    with socket.create_connection((address.host, address.port), 2.0) as connected:
        yield connected


def poll_until(condition, *sides, timeout_s=30.0):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        for side in sides:
            side.poll()
        time.sleep(0.002)


def answer(connected, chief):
    """What the chief says to a connection before it hangs up on it."""
    connected.setblocking(False)
    heard = b""
    deadline_s = time.monotonic() + 30.0
    while time.monotonic() < deadline_s:
        chief.poll()
        try:
            data = connected.recv(1000)
        except BlockingIOError:
            time.sleep(0.002)
            continue
        except ConnectionResetError:
            return heard
        if not data:
            return heard
        heard += data
    raise AssertionError("the chief did not hang up")


def test_a_gang_connects_requests_a_stop_and_receives_the_end(context, monkeypatch):
    monkeypatch.setattr(peers, "END_LIMIT_S", 0.05)
    with (
        closing(Chief(context)) as chief,
        closing(Follower(as_task(context, 1))) as one,
        closing(Follower(as_task(context, 2))) as two,
    ):
        poll_until(lambda: one.joined, chief, one)
        assert (chief.missing(), chief.stop_asked) == ([2], False)
        poll_until(lambda: two.joined, chief, two)
        assert chief.missing() == []
        two.ask_stop()
        poll_until(lambda: chief.stop_asked, chief)
        chief.publish_end(75)
        poll_until(lambda: one.end_code == two.end_code == 75, one, two)
        assert (chief.dead, one.dead, two.dead) == (None, None, None)


def test_an_end_that_crosses_a_stop_request_is_heard(context, monkeypatch):
    monkeypatch.setattr(peers, "END_LIMIT_S", 0.05)
    context = replace(context, tasks=2)
    with closing(Chief(context)) as chief, closing(Follower(as_task(context, 1))) as one:
        poll_until(lambda: one.joined, chief, one)
        one.ask_stop()
        chief.publish_end(0)
        chief.close()
        one.poll()
        assert (one.end_code, one.dead) == (0, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"app": "b"},
        {"job": "k"},
        {"incarnation": 3},
        {"task": 0},
        {"task": 3},
        {"task": "1"},
        {"task": None},
        {"say": "welcome"},
        {"more": 1},
    ],
)
def test_peers_of_other_incarnations_are_refused(context, wrong):
    hello = {"say": "hello", "app": "a", "job": "j", "incarnation": 4, "task": 1} | wrong
    with closing(Chief(context)) as chief, dialled(context) as connected:
        connected.sendall(json.dumps(hello).encode() + b"\n")
        heard = json.loads(answer(connected, chief))
        assert heard == {"say": "refused", "why": "the chief there is of job 'j' of 'a', incarnation 4"}
        assert chief.missing() == [1, 2]


def test_a_second_task_of_the_same_index_is_refused_and_goes_on_trying(context):
    with closing(Chief(context)) as chief, closing(Follower(as_task(context, 1))) as first:
        poll_until(lambda: first.joined, chief, first)
        with closing(Follower(as_task(context, 1))) as second:
            poll_until(lambda: second.trouble == "this task is there already", chief, second)
            assert (second.joined, second.dead) == (False, None)
        assert chief.dead is None


def test_a_task_ignores_strangers_until_its_chief_listens(context):
    with closing(Follower(as_task(context, 1))) as one:
        with peers.listen(context.addresses[0]) as listener:
            one.poll()
            stranger, _ = listener.accept()
            with stranger:
                stranger.sendall(b'{"say": "end", "code": 0}\n')
        poll_until(lambda: "Connection refused" in one.trouble, one)
        assert (one.joined, one.dead, one.end_code) == (False, None, None)
        with closing(Chief(context)) as chief:
            poll_until(lambda: one.joined, chief, one)


def test_a_refused_task_remembers_why(context, monkeypatch):
    followers = []

    class Noted(Follower):
        def __init__(self, context):
            super().__init__(context)
            followers.append(self)

    def now_s():
        """Its time is up once it was refused."""
        return 1e6 if followers and "incarnation" in followers[0].trouble else 0.0

    monkeypatch.setattr(replay_job, "Follower", Noted)
    monkeypatch.setattr(replay_job, "time", SimpleNamespace(monotonic=now_s))
    older = replace(as_task(context, 1), incarnation=3)
    with closing(Chief(context)) as chief, ThreadPoolExecutor(1) as pool:
        following = pool.submit(replay_job.follow_chief, older)
        poll_until(following.done, chief)
        with pytest.raises(ThemisError, match="the chief there is of job 'j' of 'a', incarnation 4"):
            following.result()


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b"\xff\xfe\n", b"[" * 3000 + b"\n", b"x" * (2 * LINE_LIMIT_BYTES)],
    ids=["http", "list", "binary", "deep", "endless"],
)
def test_malformed_messages_close_the_connection(context, sent):
    with closing(Chief(context)) as chief, dialled(context) as connected:
        connected.sendall(sent)
        answer(connected, chief)
        assert (chief.missing(), chief.dead) == ([1, 2], None)


def test_a_silent_connection_does_not_block_others(context):
    context = replace(context, tasks=2)
    with closing(Chief(context)) as chief, dialled(context) as silent, closing(Follower(as_task(context, 1))) as one:
        poll_until(lambda: one.joined, chief, one)
        assert answer(silent, chief) == b"", "all have come: it is hung up on"
        with pytest.raises(ConnectionRefusedError), dialled(context):
            pass


def test_a_message_may_come_in_pieces(context):
    with closing(Chief(context)) as chief, dialled(context) as connected:
        whole = json.dumps(peers.hello(context, 2)).encode() + b'\n{"say": "stop"}\n'
        for begin in range(0, len(whole), 7):
            connected.sendall(whole[begin : begin + 7])
            chief.poll()
        poll_until(lambda: chief.stop_asked, chief)
        assert chief.missing() == [1]


def test_a_task_that_dies_before_all_have_come_fails_the_chief(context):
    with closing(Waiting(context)) as chief:
        with dialled(context) as connected:
            connected.sendall(json.dumps(peers.hello(context, 1)).encode() + b"\n")
        with pytest.raises(ThemisError, match="another task of the job died: 1"):
            chief.for_peers()


def test_a_stop_before_the_chief_comes_is_passed_on_to_it(context):
    with closing(Follower(as_task(context, 1))) as one:
        one.poll()
        one.ask_stop()
        with closing(Chief(context)) as chief:
            poll_until(lambda: chief.stop_asked, one, chief)


def test_stops_of_other_incarnations_are_ignored(context):
    older = replace(as_task(context, 1), incarnation=3)
    with closing(Chief(context)) as chief, closing(Follower(older)) as stray:
        stray.ask_stop()
        poll_until(lambda: "incarnation 4" in stray.trouble, chief, stray)
        assert (chief.stop_asked, chief.dead) == (False, None)


def test_a_chief_on_a_loopback_address_is_reached_there_alone():
    address = Address("127.0.0.2", free_port("127.0.0.2"))
    with peers.listen(address):
        peers.connect(address).close()
        with pytest.raises(ConnectionRefusedError):
            peers.connect(replace(address, host="127.0.0.3"))


@pytest.mark.parametrize("host", ["worker-0.example", "10.1.2.3"])
def test_a_chief_elsewhere_listens_on_all_interfaces(host):
    """Neither address is one of this machine: in a container, the address of its machine is not either."""
    port = free_port("127.0.0.1")
    with peers.listen(Address(host, port)) as listener:
        assert listener.getsockname()[0] in ("::", "0.0.0.0")
        peers.connect(Address("127.0.0.1", port)).close()


def test_a_connection_that_met_itself_is_dropped_and_leaves_the_port_free(monkeypatch):
    address = Address("127.0.0.1", free_port("127.0.0.1"))
    plain = socket.create_connection
    # What the kernel's choice of a port does once in some tens of thousands of times.
    monkeypatch.setattr(socket, "create_connection", lambda where, limit_s: plain(where, limit_s, where))
    with pytest.raises(ConnectionRefusedError, match="no process listens there yet"):
        peers.connect(address)
    peers.listen(address).close()


def test_a_chief_names_the_tasks_that_did_not_come(context, monkeypatch):
    monkeypatch.setattr(waiting, "START_LIMIT_S", 0.1)
    with closing(Waiting(context)) as chief, pytest.raises(ThemisError, match=r"came up within 0.1 s: \[1, 2\]"):
        chief.for_peers()


def test_a_task_names_the_chief_that_did_not_come(context, monkeypatch):
    monkeypatch.setattr(replay_job, "START_LIMIT_S", 0.1)
    with pytest.raises(ThemisError, match=f"within 0.1 s: '{context.addresses[0]}'.*Connection refused"):
        replay_job.follow_chief(as_task(context, 1))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("m0:80", Address("m0", 80)),
        ("[::1]:80", Address("::1", 80)),
        ("10.0.0.1:65535", Address("10.0.0.1", 65535)),
    ],
)
def test_addresses(text, address):
    read = read_addresses({"TF_CONFIG": tf_config(["m1:1", text], 1)}, tasks=2, task_index=1)
    assert read == (Address("m1", 1), address)
    assert str(address) == text


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "{",
        "[]",
        '{"cluster": {"worker": 1}, "task": {"index": 0}}',
        tf_config(["m0:1"], 0),
        tf_config(["m0:1", "m1:1"], 1),
        tf_config(["m0:1", "m1"], 0),
        tf_config(["m0:1", ":1"], 0),
        tf_config(["m0:1", "m1:0"], 0),
        tf_config(["m0:1", "m1:65536"], 0),
        tf_config(["m0:1", "::1:80"], 0),
    ],
)
def test_addresses_that_cannot_be_used(wrong):
    with pytest.raises(InputError):
        read_addresses({"TF_CONFIG": wrong}, tasks=2, task_index=0)
