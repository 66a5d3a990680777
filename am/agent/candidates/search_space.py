"""What a bid searches for, and the interface of the generators that propose candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from am.agent.candidates.gang_kinds import Candidate, GangKind
from am.agent.model.views import JobView
from themis.placement.gang_capacity import GangCapacity
from themis.values import Value

PARTS_AT_ONCE = (1.0, 0.75, 0.5)
"""Parts of the jobs that run at once if gangs are sized by the work of their jobs: fewer jobs have larger gangs."""

MAX_PACKED_CLOSELY = 7
"""The number of candidates with the earliest ends that a bid packs closely, a millisecond or more each. A local search
reports as many: of these another one may then be the best."""


class SearchSpace(Value, frozen=True, kw_only=True):
    """All candidates of at most `max_gangs` gangs and `max_gpus` GPUs.

    For example, three jobs of 1 to 2 GPUs and 4 free GPUs make the kinds (2 GPUs, 1 GPU), with at most 3 gangs and 4
    GPUs. The candidates (2, 0) and (1, 2) are in this space, (2, 1) needs 5 GPUs and (0, 4) has too many gangs.

    Attributes:
        kinds: Kinds of gangs that fit.
        max_gangs: Gangs at most.
        max_gpus: GPUs at most.
        jobs: The jobs without a gang.
        tables: The number of tables of the bid, which share the time of a bid.
        capacity: The free capacity. Generators that need it propose nothing without it.
    """

    kinds: tuple[GangKind, ...]
    max_gangs: int
    max_gpus: int
    jobs: Sequence[JobView]
    tables: int = 1
    capacity: GangCapacity | None = None


CandidateGenerator = Callable[[SearchSpace, Sequence[Candidate]], Iterable[Candidate]]
"""A function that proposes candidates, none of them empty, each within the search space, with at most `kind.most`
gangs of each kind.

Its second argument are the candidates that other generators proposed before, the latest generator first. A search
improves them; the other generators do not read them.
"""
