"""Which events of an app its readers see, and whose app a name means."""

import asyncio

import pytest
from msgspec.structs import replace
from service_cases import SPEC

from rm_plugin.arbiter.round_values import Wait
from rm_plugin.service import manager
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.memory_service import memory_service
from rm_plugin.service.store import StoredEvent
from rm_plugin.service.visibility import visible_entry, visible_events, visible_status
from themis.config.app_limits import HIDDEN
from themis.errors import InputError
from themis.identity import Identity
from themis.queues import AppOwner
from themis.wire import themis_pb2 as pb

BOB = Identity(user="bob")
ANN_S = AppOwner(user="ann", queue="vision")


@pytest.mark.parametrize("apps_of_bob", [0, 1, 2])
def test_name_like_an_id_does_not_show_events_of_the_app_with_this_id(tmp_path, apps_of_bob, monkeypatch):
    """The app with the id is archived, or its row cannot be read. Earlier versions allowed such names."""
    monkeypatch.setattr(manager, "check_app", lambda *_: None)

    async def scenario():
        async with memory_service(tmp_path) as rm:
            for _ in range(apps_of_bob):
                await rm.manager.submit(replace(SPEC, name="app-0009", user="bob"))
            event = StoredEvent(sequence=1, time_s=0.0, kind="job_progress", app_id="app-0009", detail={})
            assert await visible_events(rm.manager, [event], BOB) == []
            assert await visible_events(rm.manager, [event], Identity(user="root", is_admin=True)) == [event]

    asyncio.run(scenario())


def test_owner_sees_events_of_the_app_master(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry = await rm.manager.submit(replace(SPEC, user="bob"))
            event = StoredEvent(sequence=1, time_s=0.0, kind="job_progress", app_id=entry.app_id, detail={})
            assert await visible_events(rm.manager, [event], BOB) == [event]
            assert await visible_events(rm.manager, [event], Identity(user="ann")) == []

    asyncio.run(scenario())


def test_owner_of_an_app_that_is_not_in_memory_is_looked_up_once_for_all_its_events(tmp_path, monkeypatch):
    asked = []

    async def archived(app_id):
        asked.append(app_id)
        return AppEntry(app_id=app_id, spec=replace(SPEC, user="bob"), submitted_at_s=0.0)

    async def scenario():
        async with memory_service(tmp_path) as rm:
            monkeypatch.setattr(rm.manager.recorder, "archived_app", archived)
            events = [
                StoredEvent(sequence=number, time_s=0.0, kind="job_progress", app_id="app-0009", detail={})
                for number in range(1, 500)
            ]
            assert await visible_events(rm.manager, events, BOB) == events
            assert await visible_events(rm.manager, events, Identity(user="ann")) == []

    asyncio.run(scenario())
    assert asked == ["app-0009", "app-0009"]


def test_users_own_app_comes_before_one_of_another_user_with_the_same_name(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            for user in ("ann", "bob", "eve"):
                await rm.manager.submit(replace(SPEC, name="train", user=user))
            for user in ("ann", "bob", "eve"):
                assert (await rm.manager.find("train", user)).spec.user == user
            with pytest.raises(InputError, match="3 running apps have this name"):
                await rm.manager.find("train", "ivy")

    asyncio.run(scenario())


def filled(kind):
    """A message whose every field has a value: texts are SECRET."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            values, kind_of_value = getattr(message, field.name), field.message_type.fields_by_name["value"]
            if kind_of_value.message_type is None:
                values["SECRET"] = 1.0
            else:
                values["SECRET"].SetInParent()
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.add() if field.is_repeated else inner.SetInParent()
        else:
            value = "SECRET" if field.type == field.TYPE_STRING else 1
            getattr(message, field.name).append(value) if field.is_repeated else setattr(message, field.name, value)
    return message


def test_status_for_other_users_has_the_listed_fields_alone():
    status = filled(pb.AppStatus)
    every = {field.name for field in status.DESCRIPTOR.fields}
    assert {field.name for field, _ in status.ListFields()} == every
    seen = {field.name for field, _ in visible_status(status, ANN_S, BOB).ListFields()}
    assert every - seen == {
        *("diagnostics", "best", "jobs", "spec", "best_checkpoint", "folder", "page_url", "engine_id", "waits_for"),
        *("explanation", "checkpoint_uri", "archive", "waiting", "estimate"),
    }
    assert visible_status(filled(pb.AppStatus), ANN_S, Identity(user="ann")) == filled(pb.AppStatus)


def test_values_of_all_environment_variables_are_hidden_unless_asked_for():
    names = [f"NAME_{number}" for number in range(12)]
    status = pb.AppStatus()
    for name in names:
        status.spec.program.environment[name] = "SECRET"
    asked = visible_status(pb.AppStatus.FromString(status.SerializeToString()), ANN_S, BOB, environment=True)
    assert not asked.HasField("spec")
    shown = visible_status(status, ANN_S, Identity(user="ann")).spec.program.environment
    assert dict(shown) == dict.fromkeys(names, HIDDEN)


def test_entry_for_other_users_holds_no_text_of_its_programs():
    spec = replace(SPEC, user="ann", checkpoint_uri="SECRET")
    heartbeat, finish = filled(pb.Heartbeat), filled(pb.Finish)
    for message in (heartbeat, finish):
        message.jobs.append(filled(pb.JobStatus))
    texts = dict.fromkeys(("diagnostics", "page_url", "engine_id", "archive", "launch_wait"), "SECRET")
    entry = AppEntry(
        app_id="app-0001",
        spec=spec,
        submitted_at_s=1.0,
        heartbeat=heartbeat,
        finish=finish,
        token_sha256="SECRET",
        wait=Wait(job_id="SECRET", reason="SECRET"),
        **texts,
    )
    seen = visible_entry(entry, BOB)
    # Ids, states and devices of jobs are public, and so is how the app ended.
    for message in (seen.heartbeat, seen.finish):
        for job in message.jobs:
            job.Clear()
    seen.finish.state = ""
    seen.finish.rho.clear()
    assert (
        "SECRET" not in f"{seen!r} {seen.token_sha256}" and seen.spec.user == "ann" and seen.heartbeat.progress == 1.0
    )
    listed = visible_entry(entry, None, whole=False)
    assert not any(getattr(listed, name) for name in texts)
    assert not listed.best_job and not any(job.hyper_parameters or job.has_loss for job in listed.jobs)
    assert visible_entry(entry, Identity(user="ann")) is entry


def test_event_for_other_users_has_the_listed_details_alone(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry = await rm.manager.submit(replace(SPEC, user="bob"))
            detail = {"state": "FAILED", "diagnostics": "SECRET", "a_new_key": "SECRET"}
            event = StoredEvent(sequence=1, time_s=0.0, kind="app_state", app_id=entry.app_id, detail=detail)
            (seen,) = await visible_events(rm.manager, [event], Identity(user="ann"))
            assert seen.detail == {"state": "FAILED"}

    asyncio.run(scenario())
