"""Kill by YARN's address: the client library of YARN, rights, and what else is refused."""

import asyncio
from types import SimpleNamespace

import pytest
from web_cases import NOW_S, RmCase, served
from yarn_api_client import ResourceManager
from yarn_api_client.errors import APIError

from themis.lifecycle import AppState

STATE = "ws/v1/cluster/apps/application_1_0001/state"


def case_of_ada():
    case = RmCase(((4,),))
    case.manager.rounds = SimpleNamespace(
        trigger=lambda why: None, lease_ends_moved=lambda: None, explanation=lambda app: (), rounds=0
    )
    case.running("mine")
    case.app("well", state=AppState.FINISHED, finished_at_s=NOW_S + 60.0)
    return case


def token_of(case, user):
    return f"Bearer {case.manager.identities.local_token(1, user)}"


def run(scenario):
    async def whole():
        case = case_of_ada()
        async with served(case) as site:
            await scenario(case, site)
        await case.manager.app_masters.close()

    asyncio.run(whole())


def kill(site, token, app_id):
    """What the client library of YARN answers to a kill; it blocks, so it runs in a thread."""

    def with_token(request):
        if token:
            request.headers["Authorization"] = token
        return request

    def asked():
        client = ResourceManager(service_endpoints=[site.url.rstrip("/")], auth=with_token)
        return client.cluster_application_kill(app_id).data

    return asyncio.to_thread(asked)


def test_client_of_yarn_kills_its_users_app():
    async def scenario(case, site):
        assert await kill(site, token_of(case, "ada"), "app-0001") == {"state": "RUNNING"}
        assert case.entries.get("app-0001").kill_reason == "killed by its user"

    run(scenario)


def test_diagnostics_are_the_reason_and_the_answer_is_accepted():
    async def scenario(case, site):
        headers = {"Authorization": token_of(case, "ada")}
        document = {"state": "KILLED", "diagnostics": "too slow"}
        async with site.session.put(site.url + STATE, headers=headers, json=document) as answer:
            assert answer.status == 202
        assert case.entries.get("app-0001").kill_reason == "too slow"

    run(scenario)


def test_app_that_has_ended_stays_as_it_is():
    async def scenario(case, site):
        headers = {"Authorization": token_of(case, "ada")}
        ended = site.url + "ws/v1/cluster/apps/app-0002/state"
        async with site.session.put(ended, headers=headers, json={"state": "KILLED"}) as answer:
            assert (answer.status, await answer.json()) == (200, {"state": "FINISHED"})

    run(scenario)


@pytest.mark.parametrize(("user", "status"), [("bob", "403"), (None, "401")])
def test_others_and_callers_without_a_token_are_refused(user, status):
    async def scenario(case, site):
        with pytest.raises(APIError, match=f"status: {status}"):
            await kill(site, token_of(case, user) if user else None, "app-0001")
        assert not case.entries.get("app-0001").kill_reason

    run(scenario)


@pytest.mark.parametrize(
    "content", [b"", b'{"state": "FINISHED"}', b'["KILLED"]', b'{"state": "KILLED", "diagnostics": 1}']
)
def test_another_state_is_refused(content):
    async def scenario(case, site):
        headers = {"Authorization": token_of(case, "ada")}
        async with site.session.put(site.url + STATE, headers=headers, data=content) as answer:
            assert answer.status == 400
        assert not case.entries.get("app-0001").kill_reason

    run(scenario)
