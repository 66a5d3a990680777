"""What NodeManagers keep to take their containers up again after they were killed."""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = "recovery"
"""Of a node's folder."""

_STORE = "yarn-nm-state"


def drop_broken_store(node: Path) -> None:
    """Remove the store of a node's NodeManager if its LevelDB cannot be opened any more; its containers are lost then.

    A kill -9 while LevelDB opens may leave a CURRENT that names a MANIFEST which is not there. The NodeManager would
    refuse to start for ever, and an operator would remove the store, too.

    Args:
        node: The node's folder.
    """
    store = node / FOLDER / _STORE
    current = store / "CURRENT"
    if current.is_file() and not (store / current.read_text(encoding="utf-8").strip()).is_file():
        shutil.rmtree(store)
