"""Entry point of an app master's process: `python -m am.main`, started by an engine."""

from __future__ import annotations

import asyncio
import contextlib
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
from themis.sessions import adopting_orphans


def main() -> int:
    """Run one attempt of one app; returns the exit code."""
    keep_private()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # Its library logs every request.
    logging.getLogger("hdfs.client").setLevel(logging.WARNING)
    try:
        context = AmContext.from_environment()
        # Orphans are known from helpers of this process by their sessions, so it must lead one of its own.
        ends_orphans = context.engine == "local" and os.getsid(0) == os.getpid()
        with adopting_orphans() if ends_orphans else contextlib.nullcontext():
            return asyncio.run(_run(context))
    except ThemisError as error:
        print(f"app master: {error}", file=sys.stderr)
        return error.exit_code


async def _run(context: AmContext) -> int:
    master = AppMaster(context, open_engine(context), WallClock())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, master.end)
    # Ctrl-C in a terminal is for the command in front of it, not for what a ResourceManager started.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    return await master.run()


if __name__ == "__main__":
    sys.exit(main())
