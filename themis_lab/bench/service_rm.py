"""The ResourceManager of `bench service`: `python -m themis_lab.bench.service_rm SETTINGS GPUS DRIVERS`.

It is the product's service on an engine that emulates app masters (`service_engine`).
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from rm_plugin.service.server import run
from themis.config.rm_settings import load_rm_settings
from themis_lab.bench.service_engine import EmulatedEngine, cluster_of


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    path = Path(arguments[0])
    return run(load_rm_settings(path), EmulatedEngine(cluster_of(int(arguments[1])), path.parent, int(arguments[2])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
