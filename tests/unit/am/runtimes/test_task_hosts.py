"""Where an app master listens for its task hosts."""

import asyncio

import pytest

from am.runtimes.remote.hosts import TaskHosts


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_listen_returns_the_open_port(host):
    async def scenario():
        hosts = TaskHosts()
        port = await hosts.listen(host)
        # With a port per address family, the returned one would be random.
        assert len(hosts._server.sockets) == 1
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await hosts.close()

    asyncio.run(scenario())
