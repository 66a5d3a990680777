"""Tokens of users."""

import asyncio
from unittest.mock import Mock

import pytest

from rm_plugin.service.changes import Changes
from rm_plugin.service.identities import CALLS_PER_S, MAX_CALLS, MAX_VALID_S, USER_TOKENS, Identities, UserToken
from rm_plugin.service.recorder import Recorder
from rm_plugin.service.restoring import restored_value
from rm_plugin.service.store_memory import MemoryStore
from themis.clock import VirtualClock
from themis.errors import InputError, UnknownNameError
from themis.identity import NoIdentityError, TooManyCallsError


@pytest.mark.parametrize("valid_s", [0.0, -1.0, float("nan"), float("inf"), 2 * MAX_VALID_S])
def test_token_without_an_end_is_refused(valid_s: float) -> None:
    identities = Identities(admins=(), anonymous=False, clock=VirtualClock())
    changes = Mock(spec=Changes)
    with pytest.raises(InputError, match="at most 36500 days"):
        asyncio.run(identities.add(changes, "ann", valid_s=valid_s, by="root"))
    changes.make.assert_not_called()


@pytest.mark.parametrize("name", ["", "a b", " ann", "=1+1", "-x", "a/b", "a\nb", "a;b"])
def test_user_whose_name_is_none_of_an_account_gets_no_token(name: str) -> None:
    changes = Mock(spec=Changes)
    identities = Identities(admins=(), anonymous=False, clock=VirtualClock())
    with pytest.raises(InputError, match="themis user add"):
        asyncio.run(identities.add(changes, name, valid_s=10.0, by="root"))
    changes.make.assert_not_called()


@pytest.mark.parametrize("name", ["ann", "ann@example.org", "_svc-1", "LAB\\ann", "józef"])
def test_user_with_the_name_of_an_account_gets_a_token(name: str) -> None:
    async def scenario() -> None:
        users = Users(MemoryStore())
        assert users.identities.of_token(await users.add(name)).user == name

    asyncio.run(scenario())


@pytest.mark.parametrize("token", ["\udc80", "local.\udc80", "local.0.\u00e9.1.00", "local.", "local.0.YW5u.1"])
def test_damaged_token_is_refused(token: str) -> None:
    with pytest.raises(NoIdentityError):
        Identities(admins=(), anonymous=False, clock=VirtualClock()).of_token(token)


def test_call_without_a_token_is_of_the_service_user_only_if_that_is_allowed() -> None:
    allowed = Identities(admins=(), anonymous=True, clock=VirtualClock(), user="service")
    assert allowed.of_token("").user == "service"
    with pytest.raises(NoIdentityError, match="needs a token"):
        Identities(admins=(), anonymous=False, clock=VirtualClock()).of_token("")


def test_user_who_calls_too_often_is_refused_for_a_while_and_others_are_not() -> None:
    identities = Identities(admins=("root",), anonymous=False, clock=(clock := VirtualClock(1000.0)), user="service")
    ann, bob, root = (identities.of_user(user) for user in ("ann", "bob", "root"))
    for _ in range(int(MAX_CALLS)):
        identities.count_call(bob)
    with pytest.raises(TooManyCallsError, match="bob"):
        identities.count_call(bob)
    identities.count_call(ann)
    identities.count_call(None)
    for _ in range(int(MAX_CALLS) + 1):
        identities.count_call(root)
    clock.advance_to(1000.0 + 2.0 / CALLS_PER_S)
    identities.count_call(bob)


class Users:
    """Users with tokens, over a store in memory."""

    def __init__(self, store: MemoryStore, now_s: float = 1000.0) -> None:
        self.clock = VirtualClock(now_s)
        self.recorder = Recorder(store, self.clock)
        self.changes = Changes(Mock(), self.recorder)
        self.identities = Identities(admins=("root",), anonymous=False, clock=self.clock, user="service")
        self.identities.tokens = restored_value(store, USER_TOKENS, dict[str, UserToken], {})

    async def add(self, user: str, valid_s: float = 100.0) -> str:
        return await self.identities.add(self.changes, user, valid_s=valid_s, by="root")


def test_token_of_a_user_is_known_also_after_a_restart() -> None:
    async def scenario() -> None:
        users = Users(store := MemoryStore())
        token = await users.add("ann")
        for known in (users, Users(store)):
            identity = known.identities.of_token(token)
            assert (identity.user, identity.is_admin) == ("ann", False)
        assert token not in (store.meta(USER_TOKENS) or "")
        with pytest.raises(InputError, match="this user has a token"):
            await users.add("ann")
        assert [event.detail for event in store.events()] == [{"user": "root", "action": "user_added", "of": "ann"}]

    asyncio.run(scenario())


def test_token_is_valid_up_to_its_end() -> None:
    async def scenario() -> None:
        users = Users(MemoryStore())
        token = await users.add("ann", valid_s=100.0)
        users.clock.advance_to(1100.0)
        assert users.identities.of_token(token).user == "ann"
        users.clock.advance_to(1100.1)
        with pytest.raises(NoIdentityError, match="expired"):
            users.identities.of_token(token)

    asyncio.run(scenario())


def test_revoked_token_is_unknown_also_after_a_restart() -> None:
    async def scenario() -> None:
        users = Users(store := MemoryStore())
        token, other = await users.add("ann"), await users.add("bob")
        await users.identities.revoke(users.changes, "ann", by="root")
        for known in (users, Users(store)):
            with pytest.raises(NoIdentityError, match="unknown or revoked"):
                known.identities.of_token(token)
            assert known.identities.of_token(other).user == "bob"
        with pytest.raises(UnknownNameError):
            await users.identities.revoke(users.changes, "ann", by="root")

    asyncio.run(scenario())


def test_text_of_a_page_is_valid_as_long_as_the_token_of_its_reader() -> None:
    async def scenario() -> None:
        users = Users(MemoryStore())
        await users.add("ann", valid_s=60.0)
        of_token, of_connection = (users.identities.action_token("ann", has_token=has) for has in (True, False))
        assert users.identities.of_action(of_token).user == "ann"
        users.clock.advance_to(1061.0)
        with pytest.raises(NoIdentityError, match="no longer valid"):
            users.identities.of_action(of_token)
        users.clock.advance_to(1062.0)
        await users.identities.revoke(users.changes, "ann", by="root")
        await users.add("ann")
        with pytest.raises(NoIdentityError, match="no longer valid"):
            users.identities.of_action(of_token)
        assert users.identities.of_action(of_connection).user == "ann"

    asyncio.run(scenario())
