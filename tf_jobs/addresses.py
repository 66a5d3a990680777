"""The addresses of a job's tasks, from TF_CONFIG, as TensorFlow's multi-worker strategies read it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from themis.errors import InputError
from themis.number_parsing import as_whole
from themis.values import Value


class Address(Value, frozen=True):
    """A host name or IP address, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether the host is written as a loopback address, which only this machine reaches.

        Names are not resolved: many machines map their own name to a loopback address in their hosts file, although
        others reach them by this name.
        """
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def read_addresses(environment: Mapping[str, str], *, tasks: int, task_index: int) -> tuple[Address, ...]:
    """Return the address of every task, in order. A single task needs none.

    Raises:
        InputError: TF_CONFIG is missing for several tasks, does not parse, or is another task's.
    """
    if tasks == 1:
        return ()
    text = environment.get("TF_CONFIG")
    if not text:
        raise InputError("several tasks need TF_CONFIG", remedy="list the workers' addresses in it")
    try:
        config = json.loads(text)
        workers, index = list(config["cluster"]["worker"]), config["task"]["index"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        remedy = 'write {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
        raise InputError("TF_CONFIG does not parse", value=text, remedy=remedy) from error
    if len(workers) != tasks or index != task_index:
        remedy = f"list {tasks} workers and give index {task_index}"
        raise InputError("TF_CONFIG disagrees with THEMIS_TASKS or THEMIS_TASK_INDEX", value=text, remedy=remedy)
    return tuple(parse_address(worker) for worker in workers)


def parse_address(text: object) -> Address:
    """Parse `host:port` or `[IPv6]:port`. Raises InputError for any other text."""
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    number = as_whole(port) or 0
    if not (host and colon and 0 < number < 2**16):
        raise InputError("an address in TF_CONFIG does not parse", value=text, remedy="write host:port")
    return Address(host, number)
