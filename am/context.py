"""The validated environment of an app master."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import field

from am.attempt_token import read_token
from themis.errors import InputError
from themis.tls import Trust, trust_of
from themis.values import Value, repr_without


class AmContext(Value, frozen=True, kw_only=True):
    """Where the ResourceManager is, who we are, where our files lie.

    Attributes:
        rm_address: `host:port`, or several with commas between, of which one serves.
        app_id: The app.
        attempt: Counts from 1.
        token: Proves the attempt.
        trust: What the ResourceManager's certificate must be; None without TLS.
        folder: The app's folder on this machine.
        storage: Folder or URI of what the next attempt must find, on whatever machine it runs.
        engine: Where tasks run, by name.
        run_id: The mark of the ResourceManager's run; empty for none.
        engine_settings: What the engine needs to know beside, in its own terms.
        rm_absence_s: How long the jobs go on without a ResourceManager before the app master stops them and itself.
    """

    rm_address: str
    app_id: str
    attempt: int
    token: str
    folder: Path
    trust: Trust | None = None
    storage: str = ""
    engine: str = "local"
    run_id: str = ""
    engine_settings: Mapping[str, Any] = field(default_factory=dict)
    rm_absence_s: float = 60.0

    __repr__ = repr_without("token")

    @property
    def kept_at(self) -> str:
        """Folder or URI of what must outlive the attempt."""
        return self.storage or str(self.folder)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> AmContext:
        """Read THEMIS_RM_ADDRESS, _APP_ID, _ATTEMPT and _APP_DIR, and the token. A missing one raises InputError.

        THEMIS_STORAGE_URI, THEMIS_ENGINE, THEMIS_RUN_ID, THEMIS_ENGINE_SETTINGS (JSON), THEMIS_RM_ABSENCE_S, and with
        TLS THEMIS_RM_CA and THEMIS_RM_NAME may be there.
        """
        names = ("THEMIS_RM_ADDRESS", "THEMIS_APP_ID", "THEMIS_ATTEMPT", "THEMIS_APP_DIR")
        missing = [name for name in names if not environment.get(name)]
        if missing:
            raise InputError(
                "an app master must be started by the ResourceManager",
                value=missing,
                remedy="use: submarine app submit",
            )
        return cls(
            rm_address=environment["THEMIS_RM_ADDRESS"],
            app_id=environment["THEMIS_APP_ID"],
            attempt=int(environment["THEMIS_ATTEMPT"]),
            token=read_token(environment),
            trust=trust_of(environment),
            folder=Path(environment["THEMIS_APP_DIR"]).absolute(),
            storage=environment.get("THEMIS_STORAGE_URI", ""),
            engine=environment.get("THEMIS_ENGINE") or "local",
            run_id=environment.get("THEMIS_RUN_ID", ""),
            engine_settings=json.loads(environment.get("THEMIS_ENGINE_SETTINGS") or "{}"),
            rm_absence_s=float(environment.get("THEMIS_RM_ABSENCE_S") or 60.0),
        )
