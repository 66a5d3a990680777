"""Place gangs of given sizes at locality levels: how many of them are of each kind (`core/gang_layout.c`).

Example: two gangs of 2 GPUs each. One of them fits in a slot, both fit on machines. At the tightest levels one gang is
in a slot and one on a machine; at two levels both are on machines, or only one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from am.agent import _candidates
from am.agent.candidates.gang_kinds import Candidate, GangKind
from themis.cluster import Level
from themis.values import cached_property

Sizes = tuple[tuple[int, int, int], ...]
"""Gangs as (GPUs, unit, count)."""


class GangLayout:
    """Places gangs, each as one of the kinds of its GPUs and unit.

    Args:
        kinds: The kinds of gangs that fit, those of one size tightest first.
    """

    def __init__(self, kinds: Sequence[GangKind]) -> None:
        self._kinds = kinds
        most = np.array([kind.most for kind in kinds], dtype=np.int64)
        self._arrays = most, np.array([kind.within for kind in kinds], dtype=np.int64)
        by_size: dict[tuple[int, int], list[int]] = {}
        for index, kind in enumerate(kinds):
            by_size.setdefault((kind.at.gpus, kind.unit_gpus), []).append(index)
        self._kinds_of = {size: tuple(indices) for size, indices in by_size.items()}

    def at_tightest(self, sizes: Sizes, parts: Iterable[float]) -> list[Candidate]:
        """The layouts with gangs at their tightest levels, the first size first. Layouts that do not fit are left out.

        Args:
            sizes: The gangs.
            parts: One layout for each. At each level but the loosest of a size, at most this part of the places that
                there are is taken.
        """
        return _candidates.at_tightest(*self._arrays, self._kinds_of, sizes, tuple(parts))

    def at_two_levels(self, sizes: Sizes, loose_counts: Iterable[int]) -> list[Candidate]:
        """The layouts with all gangs at one level, or the first of them at a looser one, for all pairs of levels.

        Args:
            sizes: The gangs.
            loose_counts: How many gangs are at the looser level, one layout for each.
        """
        return _candidates.at_two_levels(*self._arrays, self._kind_at_level, sizes, tuple(loose_counts))

    @cached_property
    def _kind_at_level(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """For each size and level the loosest kind within the level, or the tightest of all."""
        found = {}
        for size, indices in self._kinds_of.items():
            within = [[index for index in indices if self._kinds[index].within <= level] for level in Level]
            found[size] = tuple([fitting[-1] if fitting else indices[0] for fitting in within])
        return found
