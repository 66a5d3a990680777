"""Signing in by a browser's own dialog, in a real Chromium: by a token, and what one sees who cancels it."""

import asyncio
import os

import pytest
from test_pages_in_browser import CHROMIUM, playwright
from web_cases import busy, served

from rm_plugin.service.web import readers

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)")


async def answer_dialog(page, password):
    """Give this password in the dialog of the browser, or cancel it if there is none."""
    driver = await page.context.new_cdp_session(page)
    response = (
        {"response": "ProvideCredentials", "username": "anyone", "password": password}
        if password
        else {"response": "CancelAuth"}
    )
    driver.on(
        "Fetch.authRequired",
        lambda asked: asyncio.ensure_future(
            driver.send("Fetch.continueWithAuth", {"requestId": asked["requestId"], "authChallengeResponse": response})
        ),
    )
    driver.on(
        "Fetch.requestPaused",
        lambda paused: asyncio.ensure_future(driver.send("Fetch.continueRequest", {"requestId": paused["requestId"]})),
    )
    await driver.send("Fetch.enable", {"handleAuthRequests": True})


def test_a_browser_signs_in_by_a_token_and_a_cancelled_dialog_says_how(monkeypatch):
    monkeypatch.setattr(readers, "user_name", lambda uid: "eve")

    async def scenario():
        case = busy()
        token = case.manager.identities.local_token(os.getuid(), "ada")
        async with served(case) as site, playwright.async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            root = site.url.rstrip("/")
            page = await (await browser.new_context(viewport={"width": 400, "height": 600})).new_page()
            await answer_dialog(page, "")
            answer = await page.goto(root + "/login")
            assert answer.status == 401
            assert await page.inner_text("h1") == "you are not signed in"
            assert "as the password, your token" in await page.inner_text("p")
            assert await page.evaluate("document.documentElement.scrollWidth") == 400
            page = await (await browser.new_context()).new_page()
            await answer_dialog(page, token)
            await page.goto(root + "/login")
            assert page.url == root + "/"
            await page.goto(root + "/apps/app-0001")
            assert await page.locator("button[data-verb]").count() > 0
            await browser.close()

    asyncio.run(scenario())
