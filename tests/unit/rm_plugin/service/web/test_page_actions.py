"""Pause, resume and kill over HTTP: rights, forged requests, and what the answers say."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from web_cases import RmCase, busy, served

from rm_plugin.service.identities import ACTION_STEP_S
from rm_plugin.service.web import actions, readers
from themis.clock import VirtualClock
from themis.identity import Identity, NoIdentityError

ADA = Identity(user="ada", is_admin=False)


def run(scenario):
    asyncio.run(scenario())


def case_of_ada():
    case = RmCase(((4,),))
    case.manager.rounds = SimpleNamespace(
        trigger=lambda why: None, lease_ends_moved=lambda: None, explanation=lambda app: (), rounds=0
    )
    case.running("mine")
    return case


async def post(site, verb, *, headers=None, document=None):
    address = f"{site.url}api/v1/apps/app-0001/{verb}"
    async with site.session.post(address, headers=headers, json=document) as answer:
        return answer.status, json.loads(await answer.text())


def bearer(case, user):
    return {"Authorization": f"Bearer {case.manager.identities.local_token(1, user)}"}


def of_page(case, user):
    return {actions.HEADER: case.manager.identities.action_token(user, has_token=False)}


@pytest.mark.parametrize("headers", [bearer, of_page])
def test_owner_pauses_and_kills_with_a_reason(headers):
    async def scenario():
        case = case_of_ada()
        entry = case.entries.get("app-0001")
        async with served(case) as site:
            status, app = await post(site, "pause", headers=headers(case, "ada"), document={"reason": "for the night"})
            assert (status, app["app_id"], app["state"]) == (200, "app-0001", "RUNNING")
            assert entry.pause_reason == "for the night"
            status, _ = await post(site, "kill", headers=headers(case, "ada"))
            assert (status, entry.kill_reason) == (200, "killed by its user")
        await case.manager.app_masters.close()

    run(scenario)


def test_administrator_may_and_another_user_may_not():
    async def scenario():
        case = case_of_ada()
        entry = case.entries.get("app-0001")
        async with served(case) as site:
            status, answer = await post(site, "pause", headers=bearer(case, "eve"))
            assert (status, entry.pause_reason) == (403, "")
            assert "ada" in str(answer)
            status, _ = await post(site, "pause", headers=bearer(case, case.manager.identities.user))
            assert (status, entry.pause_reason) == (200, f"paused by {case.manager.identities.user}")
        await case.manager.app_masters.close()

    run(scenario)


def test_connection_of_the_owner_alone_changes_nothing(monkeypatch):
    """A browser of the owner sends what another site asks for, but not a header of ours."""
    monkeypatch.setattr(readers, "local_peer_uid", lambda peer, own: 0)
    monkeypatch.setattr(readers, "user_name", lambda uid: "ada")

    async def scenario():
        case = case_of_ada()
        async with served(case) as site:
            for headers in ({}, {actions.HEADER: "1"}, {actions.HEADER: "action.YWRh.9999999999.c2ln"}):
                status, _ = await post(site, "kill", headers=headers)
                assert status == 401
            assert not case.entries.get("app-0001").kill_reason

    run(scenario)


def test_text_of_a_page_expires():
    async def scenario():
        case = case_of_ada()
        identities = case.manager.identities
        text = identities.action_token("ada", has_token=False)
        assert identities.of_action(text).user == "ada"
        identities._clock = VirtualClock(case.clock.now_s() + 2 * ACTION_STEP_S + 1)
        with pytest.raises(NoIdentityError, match="too old"):
            identities.of_action(text)

    run(scenario)


@pytest.mark.parametrize("text", ["", "action", "action.YWRh.1.\udcff", "local.0.YWRh.99999999999.x", "a.b.c.d.e"])
def test_damaged_text_of_a_page_is_refused(text):
    async def scenario():
        with pytest.raises(NoIdentityError):
            case_of_ada().manager.identities.of_action(text)

    run(scenario)


def test_text_for_actions_is_no_token_of_grpc():
    async def scenario():
        identities = case_of_ada().manager.identities
        with pytest.raises(NoIdentityError):
            identities.of_token(identities.action_token("ada", has_token=False))

    run(scenario)


@pytest.mark.parametrize(
    ("host", "headers", "given"),
    [
        ("127.0.0.1", {}, True),
        ("localhost", {}, True),
        ("10.0.0.7", {}, True),
        ("site.example", {}, False),
        ("themis.example", {"Authorization": "Basic eA=="}, True),
    ],
)
def test_text_is_not_given_to_a_name_that_any_site_can_have(host, headers, given):
    async def scenario():
        request = SimpleNamespace(headers=headers, url=SimpleNamespace(host=host))
        assert bool(actions.action_token(request, ADA, case_of_ada().manager.identities)) is given
        assert actions.action_token(request, None, case_of_ada().manager.identities) == ""

    run(scenario)


@pytest.mark.parametrize(
    ("document", "message"), [([1], "reason"), ({"reason": 3}, "reason"), ({"reason": "x" * 300}, "reason")]
)
def test_reason_that_cannot_be_kept_is_refused(document, message):
    async def scenario():
        case = case_of_ada()
        async with served(case) as site:
            status, answer = await post(site, "kill", headers=bearer(case, "ada"), document=document)
            assert status == 400
            assert message in answer["error"]["what"]

    run(scenario)


def test_app_that_has_ended_or_is_unknown_is_refused():
    async def scenario():
        case = busy()
        async with served(case) as site:
            address = site.url + "api/v1/apps/{}/pause"
            for app_id, expected in (("app-0003", 400), ("nobody", 404)):
                async with site.session.post(address.format(app_id), headers=bearer(case, "ada")) as answer:
                    assert answer.status == expected

    run(scenario)


@pytest.mark.parametrize(
    ("changes", "verbs"),
    [
        ({}, ("pause", "kill")),
        ({"pause_reason": "asked"}, ("kill",)),
        ({"kill_reason": "asked"}, ()),
        ({"state": "PAUSED"}, ("resume", "kill")),
        ({"state": "FINISHED"}, ()),
    ],
)
def test_buttons_are_what_can_be_done_now(changes, verbs):
    async def scenario():
        entry = case_of_ada().entries.get("app-0001")
        for name, value in changes.items():
            setattr(entry, name, type(entry.state)(value) if name == "state" else value)
        assert actions.verbs_for(entry) == verbs

    run(scenario)


@pytest.mark.parametrize(
    ("content", "headers"),
    [(b"[" * 100_000, {}), (b"\xff", {}), (b"{", {"Content-Type": "application/json; charset=none"})],
)
def test_content_that_is_no_document_is_refused(content, headers):
    async def scenario():
        case = case_of_ada()
        async with served(case) as site:
            address = f"{site.url}api/v1/apps/app-0001/kill"
            async with site.session.post(address, headers={**bearer(case, "ada"), **headers}, data=content) as answer:
                assert answer.status == 400
            assert not case.entries.get("app-0001").kill_reason

    run(scenario)
