"""What the apps of a round answer as it begins: reports one by one, or of many apps at once.

Of most apps of a busy cluster nothing changes from round to round but rho. Whoever asks many of them at once tells of
them together, and a report of one by itself is made where somebody looks at it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, KeysView, Mapping, Sequence

from themis.bids import AppReport, GangDemand, RhoOf

Wanting = list[tuple[str, tuple[GangDemand, ...]]]
"""Apps that could use more GPUs, with what."""


class ReportGroup(ABC):
    """Reports of apps none of which holds GPUs beside which a job of it would grow: nothing in them needs a look.

    What a group was made from must not change it later.

    Args:
        round_id: The round that they answer.
    """

    def __init__(self, round_id: int) -> None:
        self.round_id = round_id
        self._made: dict[str, AppReport] = {}

    @property
    @abstractmethod
    def app_ids(self) -> KeysView[str]:
        """Ids of the apps."""

    @abstractmethod
    def wanting(self) -> Wanting:
        """Those that could use more; the list is the group's own."""

    @abstractmethod
    def worst(self, most: int) -> list[tuple[float, str]]:
        """(-rho, id) of those with the highest rho, at least so many of them if there are, in any order."""

    @abstractmethod
    def tells(self, rho_of: RhoOf) -> bool:
        """True where all tell their rho, a number of 0 or more, who are asked for it."""

    def report(self, app_id: str) -> AppReport:
        """The report of one of the apps."""
        report = self._made.get(app_id)
        if report is None:
            report = self._made[app_id] = self._make(app_id)
        return report

    @abstractmethod
    def _make(self, app_id: str) -> AppReport: ...


class Reports(Mapping[str, AppReport]):
    """Reports by app.

    Args:
        singly: Those that were told one by one.
        groups: Those of other apps, each in one group.
    """

    def __init__(self, singly: Mapping[str, AppReport], groups: Sequence[ReportGroup] = ()) -> None:
        self.singly = singly
        self.groups = tuple(groups)

    def __getitem__(self, app_id: str) -> AppReport:
        if app_id in self.singly:
            return self.singly[app_id]
        for group in self.groups:
            if app_id in group.app_ids:
                return group.report(app_id)
        raise KeyError(app_id)

    def __iter__(self) -> Iterator[str]:
        yield from self.singly
        for group in self.groups:
            yield from group.app_ids

    def __len__(self) -> int:
        return len(self.singly) + sum([len(group.app_ids) for group in self.groups])

    def wanting(self) -> Wanting:
        """The apps that could use more GPUs."""
        wanting = [(app_id, report.demands) for app_id, report in self.singly.items() if report.demands]
        for group in self.groups:
            wanting += group.wanting()
        return wanting

    def worst(self, most: int) -> list[str]:
        """So many of those apps, the highest rho first, of equals the least id."""
        ranked = [(-report.rho, app_id) for app_id, report in self.singly.items() if report.demands]
        for group in self.groups:
            ranked += group.worst(most)
        ranked.sort()
        return [app_id for _, app_id in ranked[:most]]
