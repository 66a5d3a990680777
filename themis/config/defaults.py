"""Defaults that several programs must agree on."""

from __future__ import annotations

RM_ADDRESS_VARIABLE = "THEMIS_RM"
"""The environment variable that names the ResourceManager, `HOST:PORT`."""

RM_HOST = "127.0.0.1"
RM_PORT = 8650
"""Clear of Hadoop's ports (8020 to 8088, 9870), so that both can run on one machine."""

DEFAULT_RM_ADDRESS = f"{RM_HOST}:{RM_PORT}"
"""Where a client looks for the ResourceManager when nothing else is said."""

DEFAULT_POLICY = "fair_finish"
"""The policy of the service, of the testbed and of simulations if none is named: decision 0061."""
