"""A policy whose ResourceManager is killed and restarted before every round."""

import msgspec
from msgspec.structs import replace

from rm_plugin.service.store_json import from_json, to_json


class Restarting:
    """Reads its memory from JSON before each round. All else is the policy's."""

    def __init__(self, policy):
        self._policy = policy

    def __getattr__(self, name):
        return getattr(self._policy, name)

    def decide(self, snapshot):
        memory = snapshot.memory
        if memory is not None:
            stored = from_json(to_json(msgspec.to_builtins(memory)))
            memory = msgspec.convert(stored, self._policy.memory_type)
        return self._policy.decide(replace(snapshot, memory=memory))
