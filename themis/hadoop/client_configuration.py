"""The YarnConfiguration that our clients use: the site's, with waits cut so that calls end in a known time.

Hadoop's clients hide a ResourceManager that is unavailable by trying again, up to 15 minutes. Here every call tries
again for `connect_wait_s` and then raises UnreachableError. Nothing is lost by that: the same call may be made again.
"""

from __future__ import annotations

from typing import Any

from themis.hadoop.jvm import start_jvm
from themis.hadoop.records import java_class

DEFAULT_CONNECT_WAIT_S = 20.0
_RETRY_MS = 500
# One try to reach a host that swallows packets.
_CONNECT_TIMEOUT_MS = 5000


def yarn_configuration(connect_wait_s: float) -> Any:
    """The site's configuration with our waits, the JVM started if it was not."""
    start_jvm()
    configuration = java_class("org.apache.hadoop.yarn.conf.YarnConfiguration")()
    wait_ms = max(int(connect_wait_s * 1000), 1)
    # Trying again is for YARN's layer; Hadoop's IPC below it would multiply each try by ten, a second apart.
    settings = {
        "yarn.resourcemanager.connect.max-wait.ms": wait_ms,
        "yarn.resourcemanager.connect.retry-interval.ms": min(_RETRY_MS, wait_ms),
        "yarn.client.nodemanager-connect.max-wait-ms": wait_ms,
        "yarn.client.nodemanager-connect.retry-interval-ms": min(_RETRY_MS, wait_ms),
        "ipc.client.connect.max.retries": 0,
        "ipc.client.connect.max.retries.on.timeouts": 0,
        "ipc.client.connect.timeout": min(_CONNECT_TIMEOUT_MS, max(wait_ms, 1000)),
    }
    for name, value in settings.items():
        configuration.set(name, str(value))
    return configuration
