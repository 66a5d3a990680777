"""Generate candidates for apps of many jobs, if not every multiset of gangs can be enumerated.

Five generators of one interface (`search_space.CandidateGenerator`) propose good divisions of some bundle into gangs.
What remains open is how many GPUs are won, how large the gangs of elastic jobs are, and how many tight places are among
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from am.agent.candidates.gang_kinds import Candidate
from am.agent.candidates.list_scheduling import list_scheduling_candidates
from am.agent.candidates.local_search import greedy_search, target_search
from am.agent.candidates.multifit import multifit_candidates
from am.agent.candidates.search_space import CandidateGenerator, SearchSpace
from am.agent.candidates.sub_bundles import sub_bundle_candidates

_SEARCHES: tuple[CandidateGenerator, ...] = (multifit_candidates, greedy_search, target_search)
"""Each improves what those before it found, so the best candidates are those of the last."""

_MAX_GENERATED = 230
"""Most generated candidates of all tables of a bid, in addition to sub-bundles, which have their own limit."""


def generate_candidates(space: SearchSpace) -> Iterator[Candidate]:
    """Candidates of the space, some of them twice: sub-bundles, then those of the searches, then list scheduling.

    The limit cuts off the last candidates, those of list scheduling with similar GPU totals. A bid of several tables
    tries fewer MULTIFIT ends for each, no sub-bundles and no local search.

    Example: jobs of 90, 60 and 30 s on 1 to 2 GPUs, and one machine of 4 GPUs with the kinds (2 GPUs, 1 GPU). MULTIFIT
    proposes (2, 0), (1, 1), (0, 2) and (0, 1), the target search adds (1, 2), list scheduling adds (1, 0) and (0, 3).
    """
    yield from sub_bundle_candidates(space, ())
    found: list[Candidate] = []
    for search in _SEARCHES:
        found = [*search(space, found), *found]
    generated = itertools.chain(found, list_scheduling_candidates(space, found))
    yield from itertools.islice(generated, max(1, _MAX_GENERATED // space.tables))
