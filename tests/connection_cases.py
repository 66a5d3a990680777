"""Connections of tests to a server that may close them."""

import asyncio


async def read_until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What comes until the server closes a connection; nothing if it is reset."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
