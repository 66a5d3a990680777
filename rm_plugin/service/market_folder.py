"""Keep the markets of the newest rounds as files. `themis auction --market` runs such an auction again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rm_plugin.arbiter.market_document import market_document
from themis.bids import Market


class MarketFolder:
    """A folder with one file per round. It keeps the newest `most` files; with `most` 0 none is written."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most

    def keep(self, round_id: int, market: Market) -> str:
        """Write a round's market. Returns the name of its file, or an empty text if no markets are kept.

        Raises:
            OSError: The folder cannot be written.
        """
        if not self._most:
            return ""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"round-{round_id:09d}.json"
        # Write to a temporary name first, so that a reader never finds half a file.
        half = path.with_suffix(".part")
        half.write_bytes(msgspec.json.encode(market_document(market)))
        half.replace(path)
        for old in sorted(self._folder.glob("round-*.json"))[: -self._most]:
            old.unlink(missing_ok=True)
        return path.name
