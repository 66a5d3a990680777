"""Two users who do not trust each other: what one of them tries against the other's app, and what it gets."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import grpc
import pytest
from live_rm import live, replay_app, settings
from msgspec.structs import replace

from rm_plugin.service.grant_limit import GrantLimit
from submarine_client.admin import Admin
from submarine_client.client import Client
from themis.apps import ProgramSpec
from themis.errors import InputError, NotAllowedError
from themis.identity import NoIdentityError
from themis.queues import ROOT, AppOwner
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message
from themis_cli.main import main as themis

ANN_S_APP = replace(
    replay_app("ann-s", iterations=2_000),
    user="",
    program=ProgramSpec(
        name="replay",
        arguments={"model": "resnet50", "serial_iteration_s": 1.5},
        environment={"PASSWORD": "of-ann"},
    ),
)


async def status(call) -> grpc.StatusCode:
    """The status with which a call or a stream is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    return raised.value.code()


async def token(rm, user: str) -> str:
    return await asyncio.to_thread(lambda: Admin(rm.address).add_user(user, valid_s=60.0))


def test_user_cannot_touch_or_read_another_users_app(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path, page="127.0.0.1:0")) as rm, grpc.aio.insecure_channel(rm.address) as channel:
            stub = rpc.ClientServiceStub(channel)
            operator = rpc.AdminServiceStub(channel)
            ann = {"metadata": (("authorization", f"Bearer {await token(rm, 'ann')}"),)}
            bob_token = await token(rm, "bob")
            bob = {"metadata": (("authorization", f"Bearer {bob_token}"),)}
            message = pb.SubmitRequest(spec=app_to_message(ANN_S_APP))
            app = (await stub.Submit(message, **ann)).app_id
            show, show_values = pb.ShowRequest(app_id=app), pb.ShowRequest(app_id=app, environment=True)
            seen = await stub.Show(show, **ann)
            assert seen.user == "ann" and dict(seen.spec.program.environment) == {"PASSWORD": "(hidden)"}
            seen = await stub.Show(show_values, **ann)
            assert dict(seen.spec.program.environment) == {"PASSWORD": "of-ann"}
            assert not rm.events("user_acted", app)
            await rm.event("job_progress", app)
            # What its app master said of its own machines.
            entry = rm.server.manager.entries.get(app)
            entry.grant_limit = GrantLimit(reason="no room for secret", until_s=float("inf"))
            assert (await stub.Show(show, **ann)).waits_for == "no room for secret"

            # As another user, or as an operator.
            message.spec.user = "ann"
            denied = grpc.StatusCode.PERMISSION_DENIED
            assert await status(stub.Submit(message, **bob)) is denied
            assert await status(stub.Validate(message, **bob)) is denied
            assert await status(stub.Kill(pb.KillRequest(app_id=app), **bob)) is denied
            assert await status(stub.Kill(pb.KillRequest(app_id="ann-s"), **bob)) is denied
            assert await status(stub.Pause(pb.PauseRequest(app_id=app), **bob)) is denied
            assert await status(stub.Resume(pb.ResumeRequest(app_id=app), **bob)) is denied
            assert await status(stub.Logs(pb.LogsRequest(app_id=app), **bob)) is denied
            assert await status(stub.Logs(pb.LogsRequest(app_id=app, job_id="am"), **bob)) is denied
            for call in (
                operator.Stop(pb.StopRequest(), **bob),
                operator.Drain(pb.DrainRequest(machine_id="small-00", drained=True), **bob),
                operator.AddUser(pb.AddUserRequest(user="eve", valid_s=60), **bob),
                operator.ListUsers(pb.ListUsersRequest(), **bob),
                operator.RevokeUser(pb.RevokeUserRequest(user="ann"), **bob),
            ):
                assert await status(call) is denied

            # What it may see: that the app exists, and what it holds.
            seen = await stub.Show(show, **bob)
            assert (seen.user, seen.state, len(seen.leases)) == ("ann", "RUNNING", 1)
            listed = (await stub.List(pb.ListRequest(), **bob)).apps[0]
            for shown in (seen, listed, await stub.Show(show_values, **bob)):
                assert not shown.HasField("spec") and not shown.jobs and not shown.folder and not shown.page_url
                assert not shown.waits_for
            for watched in (app, ""):
                events = [e async for e in stub.Watch(pb.WatchRequest(app_id=watched), **bob) if e.app_id == app]
                assert {"app_submitted", "lease_granted"} <= {event.kind for event in events}
                assert not {"job_progress", "job_state", "tasks_started"} & {event.kind for event in events}
            await _reads_pages(rm, app, bob_token)

            # The same calls by the owner.
            assert [chunk async for chunk in stub.Logs(pb.LogsRequest(app_id=app), **ann)]
            await stub.Kill(pb.KillRequest(app_id=app), **ann)
            assert (await rm.ended(app)).state == "KILLED"
            (wanted,) = rm.events("app_kill_wanted", app)
            assert wanted.detail["user"] == "ann"

    asyncio.run(scenario())


async def _reads_pages(rm, app: str, bob_token: str) -> None:
    root = rm.server.manager.page_url
    readers = ({"Authorization": f"Bearer {bob_token}"}, {"Host": "evil.example"})
    async with aiohttp.ClientSession() as session:

        async def get(path: str, headers: dict[str, str]) -> str:
            async with session.get(root + path, headers=headers) as answer:
                assert answer.status == 200
                return await answer.text()

        # Without a header, this process reads as the service's own user, by its connection.
        assert json.loads(await get(f"api/v1/apps/{app}", {}))["jobs"][0]["hyper_parameters"]
        for reader in readers:
            document = json.loads(await get(f"api/v1/apps/{app}", reader))
            assert (document["user"], len(document["leases"])) == ("ann", 1)
            assert not any(job["hyper_parameters"] or job["loss"] for job in document["jobs"])
            assert document["page_url"] is None and document["best_job"] is None
            assert document["folder"] is document["waiting"] is document["estimate"] is None
            assert json.loads(await get(f"api/v1/apps/{app}/losses", reader))["jobs"] == []
            events = json.loads(await get(f"api/v1/events?app={app}&limit=500", reader))["events"]
            assert events and "job_progress" not in {event["kind"] for event in events}
            page = await get(f"apps/{app}", reader)
            assert "learning_rate" not in page and "Newest events" not in page
            assert "secret" not in page and "What it may expect" not in page and f"apps/{app}<" not in page
        async with session.get(root, headers={"Authorization": "Bearer themis_wrong"}) as answer:
            assert answer.status == 401 and "Basic" in answer.headers["WWW-Authenticate"]
        basic = base64.b64encode(f"bob:{bob_token}".encode()).decode()
        async with session.get(root + "login") as answer:
            assert answer.status == 401
        async with session.get(root + "login", headers={"Authorization": f"Basic {basic}"}) as answer:
            assert answer.status == 200


def test_user_who_floods_calls_is_refused_and_another_is_not(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("rm_plugin.service.identities.MAX_CALLS", 4.0)
    monkeypatch.setattr("rm_plugin.service.identities.CALLS_PER_S", 0.0)

    async def scenario() -> None:
        async with live(settings(tmp_path, page="127.0.0.1:0")) as rm, grpc.aio.insecure_channel(rm.address) as channel:
            stub = rpc.ClientServiceStub(channel)
            ann, bob = [{"authorization": f"Bearer {await token(rm, user)}"} for user in ("ann", "bob")]
            calls = {"metadata": tuple(bob.items())}
            for _ in range(4):
                await stub.List(pb.ListRequest(), **calls)
            assert await status(stub.List(pb.ListRequest(), **calls)) is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await status(stub.Watch(pb.WatchRequest(), **calls)) is grpc.StatusCode.RESOURCE_EXHAUSTED
            await stub.List(pb.ListRequest(), metadata=tuple(ann.items()))
            url = rm.server.manager.page_url
            async with aiohttp.ClientSession() as session:
                async with session.get(url + "api/v1/apps", headers=bob) as answer:
                    assert answer.status == 429
                async with session.post(url + "api/v1/apps/app-1/kill", headers=bob) as answer:
                    assert answer.status == 429
                async with session.get(url + "api/v1/apps", headers=ann) as answer:
                    assert answer.status == 200
            # Readers without a token: this machine has all addresses of loopback.
            for source, codes in (("127.0.0.2", (200, 200, 200, 200, 429)), ("127.0.0.3", (429,))):
                connector = aiohttp.TCPConnector(local_addr=(source, 0))
                async with aiohttp.ClientSession(connector=connector, headers={"Host": "rm.example.org"}) as session:
                    for status_code in codes:
                        async with session.get(url + "api/v1/apps") as answer:
                            assert answer.status == status_code

    asyncio.run(scenario())


def test_token_that_is_missing_wrong_revoked_or_expired_is_refused(tmp_path: Path, monkeypatch) -> None:
    def refusal(address: str, given: str) -> str:
        monkeypatch.setenv("THEMIS_TOKEN", given)
        with Client(address) as client, pytest.raises(NoIdentityError) as raised:
            client.apps()
        monkeypatch.delenv("THEMIS_TOKEN")
        assert raised.value.exit_code == 2
        return str(raised.value)

    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm, grpc.aio.insecure_channel(rm.address) as channel:
            stub = rpc.ClientServiceStub(channel)
            assert await status(stub.List(pb.ListRequest())) is grpc.StatusCode.UNAUTHENTICATED
            assert await status(stub.Watch(pb.WatchRequest())) is grpc.StatusCode.UNAUTHENTICATED
            identities = rm.server.manager.identities
            forged = identities.local_token(0, "ann").replace("local.0.YW5u", "local.0.Ym9i")
            ann = await token(rm, "ann")
            assert "not" not in await asyncio.to_thread(lambda: _apps(rm.address, ann, monkeypatch))
            await asyncio.to_thread(lambda: Admin(rm.address).revoke_user("ann"))
            bob = await asyncio.to_thread(lambda: Admin(rm.address).add_user("bob", valid_s=1e-6))
            for given, text in (
                ("themis_wrong", "unknown or revoked"),
                (ann, "unknown or revoked"),
                (bob, "has expired: 'bob'; ask an administrator"),
                (forged, "another run"),
                ("local.", "another run"),
            ):
                assert text in await asyncio.to_thread(refusal, rm.address, given)
            acted = [(event.detail["action"], event.detail["of"]) for event in rm.events("user_acted")]
            assert acted == [("user_added", "ann"), ("user_revoked", "ann"), ("user_added", "bob")]
            assert ann not in (tmp_path / "rm.sqlite").read_bytes().decode("latin-1")

    asyncio.run(scenario())


def _apps(address: str, given: str, monkeypatch) -> str:
    monkeypatch.setenv("THEMIS_TOKEN", given)
    try:
        with Client(address) as client:
            return str(client.apps())
    finally:
        monkeypatch.delenv("THEMIS_TOKEN")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user of this machine")
def test_client_of_another_local_user_is_that_user(tmp_path: Path) -> None:
    program = """
import encodings.idna, os, sys
from msgspec.structs import replace
from submarine_client.client import Client
from submarine_client.groups import load_app
from themis.errors import ThemisError
group = replace(load_app("replay-pair"), user="")
# Only now: the other user may not be allowed to read the interpreter's packages.
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with Client(sys.argv[1]) as client:
    app = client.submit(group)
    print(app._seen.user)
    other = client.app("ann-s")
    assert "ann-s" in str(other) and "resnet50" not in str(other)
    for attempt in (other.kill, lambda: list(other.logs()), other.resume):
        try:
            attempt()
        except ThemisError as error:
            print(error.exit_code, error)
    app.kill()
"""

    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            await rm.submit(replace(ANN_S_APP, user="ann"))
            ended = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", program, rm.address],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert ended.returncode == 0, ended.stderr
            first, *refusals = ended.stdout.splitlines()
            assert first == "nobody"
            refused = "2 app-0001 is not your app; only ann and administrators may do this, and you are nobody"
            assert refusals == [
                refused,
                refused,
                "2 app app-0001 is not yours; ann and administrators see what it runs",
            ]

    asyncio.run(scenario())


def test_client_is_no_other_user_whose_token_a_stranger_offers(tmp_path: Path) -> None:
    """A process has the socket of a port behind which a ResourceManager in a container listens."""
    import socket
    import threading

    from submarine_client.credentials import Credentials
    from themis.identity import local_socket

    with socket.socket() as port_of, socket.socket(socket.AF_UNIX) as stranger:
        port_of.bind(("127.0.0.1", 0))
        port = port_of.getsockname()[1]
        stranger.bind(local_socket(port))
        stranger.listen()

        def offer() -> None:
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(f"local.{os.geteuid() + 1}.Ym9i.9999999999.00".encode())

        offering = threading.Thread(target=offer)
        offering.start()
        environment = {"HOME": str(tmp_path)}
        assert Credentials(f"127.0.0.1:{port}", environment).call(lambda metadata: metadata) == ()
        offering.join()


def test_token_file_that_others_may_read_is_refused(tmp_path: Path, monkeypatch) -> None:
    from submarine_client.credentials import Credentials

    monkeypatch.setenv("HOME", str(tmp_path))
    plain = {"THEMIS_INSECURE": "1"}
    path = tmp_path / ".config/themis/rm.example_1/token"
    path.parent.mkdir(parents=True)
    path.write_text("themis_x\n")
    path.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        Credentials("rm.example:1", plain).call(lambda metadata: metadata)
    path.chmod(0o600)
    sent = Credentials("rm.example:1", plain).call(lambda metadata: metadata)
    assert sent == (("authorization", "Bearer themis_x"),)
    # Another ResourceManager gets no token that it would refuse, or keep.
    assert Credentials("rm.example:2", plain).call(lambda metadata: metadata) == ()


def test_administrator_of_a_queue_controls_the_apps_of_this_queue_alone(tmp_path: Path, capsys) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("queues: {research: {admins: [vera], queues: {vision: {}, speech: {}}}, default: {}}")

    async def scenario() -> None:
        async with live(settings(tmp_path, queues=file)) as rm, grpc.aio.insecure_channel(rm.address) as channel:
            stub = rpc.ClientServiceStub(channel)
            ann, vera = [
                {"metadata": (("authorization", f"Bearer {await token(rm, user)}"),)} for user in ("ann", "vera")
            ]

            async def submitted(queue: str) -> str:
                spec = replace(ANN_S_APP, name=f"in-{queue}", queue=queue)
                return (await stub.Submit(pb.SubmitRequest(spec=app_to_message(spec)), **ann)).app_id

            await asyncio.to_thread(themis, ["user", "list", "--rm", rm.address])
            roles = {line.split()[0]: line.split(maxsplit=4)[4] for line in capsys.readouterr().out.splitlines()[1:]}
            assert roles == {"ann": "user", "vera": "admin of speech, vision"}
            hers, other = await submitted("vision"), await submitted("default")
            await rm.event("job_progress", hers)
            seen = await stub.Show(pb.ShowRequest(app_id=hers), **vera)
            assert seen.spec.program.environment["PASSWORD"] == "(hidden)"
            seen = await stub.Show(pb.ShowRequest(app_id=hers, environment=True), **vera)
            assert seen.spec.program.environment["PASSWORD"] == "of-ann"
            assert [chunk async for chunk in stub.Logs(pb.LogsRequest(app_id=hers), **vera)]
            reads = [(event.detail["action"], event.detail["user"]) for event in rm.events("user_acted", hers)]
            assert reads == [("environment_read", "vera"), ("logs_read", "vera")]
            assert {row.queue for row in (await stub.Usage(pb.UsageRequest(), **vera)).rows} == {"vision"}
            assert not (await stub.Show(pb.ShowRequest(app_id=other), **vera)).HasField("spec")
            denied = grpc.StatusCode.PERMISSION_DENIED
            assert await status(stub.Kill(pb.KillRequest(app_id=other), **vera)) is denied
            assert await status(stub.Logs(pb.LogsRequest(app_id=other), **vera)) is denied
            for_ann = app_to_message(replace(ANN_S_APP, user="ann", queue="vision"))
            assert await status(stub.Submit(pb.SubmitRequest(spec=for_ann), **vera)) is denied
            assert await status(rpc.AdminServiceStub(channel).Reload(pb.ReloadRequest(), **vera)) is denied
            await stub.Kill(pb.KillRequest(app_id=hers), **vera)
            (wanted,) = rm.events("app_kill_wanted", hers)
            assert wanted.detail["user"] == "vera"
            # A reload takes the role away at once.
            file.write_text("queues: {research: {queues: {vision: {}, speech: {}}}, default: {}}")
            await asyncio.to_thread(lambda: Admin(rm.address).reload())
            assert not (await stub.Show(pb.ShowRequest(app_id=hers), **vera)).HasField("spec")

    asyncio.run(scenario())


def test_only_owner_and_administrators_control_an_app() -> None:
    from themis.identity import Identity

    ann = AppOwner(user="ann", queue="vision")
    Identity(user="ann").check_controls("app-1", ann)
    Identity(user="root", is_admin=True).check_controls("app-1", ann)
    Identity(user="vera", queues=frozenset({"vision"})).check_controls("app-1", ann)
    Identity(user="vera", queues=frozenset({ROOT})).check_controls("app-1", ann)
    with pytest.raises(NotAllowedError, match="only ann and administrators"):
        Identity(user="vera", queues=frozenset({"speech"})).check_controls("app-1", ann)
    with pytest.raises(NotAllowedError):
        Identity(user="bob").check_controls("app-1", ann)


def test_anonymous_caller_counts_as_the_service_and_each_page_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path, page="127.0.0.1:0", anonymous=True)) as rm:
            async with grpc.aio.insecure_channel(rm.address) as channel:
                submitted = await rpc.ClientServiceStub(channel).Submit(
                    pb.SubmitRequest(spec=app_to_message(replace(ANN_S_APP, user="ann")))
                )
                shown = await rpc.ClientServiceStub(channel).Show(pb.ShowRequest(app_id=submitted.app_id))
            assert shown.user == "ann" and shown.HasField("spec")
            async with aiohttp.ClientSession() as session:
                for path in ("", "apps", f"apps/{submitted.app_id}"):
                    async with session.get(rm.server.manager.page_url + path) as answer:
                        assert "Insecure: everybody who reaches" in await answer.text()

    asyncio.run(scenario())


def test_command_adds_lists_and_revokes_users(tmp_path: Path, capfd) -> None:
    from themis_cli.main import main

    async def run(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, ["user", *words])
        return code, *capfd.readouterr()

    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            at = ("--rm", rm.address)
            capfd.readouterr()
            code, given, hint = await run("add", "ann", "--days", "2", *at)
            assert (code, given.count("\n")) == (0, 1) and given.startswith("themis_")
            assert "~/.config/themis/HOST_PORT/token" in hint and given.strip() not in hint
            code, listed, _ = await run("list", *at)
            words = listed.splitlines()[1].split()
            assert code == 0 and (words[0], words[-1]) == ("ann", "user")
            for words, text in (
                (("add", "ann"), "this user has a token: 'ann'; themis user revoke ann"),
                (("add", "bob", "--days", "nan"), "more than 0 and at most 36500 days"),
                (("add", "bob", "--days", "inf"), "more than 0 and at most 36500 days"),
                (("revoke", "bob"), "'bob'"),
            ):
                code, out, error = await run(*words, *at)
                assert (code, out, error.count("\n")) == (2, "", 1) and text in error
            assert (await run("revoke", "ann", *at))[:2] == (0, "the token of ann is no longer valid\n")

    asyncio.run(scenario())
