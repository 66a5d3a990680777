"""The allocation rules by name: the two modes of OEF, then the baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from rm_plugin.policies.oef.baselines.gandiva_fair import gandiva_fair
from rm_plugin.policies.oef.baselines.gavel import gavel
from rm_plugin.policies.oef.baselines.incentive_only import incentive_only
from rm_plugin.policies.oef.baselines.max_min import max_min
from rm_plugin.policies.oef.baselines.pure_efficiency import pure_efficiency
from rm_plugin.policies.oef.evaluator import Mode, Rule, rule_of
from rm_plugin.solvers.linear import MakeModel
from themis.errors import UnknownNameError

RULES: Mapping[str, Callable[[MakeModel], Rule]] = MappingProxyType(
    {
        "cooperative": partial(rule_of, Mode.COOPERATIVE),
        "noncooperative": partial(rule_of, Mode.NONCOOPERATIVE),
        "max_min": lambda _: max_min,
        "gavel": lambda make: lambda speedups: gavel(speedups, make, None),
        "gavel_capped": lambda make: lambda speedups: gavel(speedups, make),
        "gandiva_fair": lambda _: gandiva_fair,
        "incentive_only": lambda make: lambda speedups: incentive_only(speedups, make),
        "pure_efficiency": lambda make: lambda speedups: pure_efficiency(speedups, make),
    }
)


def rule_named(name: str, make_model: MakeModel) -> Rule:
    """Return the rule of this name. Raises UnknownNameError, which names the nearest."""
    if name not in RULES:
        raise UnknownNameError("allocation rule", name, RULES)
    return RULES[name](make_model)
