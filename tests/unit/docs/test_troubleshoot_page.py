"""The messages that docs/how-to/troubleshoot.md explains are those of the program."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/troubleshoot.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)`", PAGE, re.MULTILINE)
SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for package in ("themis", "rm_plugin", "am", "submarine_client")
    for path in sorted((ROOT / package).rglob("*.py"))
)


def test_page_has_messages():
    assert len(MESSAGES) > 10


@pytest.mark.parametrize("message", MESSAGES)
def test_message_is_one_of_the_program(message):
    # Upper-case words and dots stand for values; a part after a comma may be put in.
    parts = [part.strip() for part in re.split(r"\b[A-Z]{3,}\b(?! for)|\.\.|, ", message)]
    assert all(part in SOURCES for part in parts if part), message
