"""Tokens of users."""

import asyncio
from unittest.mock import Mock

import pytest

from rm_plugin.service.changes import Changes
from rm_plugin.service.identities import MAX_VALID_S, Identities
from themis.clock import VirtualClock
from themis.errors import InputError
from themis.identity import NoIdentityError


@pytest.mark.parametrize("valid_s", [0.0, -1.0, float("nan"), float("inf"), 2 * MAX_VALID_S])
def test_token_without_an_end_is_refused(valid_s: float) -> None:
    identities = Identities(admins=(), anonymous=False, clock=VirtualClock())
    changes = Mock(spec=Changes)
    with pytest.raises(InputError, match="at most 36500 days"):
        asyncio.run(identities.add(changes, "ann", valid_s=valid_s, by="root"))
    changes.make.assert_not_called()


@pytest.mark.parametrize("token", ["\udc80", "local.\udc80", "local.0.\u00e9.1.00", "local.", "local.0.YW5u.1"])
def test_damaged_token_is_refused(token: str) -> None:
    with pytest.raises(NoIdentityError):
        Identities(admins=(), anonymous=False, clock=VirtualClock()).of_token(token)
