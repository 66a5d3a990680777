"""An app master that misses a report while all GPUs are free gets them once it answers."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from live_rm import live, replay_app, settings

from themis.wire import themis_pb2 as pb


def test_a_master_that_missed_a_round_gets_free_gpus_in_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path, am_expiry_s=30, app_masters="at_submit")) as rm:
            holder = await rm.submit(replay_app("holder", iterations=20_000, tasks=8))
            await rm.wait(holder, lambda status: status.gpus == 8)
            waiter = await rm.submit(replay_app("waiter", iterations=20_000, tasks=8))
            await rm.event("am_registered", waiter)
            master = rm.server.manager.entries.get(waiter).pid
            os.kill(master, signal.SIGSTOP)
            try:
                await rm.stub.Kill(pb.KillRequest(app_id=holder))
                killed = await rm.ended(holder)
                assert killed.state == "KILLED"
                # At least one round without its report, while all is free.
                missed = await rm.event("round_started", "", 1, after=rm.store.events()[-1].sequence)
                assert waiter in missed.detail["active"]
                async with asyncio.timeout(60):
                    while not any("answers missing" in each.detail["reasons"] for each in rm.events("round_started")):
                        await asyncio.sleep(0.05)
            finally:
                os.kill(master, signal.SIGCONT)
            await rm.wait(waiter, lambda status: status.gpus == 8)

    asyncio.run(scenario())
