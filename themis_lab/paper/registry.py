"""Experiments by name. Each lives in a module of its own that names it EXPERIMENT; only what is asked for is loaded."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from themis.errors import UnknownNameError, nearest
from themis_lab.paper.port import Experiment

MODULES: Mapping[str, str] = MappingProxyType(
    {
        name: f"themis_lab.paper.{name}"
        for name in (
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
            "lying",
            "ablations",
            "standins",
        )
    }
)
"""In the order of themis.md, section 9."""


def experiment_named(name: str) -> Experiment:
    """The experiment of that name; an unknown one raises UnknownNameError, which lists them all."""
    if name not in MODULES:
        error = UnknownNameError("experiment", name, MODULES)
        near = nearest(name, MODULES)
        error.remedy = f"{f'did you mean {near!r}? ' if near else ''}known: {', '.join(MODULES)}"
        raise error
    return cast(Experiment, importlib.import_module(MODULES[name]).EXPERIMENT)
