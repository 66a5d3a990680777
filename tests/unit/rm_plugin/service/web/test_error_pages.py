"""What a reader sees of an error: what is wrong as the heading, and the value and the remedy below it, each once."""

import re

import pytest
from web_cases import busy, run, served


@pytest.mark.parametrize(
    ("path", "status", "what", "more"),
    [
        ("/login", 401, "you are not signed in", "as the password, your token"),
        ("/apps/nobody", 404, "unknown app", "nobody"),
        ("/nothing", 404, "no such page", "/nothing"),
    ],
)
def test_an_error_page_says_everything_once(path, status, what, more):
    async def scenario():
        async with served(busy()) as site:
            answered, _, text = await site.get(path)
            assert answered == status
            assert re.findall(r"<h1>(.*?)</h1>", text) == [what]
            assert more in text and text.count(what) == 2  # The heading, and the title of the window.

    run(scenario)
