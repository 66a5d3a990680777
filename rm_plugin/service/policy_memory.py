"""A policy's memory in the event log: whole now and then, and in between what each round changed.

A `round_granted` of a policy with memory has one of two keys:

- `memory`: the whole memory, in the first round after a start of the ResourceManager and in every `WHOLE_EVERY`-th one.
- `memory_change`: `after`, the round whose memory it changes, and `patch`, a JSON merge patch (RFC 7396): values that
  changed, and null for keys that are gone.

Example: the memory {"owed": {"a": 1, "b": 2}} of round 7 becomes {"owed": {"b": 3}} in round 8. Then round 8 has
"memory_change": {"after": 7, "patch": {"owed": {"a": null, "b": 3}}}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from themis.json_merge_patch import merged
from themis.values import Value

WHOLE_EVERY = 50
"""Rounds after which the memory is written whole again, so that an unreadable event does not lose it for long."""


class MemoryRecorder:
    """Says what a round writes of the policy's memory, from what was written last."""

    def __init__(self) -> None:
        self._written: dict[str, Any] | None = None
        self._round_id = 0
        self._changes = 0

    def record(self, round_id: int, memory: Value | None) -> tuple[Mapping[str, object], Callable[[], None]]:
        """Return the keys for the event of a round, and a function to call once the event is written."""
        if memory is None:
            return {}, lambda: self._wrote(round_id, None, 0)
        content = _without_null(msgspec.to_builtins(memory))
        if self._written is None or self._changes + 1 >= WHOLE_EVERY:
            return {"memory": content}, lambda: self._wrote(round_id, content, 0)
        change = {"after": self._round_id, "patch": _patch(self._written, content)}
        return {"memory_change": change}, lambda: self._wrote(round_id, content, self._changes + 1)

    def _wrote(self, round_id: int, content: dict[str, Any] | None, changes: int) -> None:
        self._round_id, self._written, self._changes = round_id, content, changes


def memory_after(content: object | None, written: int | None, detail: Mapping[str, Any]) -> object | None:
    """Return the content after a round, from the content that the round `written` left and the round's detail.

    Returns None if the round has no memory, or changes that of a round whose event is missing or unreadable.
    """
    if "memory" in detail:
        whole: object = detail["memory"]
        return whole
    change = detail.get("memory_change")
    if not isinstance(change, dict) or not isinstance(content, dict) or change.get("after") != written:
        return None
    return merged(content, change.get("patch"))


def _without_null(content: Mapping[str, Any]) -> dict[str, Any]:
    """Content without keys whose value is null: a patch cannot set those, and they are defaults."""
    return {
        key: _without_null(value) if isinstance(value, dict) else value
        for key, value in content.items()
        if value is not None
    }


def _patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = dict.fromkeys(sorted(before.keys() - after.keys()))
    for key, value in after.items():
        former = before.get(key)
        if value != former:
            # Of most apps nothing has changed.
            patch[key] = _patch(former, value) if isinstance(value, dict) and isinstance(former, dict) else value
    return patch
