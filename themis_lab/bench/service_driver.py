"""A process of `bench service` that plays app masters: `python -m themis_lab.bench.service_driver FOLDER NUMBER`.

It reads the launches that the ResourceManager's engine orders (`service_engine`). At SIGTERM it writes the round trips
of the newest heartbeats to FOLDER/heartbeats-NUMBER.json, as pairs of the time of sending and seconds, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import sys
from pathlib import Path

from themis.clock import WallClock
from themis_lab.bench.service_app_master import EmulatedAppMaster
from themis_lab.bench.service_engine import launch_file, orders_in

_POLL_S = 0.05
_KEPT = 100_000
"""Round trips of heartbeats that a driver keeps."""


def heartbeats_file(folder: Path, driver: int) -> Path:
    """Where a driver writes the round trips of its heartbeats."""
    return folder / f"heartbeats-{driver}.json"


class Driver:
    """Starts and ends emulated app masters as the orders say."""

    def __init__(self) -> None:
        self.heartbeats: list[tuple[float, float]] = []
        self._clock = WallClock()
        self._tasks: dict[str, tuple[asyncio.Task[None], ...]] = {}

    def obey(self, order: dict[str, str]) -> None:
        """Start the app master of an environment, or end one."""
        app_id = order.get("kill") or order["THEMIS_APP_ID"]
        for task in self._tasks.pop(app_id, ()):
            task.cancel()
        if "kill" not in order:
            master = EmulatedAppMaster(order, self._clock, self.heartbeats)
            loop = asyncio.get_running_loop()
            self._tasks[app_id] = (loop.create_task(master.run()), loop.create_task(self._beats_of(master)))

    async def _beats_of(self, master: EmulatedAppMaster) -> None:
        # Separate processes would not start at the same moment of a second.
        await asyncio.sleep(random.random())
        await master.beat()

    async def follow(self, path: Path) -> None:
        """Obey the orders in a file as they are written, until cancelled."""
        rest = b""
        with path.open("rb") as file:
            while True:
                *lines, rest = (rest + file.read()).split(b"\n")
                for order in orders_in(lines):
                    self.obey(order)
                del self.heartbeats[:-_KEPT]
                await asyncio.sleep(_POLL_S)


async def _drive(folder: Path, number: int) -> None:
    driver = Driver()
    following = asyncio.ensure_future(driver.follow(launch_file(folder, number)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, following.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await following
    heartbeats_file(folder, number).write_text(json.dumps(driver.heartbeats), encoding="utf-8")
    # At once: thousands of sessions would take long to close.
    os._exit(0)


def main(arguments: list[str]) -> int:
    """Drive until SIGTERM; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_drive(Path(arguments[0]), int(arguments[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
