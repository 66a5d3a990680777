"""Which events of an app its readers see, and whose app a name means."""

import asyncio

import pytest
from msgspec.structs import replace
from service_cases import SPEC

from rm_plugin.service.memory_service import memory_service
from rm_plugin.service.store import StoredEvent
from rm_plugin.service.visibility import visible_event
from themis.errors import InputError
from themis.identity import Identity

BOB = Identity(user="bob")


@pytest.mark.parametrize("apps_of_bob", [0, 1, 2])
def test_name_like_an_id_does_not_show_events_of_the_app_with_this_id(tmp_path, apps_of_bob):
    """The app with the id is archived, or its row cannot be read."""

    async def scenario():
        async with memory_service(tmp_path) as rm:
            for _ in range(apps_of_bob):
                await rm.manager.submit(replace(SPEC, name="app-0009", user="bob"))
            event = StoredEvent(sequence=1, time_s=0.0, kind="job_progress", app_id="app-0009", detail={})
            assert await visible_event(rm.manager, event, BOB) is None
            assert await visible_event(rm.manager, event, Identity(user="root", is_admin=True)) is event

    asyncio.run(scenario())


def test_owner_sees_events_of_the_app_master(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry = await rm.manager.submit(replace(SPEC, user="bob"))
            event = StoredEvent(sequence=1, time_s=0.0, kind="job_progress", app_id=entry.app_id, detail={})
            assert await visible_event(rm.manager, event, BOB) is event
            assert await visible_event(rm.manager, event, Identity(user="ann")) is None

    asyncio.run(scenario())


def test_users_own_app_comes_before_one_of_another_user_with_the_same_name(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            for user in ("ann", "bob", "eve"):
                await rm.manager.submit(replace(SPEC, name="train", user=user))
            for user in ("ann", "bob", "eve"):
                assert (await rm.manager.find("train", user)).spec.user == user
            with pytest.raises(InputError, match="several running apps have this name"):
                await rm.manager.find("train", "ivy")

    asyncio.run(scenario())
