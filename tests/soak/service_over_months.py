"""A ResourceManager in memory over a real store, which plays short apps in virtual time until it is killed.

`python service_over_months.py STATE_DIR APPS`: apps are submitted, trained for two steps and finished until the store
knows APPS of them. Prints a JSON line after the start, and one every `REPORT_EVERY` apps. Virtual time passes three
hours with every batch of apps.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from service_cases import NOW_S, ServiceCase, app, heartbeat, job_event, registration, report  # noqa: E402

from rm_plugin.service.entries import AppEntry  # noqa: E402
from rm_plugin.service.session import Session  # noqa: E402
from rm_plugin.service.store_sqlite import SqliteStore  # noqa: E402
from themis.clock import ClockMark  # noqa: E402
from themis.cluster import Cluster, DeviceType, Machine  # noqa: E402
from themis.wire import themis_pb2 as pb  # noqa: E402

BATCH = 32
REPORT_EVERY = 320
BATCH_S = 3 * 3600.0
KEEP_APPS = 320
RETENTION = {"keep_s": 5 * 86_400.0, "keep_apps": KEEP_APPS}
CLUSTER = Cluster(
    name="soak",
    machines=tuple(Machine(machine_id=f"m{place}", rack_id="r0", slots=(4, 4), device="v100") for place in range(4)),
    devices={"v100": DeviceType(name="v100", emulated=True)},
)
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Open = tuple[AppEntry, Session]


async def main(folder: Path, apps: int) -> None:
    """Start, bring the apps of a former process to an end, then play new ones."""
    begun_s = time.process_time()
    store = SqliteStore(folder / "rm.sqlite")
    mark = store.meta("clock")
    now_s = ClockMark.from_text(mark).time_s if mark else NOW_S
    case = ServiceCase(
        store,
        policy="srtf",
        folder=folder,
        cluster=CLUSTER,
        now_s=now_s,
        retention=RETENTION,
        am_starts_at_once=BATCH,
    )
    case.recorder.record("rm_started", detail={"recovered": bool(case.entries.count())})
    await case.manager.app_masters.recover()
    tell(folder, case, start_cpu_s=time.process_time() - begun_s)
    await play(case, [await register(case, entry) for entry in case.entries.active()])
    reported = case.entries.count()
    while (known := case.entries.count()) < apps:
        batch = [await case.manager.submit(app(f"short-{known + place}", 1)) for place in range(BATCH)]
        await play(case, [await register(case, entry) for entry in batch])
        await case.manager.retention.archive_old()
        if case.entries.count() - reported >= REPORT_EVERY:
            reported = case.entries.count()
            tell(folder, case)
    tell(folder, case, done=True)
    await case.manager.changes.close()
    store.close()


async def register(case: ServiceCase, entry: AppEntry) -> Open:
    while not entry.attempt or not entry.pid:
        await asyncio.sleep(0.001)
    return await case.manager.sessions.register(registration(entry))


async def play(case: ServiceCase, apps: list[Open]) -> None:
    """Let the apps have a round, train a little and finish."""

    def answers(round_id: int, body: str) -> Iterator[tuple[AppEntry, Session, pb.AmMessage]]:
        return ((*each, pb.AmMessage(rho=report(round_id))) for each in apps if body == "rho")

    case.numbers.clear()
    await case.round(answers)
    for entry, session in apps:
        await case.send(entry, session, heartbeat=heartbeat())
        for iteration in (1, 2):
            detail = json.dumps({"iteration": iteration, "seconds": 0.5})
            await case.send(entry, session, job_event=job_event(detail=detail))
    case.clock.advance_to(case.clock.now_s() + BATCH_S)
    for entry, session in apps:
        leases = [lease.lease_id for lease in case.arbiter.table.of_app(entry.app_id)]
        await case.send(entry, session, release=pb.Release(lease_ids=leases, reason="done"))
        end = pb.Finish(state="FINISHED", rho={"themis": 1.5}, jobs=heartbeat().jobs, best="job-0")
        await case.send(entry, session, finish=end)
        session.close()
        case.manager.sessions.disconnected(entry, session)
        case.manager.app_masters.launches._launcher.living.pop(entry.app_id, None)
    case.manager.app_masters.launches._launcher.launched.clear()


def tell(folder: Path, case: ServiceCase, **more: object) -> None:
    store_bytes = sum(path.stat().st_size for path in folder.glob("rm.sqlite*"))
    archive_bytes = sum(path.stat().st_size for path in folder.glob("archive/*"))
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    row = {
        "apps": case.entries.count(),
        "in_memory": len(list(case.entries)),
        "rss_mb": pages * PAGE_BYTES / 2**20,
        "handles": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "store_mb": store_bytes / 2**20,
        "archive_mb": archive_bytes / 2**20,
        **more,
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
