"""Entry point of an app master's process: `python -m am.main`, started by an engine."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from am.context import AmContext
from am.engine import open_engine
from am.master import AppMaster
from themis.clock import WallClock
from themis.errors import ThemisError
from themis.files import keep_private
from themis.sessions import adopt_orphans


def main() -> int:
    """Run one attempt of one app; returns the exit code."""
    keep_private()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # Its library logs every request.
    logging.getLogger("hdfs.client").setLevel(logging.WARNING)
    try:
        return asyncio.run(_run(AmContext.from_environment()))
    except ThemisError as error:
        print(f"app master: {error}", file=sys.stderr)
        return error.exit_code


async def _run(context: AmContext) -> int:
    # Orphans are known from helpers of this process by their sessions, so it must lead one of its own.
    if context.engine == "local" and os.getsid(0) == os.getpid():
        adopt_orphans()
    master = AppMaster(context, open_engine(context), WallClock())
    loop = asyncio.get_running_loop()

    loop.add_signal_handler(signal.SIGTERM, master.end)
    # Ctrl-C in a terminal is for the command in front of it, not for what a ResourceManager started.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    return await master.run()


if __name__ == "__main__":
    sys.exit(main())
