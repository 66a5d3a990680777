"""What an app master is started with: its environment, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from themis.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class AmContext:
    """Where the ResourceManager is, who we are, where our files lie."""

    rm_address: str
    app_id: str
    attempt: int
    token: str = field(repr=False)
    folder: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> AmContext:
        """Read THEMIS_RM_ADDRESS, _APP_ID, _ATTEMPT, _APP_TOKEN and _APP_DIR; a missing one raises InputError."""
        names = ("THEMIS_RM_ADDRESS", "THEMIS_APP_ID", "THEMIS_ATTEMPT", "THEMIS_APP_TOKEN", "THEMIS_APP_DIR")
        missing = [name for name in names if not environment.get(name)]
        if missing:
            raise InputError(
                "an app master is started by the ResourceManager", value=missing, remedy="use: submarine app submit"
            )
        return cls(
            rm_address=environment["THEMIS_RM_ADDRESS"],
            app_id=environment["THEMIS_APP_ID"],
            attempt=int(environment["THEMIS_ATTEMPT"]),
            token=environment["THEMIS_APP_TOKEN"],
            folder=Path(environment["THEMIS_APP_DIR"]),
        )
