"""What the reports of a round change is written before it takes effect, and a ResourceManager that crashes knows it."""

import asyncio

import pytest
from instant_loop import run_instantly
from service_cases import NOW_S, ServiceCase, app, report

from rm_plugin.arbiter.core import MASTER_UNAVAILABLE
from rm_plugin.arbiter.round_values import AppStanding
from rm_plugin.service.memory_service import FailingStore
from themis.bids import PlacedGang
from themis.cluster import Allocation, Level
from themis.wire import themis_pb2 as pb

LEASE_S = 600.0


def run(scenario):
    run_instantly(scenario())


def reports(entry, session):
    def answers(round_id, body):
        if body == "rho":
            yield entry, session, pb.AmMessage(rho=report(round_id))

    return answers


async def grant(case, entry, **gpus):
    """Lease GPUs to an app, outside a round."""
    gangs = {entry.app_id: [PlacedGang(Allocation.of(gpus), Level.MACHINE)]}

    def give(change):
        end_of = lambda at_s: at_s + LEASE_S  # noqa: E731
        change.leases(case.arbiter.table.settle(gangs, [], now_s=change.now_s, end_s=end_of, round_id=1))

    await case.manager.changes.make(give)


def test_first_claim_of_work_survives_a_crash():
    async def scenario():
        store = FailingStore()
        case = ServiceCase(store)
        entry, session = await case.started("one")
        await case.round(reports(entry, session))
        assert entry.claimed_gpu_s == 200.0
        assert ServiceCase(store).entries.get(entry.app_id).claimed_gpu_s == 200.0

    run(scenario)


@pytest.mark.parametrize(("attained_gpu_s", "claimed_gpu_s"), [(0.0, 200.0), (125.0, 150.0)])
def test_later_claim_replaces_the_first_one_until_half_of_it_is_metered(monkeypatch, attained_gpu_s, claimed_gpu_s):
    monkeypatch.setattr(AppStanding, "attained_gpu_s", lambda _standing, _now_s: attained_gpu_s)

    async def scenario():
        case = ServiceCase(FailingStore())
        entry, session = await case.started("one")
        await case.manager.changes.make(lambda change: change.put(entry, claimed_gpu_s=150.0))
        await case.round(reports(entry, session))
        assert entry.claimed_gpu_s == claimed_gpu_s

    run(scenario)


@pytest.mark.parametrize(
    ("known_gpu_s", "provisional", "claimed_gpu_s"), [(1.0, True, 200.0), (900.0, True, 900.0), (900.0, False, 200.0)]
)
def test_guess_is_replaced_by_a_larger_guess_and_by_what_is_none(known_gpu_s, provisional, claimed_gpu_s):
    async def scenario():
        store = FailingStore()
        case = ServiceCase(store)
        entry, session = await case.started("one")
        put = {"claimed_gpu_s": known_gpu_s, "claim_guessed": True}
        await case.manager.changes.make(lambda change: change.put(entry, **put))
        entry.heartbeat.provisional = provisional
        await case.round(reports(entry, session))
        for each in (entry, ServiceCase(store).entries.get(entry.app_id)):
            assert (each.claimed_gpu_s, each.claim_guessed) == (claimed_gpu_s, provisional)

    run(scenario)


@pytest.mark.parametrize(
    ("known_gpu_s", "attained_gpu_s", "claimed_gpu_s"),
    [(150.0, 650.0, 500.0 + 200.0), (500.0, 650.0, 500.0), (150.0, 1_300.0, 150.0)],
)
def test_guess_grows_with_the_work_left_and_not_with_what_was_done(
    monkeypatch, known_gpu_s, attained_gpu_s, claimed_gpu_s
):
    # Else an app that says for ever that it guesses, and that little is left, would never overrun its declaration.
    monkeypatch.setattr(AppStanding, "attained_gpu_s", lambda _standing, _now_s: attained_gpu_s)

    async def scenario():
        case = ServiceCase(FailingStore())
        entry, session = await case.started("one")
        put = {"claimed_gpu_s": known_gpu_s, "claim_guessed": True}
        await case.manager.changes.make(lambda change: change.put(entry, **put))
        entry.heartbeat.provisional = True
        await case.round(reports(entry, session))
        assert entry.claimed_gpu_s == pytest.approx(claimed_gpu_s)

    run(scenario)


def test_reports_that_cannot_be_written_change_nothing():
    async def scenario():
        store = FailingStore()
        case = ServiceCase(store)
        entry, session = await case.started("one")
        case.arbiter._apps[entry.app_id].waiting.add(7)

        def answers(round_id, body):
            store.trouble = "disk full"
            yield from reports(entry, session)(round_id, body)

        playing = asyncio.ensure_future(case.round(answers))
        async with asyncio.timeout(60):
            while "disk full" not in case.manager.changes.trouble:
                await asyncio.sleep(0.001)
        # The end of the round waits for the store.
        assert not (await asyncio.wait([playing], timeout=0.5))[0]
        playing.cancel()
        assert entry.claimed_gpu_s is None
        assert case.arbiter._apps[entry.app_id].waiting == {7}

    run(scenario)


async def silent_until_prolonged(store):
    """An app whose master is away, and whose lease was prolonged once. Returns its id."""
    case = ServiceCase(store)
    entry = await case.manager.submit(app("one"))
    await grant(case, entry, m0=1)
    case.arbiter.set_silent(entry.app_id, True)
    case.clock.advance_to(NOW_S + LEASE_S - 10.0)
    await case.rounds._play(["lease end"])
    assert last_lease_event(store) == ("lease_renewed", MASTER_UNAVAILABLE)
    return entry.app_id


def last_lease_event(store):
    event = [event for event in store.events() if event.kind.startswith("lease_")][-1]
    return event.kind, event.detail.get("reason")


async def next_end(store):
    """What a restarted ResourceManager does with the app's lease when it ends next."""
    case = ServiceCase(store, now_s=NOW_S + LEASE_S - 5.0)
    (lease,) = case.arbiter.table.live.values()
    case.clock.advance_to(lease.expires_at_s - 10.0)
    await case.rounds._play(["lease end"])
    return last_lease_event(store)


def test_lease_of_a_silent_app_that_waited_once_expires_also_after_a_crash():
    async def scenario():
        store = FailingStore()
        await silent_until_prolonged(store)
        assert await next_end(store) == ("lease_expiring", None)

    run(scenario)


def test_lease_waits_once_more_after_a_crash_if_its_app_answered_before():
    async def scenario():
        store = FailingStore()
        app_id = await silent_until_prolonged(store)
        with store.transaction() as transaction:
            transaction.append_event("round_reported", NOW_S, detail={"round_id": 9, "rho": {app_id: 1.0}})
        assert await next_end(store) == ("lease_renewed", MASTER_UNAVAILABLE)

    run(scenario)


def test_last_report_that_counts_for_a_late_app_is_no_answer():
    async def scenario():
        store = FailingStore()
        app_id = await silent_until_prolonged(store)
        detail = {"round_id": 9, "rho": {app_id: 1.0}, "kept": [app_id]}
        with store.transaction() as transaction:
            transaction.append_event("round_reported", NOW_S, detail=detail)
        assert await next_end(store) == ("lease_expiring", None)

    run(scenario)
