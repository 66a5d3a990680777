"""A ResourceManager with TLS over real sockets: who is refused, and what an unencrypted wire would have carried."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from live_rm import address_of, replay_app, settings, start_process
from msgspec.structs import replace

from am.session import RmSession
from rm_plugin.service.certificates import init_tls
from rm_plugin.service.server import Server
from rm_plugin.service.store_sqlite import SqliteStore
from submarine_client.admin import Admin
from submarine_client.client import Client
from submarine_client.connection import Connection
from submarine_client.credentials import Credentials
from themis.attempt_proof import new_token
from themis.clock import WallClock
from themis.config.cluster_file import load_cluster
from themis.config.rm_settings import RmSettings, TlsSettings
from themis.errors import InputError, ThemisError, UnreachableError
from themis.identity import settings_folder
from themis.tls import Trust
from themis.wire import themis_pb2 as pb

ROOT = Path(__file__).resolve().parents[3]


def files(folder: Path) -> TlsSettings:
    return TlsSettings(certificate=folder / "server.pem", key=folder / "server-key.pem", ca=folder / "ca.pem")


@contextlib.asynccontextmanager
async def serving(configured: RmSettings) -> AsyncIterator[tuple[Server, str]]:
    with contextlib.closing(SqliteStore(configured.state_dir / "rm.sqlite")) as store:
        server = Server(configured, load_cluster(configured.cluster), store, WallClock())
        try:
            yield server, await server.start()
        finally:
            await server.stop()


def kept(home: Path, address: str, **named: str) -> None:
    """Write files of a user for one ResourceManager."""
    folder = Path(settings_folder(address).replace("~", str(home)))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in named.items():
        path = folder / {"ca": "ca.pem"}.get(name, name)
        path.write_text(text)
        path.chmod(0o600)


def listed(address: str, ca: str | None = None) -> int:
    with Connection(address, ca=ca, timeout_s=60) as connection:
        return len(connection.list())


def test_user_of_this_machine_needs_no_setup_and_its_app_runs_over_tls(tmp_path: Path) -> None:
    init_tls(tmp_path / "tls", [])

    async def scenario() -> None:
        configured = settings(tmp_path, page="127.0.0.1:0", tls=files(tmp_path / "tls"))
        async with serving(configured) as (server, address):

            def use() -> None:
                with Client(address) as client:
                    app = client.submit(replace(replay_app("local", iterations=60), user=""))
                    assert app.wait(timeout_s=60).state == "FINISHED"

            await asyncio.to_thread(use)
            page = server.manager.page_url
            assert page.startswith("https://")
            trusting = ssl.create_default_context(cafile=str(tmp_path / "tls/ca.pem"))
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{page}api/v1/apps", ssl=trusting) as answer:
                    assert answer.status == 200 and json.loads(await answer.text())["apps"]
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await session.get(page)
                with pytest.raises(aiohttp.ClientError):
                    await session.get(page.replace("https", "http"))

    asyncio.run(scenario())


def test_client_that_trusts_another_authority_or_has_no_tls_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init_tls(tmp_path / "tls", [])
    init_tls(tmp_path / "other", [])
    monkeypatch.setenv("HOME", str(tmp_path))

    async def scenario() -> None:
        async with serving(settings(tmp_path, tls=files(tmp_path / "tls"))) as (_server, address):
            with pytest.raises(InputError, match="no trusted authority signed the certificate"):
                await asyncio.to_thread(listed, address, str(tmp_path / "other/ca.pem"))
            monkeypatch.setenv("THEMIS_CA", str(tmp_path / "other/ca.pem"))
            with pytest.raises(InputError, match="no trusted authority signed the certificate"):
                await asyncio.to_thread(listed, address)
            monkeypatch.delenv("THEMIS_CA")
            # As on another machine: no socket of the ResourceManager is there.
            monkeypatch.setattr("submarine_client.credentials._local_answer", lambda _address: ("", ""))
            monkeypatch.setenv("THEMIS_TOKEN", "themis_x")
            with pytest.raises(InputError, match="this ResourceManager needs TLS"):
                await asyncio.to_thread(listed, address)

    asyncio.run(scenario())


def test_user_of_another_machine_has_a_file_for_this_address_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init_tls(tmp_path / "tls", [])
    monkeypatch.setenv("HOME", str(tmp_path))

    async def scenario() -> None:
        async with serving(settings(tmp_path, tls=files(tmp_path / "tls"))) as (_server, address):

            def add() -> str:
                with Admin(address) as admin:
                    return admin.add_user("ann", valid_s=60)

            token = await asyncio.to_thread(add)
            monkeypatch.setattr("submarine_client.credentials._local_answer", lambda _address: ("", ""))
            kept(tmp_path, address, token=token, ca=(tmp_path / "tls/ca.pem").read_text())
            assert await asyncio.to_thread(listed, address) == 0
            # The certificate holds localhost, and the user's folder is for 127.0.0.1.
            with pytest.raises(InputError, match="needs TLS"):
                await asyncio.to_thread(listed, address.replace("127.0.0.1", "localhost"))

    asyncio.run(scenario())


def test_app_master_registers_only_with_a_resource_manager_that_its_authority_vouches_for(tmp_path: Path) -> None:
    init_tls(tmp_path / "tls", [])
    init_tls(tmp_path / "other", [])

    async def scenario() -> None:
        async with serving(settings(tmp_path, tls=files(tmp_path / "tls"))) as (server, address):
            for trust in (
                None,
                Trust(authorities=(tmp_path / "other/ca.pem").read_text()),
                Trust(authorities=(tmp_path / "tls/ca.pem").read_text(), name="other.example.org"),
            ):
                asked: list[pb.Register] = []

                def register(asked: list[pb.Register] = asked) -> pb.Register:
                    asked.append(pb.Register(app_id="app-0001", attempt=1, token="secret"))
                    return asked[-1]

                session = RmSession(address, register, lambda _: None, clock=WallClock(), give_up_s=0.5, trust=trust)
                with pytest.raises(UnreachableError, match="the ResourceManager is unavailable"):
                    await session.run()
            # With the right one, the service answers: it knows no such app.
            trust = Trust(authorities=(tmp_path / "tls/ca.pem").read_text())
            token = new_token(server.manager.entries.refusal_key, "app-0001")
            known = pb.Register(app_id="app-0001", attempt=1, token=token)
            session = RmSession(address, lambda: known, lambda _: None, clock=WallClock(), give_up_s=5, trust=trust)
            with pytest.raises(UnreachableError, match="refuses this attempt"):
                await session.run()
            assert not list(server.manager.entries)

    asyncio.run(scenario())


@contextlib.contextmanager
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """A host that reads what clients send and answers nothing. Yields its address and what it has read."""
    read: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def take() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.settimeout(60)
                        read.append(connection.recv(65_536))

        thread = threading.Thread(target=take)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", read
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_token_is_not_sent_to_a_host_that_only_has_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init_tls(tmp_path, [])
    monkeypatch.setenv("THEMIS_TOKEN", "themis_secret")
    ca = str(tmp_path / "ca.pem")
    with (
        listener() as (address, read),
        Connection(address, ca=ca, timeout_s=60) as connection,
        pytest.raises(ThemisError),
    ):
        connection.list()
    assert read and not any(b"themis_secret" in each for each in read)


def test_token_is_not_sent_over_a_network_without_tls_unless_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    elsewhere, given = "rm.example.org:8650", {"THEMIS_TOKEN": "themis_x"}
    sent = (("authorization", "Bearer themis_x"),)

    def metadata(environment: dict[str, str], address: str = elsewhere) -> tuple[tuple[str, str], ...]:
        return Credentials(address, environment).call(lambda metadata: metadata)

    with pytest.raises(InputError, match=r"the token would travel without encryption.*THEMIS_INSECURE=1"):
        metadata(given)
    with pytest.raises(InputError, match="without encryption"):
        metadata(given, f"127.0.0.1:1,{elsewhere}")
    kept(tmp_path, elsewhere, token="themis_x")
    with pytest.raises(InputError, match="without encryption"):
        metadata({})
    assert metadata({"THEMIS_INSECURE": "1"}) == sent
    assert metadata(given, "127.0.0.1:1") == sent
    init_tls(tmp_path / "tls", [])
    kept(tmp_path, elsewhere, ca=(tmp_path / "tls/ca.pem").read_text())
    assert metadata({}) == sent
    assert metadata({}, "other.example.org:8650") == ()


def test_listening_beyond_loopback_needs_tls_and_identity_and_status_shows_the_end_of_the_certificate(
    tmp_path: Path,
) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "themis_cli.main", "rm", "init", "--dir", str(tmp_path / "tls"), "--days", "20"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert made.stdout.startswith("tls:\n  certificate: ") and "keep it secret" in made.stderr
    configured = settings(tmp_path, listen="0.0.0.0:0", page="0.0.0.0:0", tls=files(tmp_path / "tls"))

    async def scenario() -> None:
        process = start_process(configured)
        try:
            address = await address_of(configured)
            environment = {**os.environ, "THEMIS_RM": address.replace("0.0.0.0", "127.0.0.1")}
            status = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "themis_cli.main", "rm", "status"],
                capture_output=True,
                text=True,
                env=environment,
                cwd=ROOT,
            )
            assert status.returncode == 0, status.stderr
            assert "Certificate:    until " in status.stdout and " 20 days" in status.stdout

            def use() -> None:
                # App masters connect to 0.0.0.0, which is no name of the certificate, and expect one that is.
                with Client(environment["THEMIS_RM"]) as client:
                    app = client.submit(replace(replay_app("everywhere", iterations=30), user=""))
                    assert app.wait(timeout_s=60).state == "FINISHED"

            await asyncio.to_thread(use)
        finally:
            process.terminate()
            process.wait(20)
        log = (tmp_path / "rm.log").read_text()
        assert "TLS, with a certificate for" in log and "expires in 19 days" in log and "insecure" not in log

    asyncio.run(scenario())
