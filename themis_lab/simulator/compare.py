"""Sets runs side by side: the figures of a document by name, and their median and spread over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from themis.rho import RhoDefinition
from themis_lab.simulator.metrics import MEASURED, Document

Figures = dict[str, float | None]
Spread = dict[str, float | None]

_NOT_FIGURES = (*MEASURED, "seed", "cluster_gpus", "cluster_cpu_nodes")


def figures_of(document: Mapping[str, object]) -> Figures:
    """Every number of a document that is of the run as a whole, by its dotted key; apps and wall times are left out."""
    kept = {key: value for key, value in document.items() if key not in _NOT_FIGURES}
    return dict(_numbers(kept, ""))


def spreads_of(documents: Sequence[Mapping[str, object]]) -> dict[str, Spread]:
    """Median, minimum and maximum of each figure over runs with different seeds; None if no run has it."""
    rows = [figures_of(document) for document in documents]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return {key: _spread([row.get(key) for row in rows]) for key in keys}


def sweep_document(documents: Sequence[Document]) -> Document:
    """One document of many: what they share, a row for each run, fairness ratios and spreads by policy, and all runs.

    Args:
        documents: Of runs of one cluster and workload, at least one.
    """
    policies = list(dict.fromkeys(str(document["policy"]) for document in documents))
    by_policy = {name: [each for each in documents if each["policy"] == name] for name in policies}
    return {
        "cluster": documents[0]["cluster"],
        "workload": documents[0]["workload"],
        "policies": policies,
        "seeds": list(dict.fromkeys(document["seed"] for document in documents)),
        "rows": [_row(document) for document in documents],
        "ratios": fairness_ratios(documents),
        "metrics": {name: spreads_of(of_policy) for name, of_policy in by_policy.items()},
        "runs": list(documents),
    }


RANKED_BY = (RhoDefinition.THEMIS_FLUID, RhoDefinition.ISOLATED_FLUID)
"""The definitions of rho by which policies are ranked. They err in opposite ways: `themis_fluid` allows apps of small
demand to wait long, `isolated_fluid` apps whose jobs depend on each other."""


def fairness_ratios(documents: Sequence[Document]) -> list[Document]:
    """The median and the worst of `ratios_by_seed` of each policy, smallest first; last by the policy's name."""
    ratios = [
        {"policy": name, "median": median(each.values()), "worst": max(each.values())}
        for name, each in ratios_by_seed(documents).items()
    ]
    return sorted(ratios, key=lambda ratio: (ratio["median"], ratio["worst"], ratio["policy"]))


def ratios_by_seed(documents: Iterable[Mapping[str, Any]]) -> dict[str, dict[float, float]]:
    """Return the ratio of each policy's max rho to that of the best other policy, by policy and seed.

    It is the larger of two ratios, by the definitions of `RANKED_BY`: the policy's max rho over the
    smallest max rho of the other policies. A max rho below 1 counts as 1. Policies that were not run with the other
    policies' seeds, or whose runs lack these definitions, have no ratio.

    Example: three policies have max rho 2, 1.5 and 0.9 by both definitions. Their ratios are 2, 1.5 and 1 / 1.5.

    Args:
        documents: Of runs; only their keys `policy`, `seed` and `max_rho` are read.
    """
    largest = {
        (document["policy"], document["seed"]): [max(1.0, document["max_rho"][name]) for name in RANKED_BY]
        for document in documents
        if all(name in document["max_rho"] for name in RANKED_BY)
    }
    by_policy: dict[str, dict[float, float]] = {}
    for (policy, seed), own in largest.items():
        others = [rho for (name, its_seed), rho in largest.items() if its_seed == seed and name != policy]
        if others:
            best = [min(each) for each in zip(*others, strict=True)]
            worse = max(rho / least for rho, least in zip(own, best, strict=True))
            by_policy.setdefault(policy, {})[seed] = worse
    return by_policy


def _row(document: Document) -> Document:
    """The few figures of a run by which policies are compared."""
    by_definition = document["by_definition"]
    return {
        "policy": document["policy"],
        "seed": document["seed"],
        "max_rho": document["max_rho"],
        "share_over_1": {name: each["share_over_1"] for name, each in by_definition.items()},
        "share_over_1.05": {name: each["share_over_1.05"] for name, each in by_definition.items()},
        "completion_s": document["completion_s"],
        "gpu_time_s": document["gpu_time_s"],
        "restarts": document["restarts"],
    }


def replay_document(recorded: Document, replayed: Sequence[Document]) -> Document:
    """One document of a recorded run and of those that replayed it, a policy each."""
    ratios = [completion_ratios(recorded, document) for document in replayed]
    return {"recorded": recorded, "replayed": list(replayed), "completion_ratios": ratios}


def completion_ratios(recorded: Document, replayed: Document) -> Document:
    """Completion times of the second run over those of the first, by app, with their median and spread.

    Apps that one of the runs does not have, or that did not end in it, are left out.
    """
    before = {app["name"]: app["completion_s"] for app in recorded["apps"] if app["completion_s"]}
    after = {app["name"]: app["completion_s"] for app in replayed["apps"]}
    by_app = {name: after[name] / before[name] for name in before if after.get(name) is not None}
    return {"by_app": by_app, **_spread(list(by_app.values()))}


def _numbers(value: object, key: str) -> Iterator[tuple[str, float | None]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(inner, f"{key}.{name}" if key else str(name))
    elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        yield key, value


def _spread(values: Sequence[float | None]) -> Spread:
    known = [value for value in values if value is not None]
    if not known:
        return {"median": None, "min": None, "max": None}
    return {"median": median(known), "min": min(known), "max": max(known)}
