"""A loop whose common threads are all taken, as by calls to a remote side that does not answer."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor


@contextlib.asynccontextmanager
async def all_common_threads_taken(limit_s=60.0):
    """Within, only calls that have threads of their own are made; TimeoutError for others."""
    back = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    taken = loop.run_in_executor(None, back.wait)
    try:
        async with asyncio.timeout(limit_s):
            yield
    finally:
        back.set()
        await taken
