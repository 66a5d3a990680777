"""Colours of states on a terminal. `NO_COLOR` and terminals without colours switch them off (https://no-color.org)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TextIO

from themis.lifecycle import AppState, JobState

_GREEN, _YELLOW, _RED, _CYAN = "32", "33", "31", "36"
_COLOURS: Mapping[str, str] = {
    AppState.SUBMITTED: _YELLOW,
    AppState.ACCEPTED: _YELLOW,
    AppState.PAUSED: _CYAN,
    JobState.WAITING: _YELLOW,
    JobState.STARTING: _YELLOW,
    JobState.RUNNING: _GREEN,
    JobState.CHECKPOINTING: _GREEN,
    JobState.FINISHED: _GREEN,
    JobState.FAILED: _RED,
    JobState.KILLED: _RED,
}
"""The code of a state's colour. States of apps and jobs with the same name have the same one."""

_STATE = re.compile(rf"(?<![\w./-])(?:{'|'.join(_COLOURS)})(?![\w./-])")


def has_colours(stream: TextIO) -> bool:
    """Whether text on a stream may have colours: it is a terminal, and its user does not object."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def with_colours(text: str) -> str:
    """Return a text whose states have colours. Its columns stay where they are on a terminal."""
    return _STATE.sub(lambda match: f"\x1b[{_COLOURS[match[0]]}m{match[0]}\x1b[0m", text)
