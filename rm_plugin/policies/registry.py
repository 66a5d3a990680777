"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rm_plugin.policies.port import Policy
from rm_plugin.policies.themis import ThemisPolicy
from rm_plugin.policies.tiresias import TiresiasPolicy
from themis.errors import UnknownNameError

POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {ThemisPolicy.name: ThemisPolicy, TiresiasPolicy.name: TiresiasPolicy}
)


def make_policy(name: str) -> Policy:
    """The policy of a name; an unknown one raises UnknownNameError, which names the nearest."""
    try:
        return POLICIES[name]()
    except KeyError:
        raise UnknownNameError("policy", name, POLICIES) from None
