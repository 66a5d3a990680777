"""Where an app master listens for its task hosts."""

import asyncio

import pytest

from am.runtimes.remote.hosts import TaskHosts


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_the_port_that_is_told_is_the_one_that_is_open(host):
    async def scenario():
        hosts = TaskHosts()
        port = await hosts.listen(host)
        # With a port for each family, which of the two is told would be chance.
        assert len(hosts._server.sockets) == 1
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await hosts.close()

    asyncio.run(scenario())
