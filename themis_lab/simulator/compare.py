"""Sets runs side by side: the figures of a document by name, and their median and spread over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from themis_lab.simulator.metrics import MEASURED, Document

Figures = dict[str, float | None]
Spread = dict[str, float | None]

_NOT_FIGURES = (*MEASURED, "seed", "cluster_gpus")


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
    """One document of many: what they share, the spreads by policy, and each run's own document.

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
        "metrics": {name: spreads_of(of_policy) for name, of_policy in by_policy.items()},
        "runs": list(documents),
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
