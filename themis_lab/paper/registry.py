"""Experiments by name. Each module defines one as EXPERIMENT, and is imported only if that experiment is requested."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from themis.errors import UnknownNameError, nearest
from themis_lab.paper.port import Experiment

_NAMES = (
    "fig6",
    "fig9",
    "fig10",
    "fig11",
    "fig12",
    "tab5",
    "fig13",
    "fig14",
    "fig15",
    "fig16",
    "fig17",
    "fig18",
    "fig19",
    "overheads",
    "blind",
    "lying",
    "ablations",
    "standins",
)

MODULES: Mapping[str, str] = MappingProxyType(
    {name: f"themis_lab.paper.{name}" for name in _NAMES} | {"standins": "themis_lab.paper.sensitivity"}
)
"""The module of each experiment, in the order of docs/explanation/reproduction.md."""


APART: Mapping[str, str] = MappingProxyType(
    {
        "fairness": "themis_lab.paper.fluid_fairness",
        "frontier": "themis_lab.paper.frontier",
        "splitting": "themis_lab.paper.splitting",
    }
)
"""Experiments that `all` leaves out, because they repeat nothing of the paper."""

TOGETHER: Mapping[str, tuple[str, ...]] = MappingProxyType({"fairness": ("frontier",)})
"""Experiments that are made after another one, whose runs they share."""

PAPERS: Mapping[str, str] = MappingProxyType(
    {
        "allox": "themis_lab.paper.allox.registry",
        "oef": "themis_lab.paper.oef.registry",
        "mixed": "themis_lab.paper.mixed_registry",
        "estimates": "themis_lab.paper.estimates",
    }
)
"""Further evaluations: of other papers, of all policies on mixed devices, and of estimates. Each module lists
EXPERIMENTS, which make their own runs."""


def experiment_named(name: str) -> Experiment:
    """Return the experiment of this name. Raises UnknownNameError, which lists all names."""
    modules = {**MODULES, **APART}
    if name not in modules:
        known = (*modules, *PAPERS)
        error = UnknownNameError("experiment", name, known)
        near = nearest(name, known)
        error.remedy = f"{f'did you mean {near!r}? ' if near else ''}known: {', '.join(known)}"
        raise error
    return cast(Experiment, importlib.import_module(modules[name]).EXPERIMENT)
