"""`themis usage`: sums by month and by what a row stands for."""

from themis.wire import themis_pb2 as pb
from themis_cli.usage_command import usage_rows

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
