"""The job types of a tenant: its apps whose speedup vectors agree, up to what measurements can tell apart.

The paper takes jobs of one model as one job type (Middleware'24, section 4.2.4). The ResourceManager cannot see the
model: it may be in a program's name, its arguments, its hyper-parameters or its code. So speedups decide. Apps of one
model are measured to be some per cent apart. If each were a job type of its own, the tenant's other job types would
lose a part of their weight by that noise.

So an app joins the job type of its tenant whose vector is nearest, if no entry is more than `JOINS` away. It stays
there until an entry is more than `STAYS` away from the vector that the job type had in the last round, so noise does
not move it to and fro.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from rm_plugin.policies.oef.profiling import LARGEST_ERROR

Vector = tuple[float, ...]

STAYS = LARGEST_ERROR
"""Relative difference of speedups up to which an app stays in its job type: that at which a profile is stale."""

JOINS = STAYS / 2
"""Relative difference of speedups up to which an app joins a job type; our choice, well above measurement noise."""


def job_types(vectors: Mapping[str, Vector], former: Mapping[str, str], known: Mapping[str, Vector]) -> dict[str, str]:
    """The job type of each app of one tenant. A job type is named after the vector of its first app.

    The result does not depend on the order of apps.

    >>> job_types({"a": (1.0, 2.0), "b": (1.0, 2.01), "c": (1.0, 5.0)}, {}, {})
    {'a': '1:2', 'b': '1:2', 'c': '1:5'}

    Args:
        vectors: Its speedup vectors by app.
        former: The job types of its apps in the last round.
        known: Speedup vectors by app in the last round.
    """
    members: dict[str, list[Vector]] = {}
    for app_id, name in former.items():
        if app_id in known:
            members.setdefault(name, []).append(known[app_id])
    centres = {name: mean_vector(mine) for name, mine in sorted(members.items())}
    found: dict[str, str] = {}
    for app_id, vector in vectors.items():
        name = former.get(app_id, "")
        if name in centres and _difference(vector, centres[name]) <= STAYS:
            found[app_id] = name
    used = set(found.values())
    centres = {name: centre for name, centre in centres.items() if name in used}
    for vector, app_id in sorted((vector, app_id) for app_id, vector in vectors.items() if app_id not in found):
        nearest = min(centres, key=lambda name: (_difference(vector, centres[name]), name), default="")
        if not nearest or _difference(vector, centres[nearest]) > JOINS:
            nearest = _new_name(vector, centres)
            centres[nearest] = vector
        found[app_id] = nearest
    return dict(sorted(found.items()))


def mean_vector(vectors: Sequence[Vector]) -> Vector:
    """The mean of vectors that agree where they are 0."""
    return tuple(math.fsum(entries) / len(vectors) for entries in zip(*vectors, strict=True))


def _difference(one: Vector, other: Vector) -> float:
    """The largest relative difference of two entries; infinite if only one vector can use a type."""
    if len(one) != len(other):
        return math.inf
    largest = 0.0
    for mine, theirs in zip(one, other, strict=True):
        if mine != theirs:
            least = min(mine, theirs)
            largest = max(largest, abs(mine - theirs) / least if least > 0.0 else math.inf)
    return largest


def _new_name(vector: Vector, taken: Iterable[str]) -> str:
    """The vector as text, with a number if another job type began there and has moved away since."""
    name = text = ":".join(f"{value:g}" for value in vector)
    number = 1
    while name in taken:
        number += 1
        name = f"{text} ({number})"
    return name
