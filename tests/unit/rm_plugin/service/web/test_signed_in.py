"""Every page says as whom it is read."""

import re

import pytest
from web_cases import busy, run, served

PATHS = {"/": "login", "/apps": "login", "/apps/app-0001": "../login"}


async def note(site, path, headers):
    async with site.session.get(site.url.rstrip("/") + path, headers=headers) as answer:
        (found,) = re.findall(r'<p class="reader">(.*?)</p>', await answer.text())
        return found


@pytest.mark.parametrize("path", PATHS)
def test_a_page_names_its_reader_and_leads_others_to_the_login(path):
    async def scenario():
        case = busy()
        token = case.manager.identities.local_token(1, "<ada>")
        async with served(case) as site:
            ada = await note(site, path, {"Authorization": f"Bearer {token}"})
            assert ada == "Signed in as <strong>&lt;ada&gt;</strong>."
            stranger = await note(site, path, {"Host": "rm.example"})
            assert stranger.startswith("Not signed in: ")
            assert f'<a href="{PATHS[path]}">Sign in</a>' in stranger

    run(scenario)


def test_a_page_says_that_its_reader_is_an_administrator():
    async def scenario():
        case = busy()
        admin = case.manager.identities.user
        token = case.manager.identities.local_token(1, admin)
        async with served(case) as site:
            assert "an administrator" in await note(site, "/", {"Authorization": f"Bearer {token}"})

    run(scenario)
