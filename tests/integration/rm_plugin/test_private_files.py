"""A real run leaves files that only their owner can read, and reading its logs never blocks."""

import asyncio
import contextlib
import os
import stat
from pathlib import Path

import grpc
from authorized_stub import LocalStub
from live_rm import ENDED, address_of, replay_app, settings, start_process

from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message

OF_THE_TEST = {"rm.yaml", "rm.log"}


def open_to_others(folder: Path) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        # The service that runs may remove a file meanwhile.
        with contextlib.suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if path.name not in OF_THE_TEST and not stat.S_ISLNK(mode) and stat.S_IMODE(mode) & 0o077:
                found.append(str(path))
    return found


def test_a_run_is_private_and_a_pipe_among_its_logs_stops_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        configured = settings(tmp_path)
        # From an earlier version.
        (tmp_path / "apps").mkdir(mode=0o755)
        process = start_process(configured)
        try:
            async with grpc.aio.insecure_channel(address := await address_of(configured)) as channel:
                stub = LocalStub(rpc.ClientServiceStub(channel), address)
                request = pb.SubmitRequest(spec=app_to_message(replay_app("mine", iterations=40)))
                app = (await stub.Submit(request)).app_id
                async with asyncio.timeout(60):
                    while (status := await stub.Show(pb.ShowRequest(app_id=app))).state not in ENDED:
                        await asyncio.sleep(0.1)
                assert status.state == "FINISHED", status.diagnostics
                assert {path.name for path in tmp_path.rglob("*")} >= {"rm.sqlite", "address", "task-0.log", "am-1.log"}
                assert open_to_others(tmp_path) == []

                os.mkfifo(tmp_path / "apps" / app / "jobs/job-00/task-9.log")
                async with asyncio.timeout(60):
                    sources = {chunk.source async for chunk in stub.Logs(pb.LogsRequest(app_id=app))}
                    assert sources - {"am"} == {"job-00/task-0"}
                    await stub.List(pb.ListRequest())
        finally:
            process.terminate()
            process.wait()

    asyncio.run(scenario())
