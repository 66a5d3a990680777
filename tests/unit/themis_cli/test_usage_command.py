"""`themis usage`: sums by month and by what a row stands for, and whose apps have a row."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from submarine_client.connection import Connection, Listing
from themis.wire import themis_pb2 as pb
from themis_cli.usage_command import _by_app, usage_rows

METERED = [
    pb.UsageRow(month="2026-11", user="anna", queue="vision", device="v100", gpu_s=10.0),
    pb.UsageRow(month="2026-11", user="anna", queue="vision", device="k80", gpu_s=5.0),
    pb.UsageRow(month="2026-11", user="bob", queue="vision", device="v100", gpu_s=40.0),
    pb.UsageRow(month="2026-10", user="bob", queue="speech", device="v100", gpu_s=1.0),
]


def test_rows_are_summed_by_month_the_largest_use_first():
    assert usage_rows(METERED, "user") == [("2026-10", "bob", 1.0), ("2026-11", "bob", 40.0), ("2026-11", "anna", 15.0)]
    assert usage_rows(METERED, "queue") == [("2026-10", "speech", 1.0), ("2026-11", "vision", 55.0)]
    assert usage_rows(METERED, "device")[1:] == [("2026-11", "v100", 50.0), ("2026-11", "k80", 5.0)]


APPS = (
    pb.AppStatus(app_id="app-0001", user="ann", gpu_time_s=60.0, finished_at_s=1_793_491_200.0),
    pb.AppStatus(app_id="app-0002", user="bob", gpu_time_s=30.0),
)


class FakeConnection(Connection):
    """Has apps, and what the caller may see of GPU time."""

    def __init__(self, *users: str) -> None:
        self._users = users

    def usage(self, month: str = "") -> Sequence[pb.UsageRow]:
        return [pb.UsageRow(month=month or "2026-11", user=user, gpu_s=1.0) for user in self._users]

    def first(self, *_states: Any, wanted: Callable[[pb.AppStatus], bool], **_options: Any) -> Listing:
        return Listing(apps=tuple(app for app in APPS if wanted(app)), more=0, now_s=0.0)


@pytest.mark.parametrize(
    ("users", "apps"),
    [
        (("ann",), ["app-0001"]),
        (("ann", "bob"), ["app-0001", "app-0002"]),
        ((), []),
        (("", "bob"), ["app-0001", "app-0002"]),
    ],
)
def test_apps_are_those_of_the_users_whose_use_the_caller_sees(users: tuple[str, ...], apps: list[str]) -> None:
    assert [app_id for _month, app_id, _gpu_s in _by_app(FakeConnection(*users), "")] == apps
