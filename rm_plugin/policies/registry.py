"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from rm_plugin.policies.drf import DrfPolicy
from rm_plugin.policies.fair_finish import FairFinishPolicy
from rm_plugin.policies.gandiva import GandivaPolicy
from rm_plugin.policies.optimus import OptimusPolicy
from rm_plugin.policies.port import Policy
from rm_plugin.policies.slaq import SlaqPolicy
from rm_plugin.policies.srsf import SrsfPolicy
from rm_plugin.policies.srtf import SrtfPolicy
from rm_plugin.policies.themis import ThemisPolicy
from rm_plugin.policies.tiresias import TiresiasPolicy
from rm_plugin.policies.worst_rho_first import WorstRhoFirstPolicy
from themis.errors import UnknownNameError


def _oef(name: str, rule: str) -> Policy:
    """OEF's policy under a mode of OEF or a baseline's rule: all divide device types among tenants."""
    # Loads numpy and HiGHS, which no other policy needs.
    from rm_plugin.policies.oef.registry import rule_named
    from rm_plugin.policies.oef_policy import OefPolicy
    from rm_plugin.solvers.highs_linear import HighsModel

    return OefPolicy(name, rule_named(rule, HighsModel))


def _allox(name: str) -> Policy:
    """AlloX, or one of its baselines. A job has one device until it ends."""
    # Loads numpy and SciPy, which no other policy needs.
    from rm_plugin.policies.allox_policy import AlloxPolicy
    from rm_plugin.policies.allox_rules import RULES

    return AlloxPolicy(name, RULES[name])


POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        ThemisPolicy.name: ThemisPolicy,
        GandivaPolicy.name: GandivaPolicy,
        TiresiasPolicy.name: TiresiasPolicy,
        OptimusPolicy.name: OptimusPolicy,
        SlaqPolicy.name: SlaqPolicy,
        SrtfPolicy.name: SrtfPolicy,
        SrsfPolicy.name: SrsfPolicy,
        DrfPolicy.name: DrfPolicy,
        WorstRhoFirstPolicy.name: WorstRhoFirstPolicy,
        FairFinishPolicy.name: FairFinishPolicy,
        "oef": partial(_oef, "oef", "cooperative"),
        "oef_noncooperative": partial(_oef, "oef_noncooperative", "noncooperative"),
        "max_min": partial(_oef, "max_min", "max_min"),
        "gavel": partial(_oef, "gavel", "gavel"),
        "gavel_capped": partial(_oef, "gavel_capped", "gavel_capped"),
        "gandiva_fair": partial(_oef, "gandiva_fair", "gandiva_fair"),
        "incentive_only": partial(_oef, "incentive_only", "incentive_only"),
        "pure_efficiency": partial(_oef, "pure_efficiency", "pure_efficiency"),
        "allox": partial(_allox, "allox"),
        "allox_plus": partial(_allox, "allox_plus"),
        "sjf_plus": partial(_allox, "sjf_plus"),
        "best_fit": partial(_allox, "best_fit"),
        "jsq_plus": partial(_allox, "jsq_plus"),
        "equal_share": partial(_allox, "equal_share"),
        "equal_share_fcfs": partial(_allox, "equal_share_fcfs"),
        "drff": partial(_allox, "drff"),
        "drfs": partial(_allox, "drfs"),
        "drfa": partial(_allox, "drfa"),
    }
)


def make_policy(name: str) -> Policy:
    """The policy of a name; an unknown one raises UnknownNameError, which names the nearest."""
    try:
        return POLICIES[name]()
    except KeyError:
        raise UnknownNameError("policy", name, POLICIES) from None
