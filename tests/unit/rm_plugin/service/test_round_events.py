"""What the events of a round say: commands, report and audit read nothing else of it."""

import pytest
from instant_loop import run_instantly
from service_cases import NOW_S, ServiceCase, bid, report

from rm_plugin.arbiter.round_values import Decision, Wait
from rm_plugin.service.memory_service import MemoryService
from rm_plugin.service.round_runner import MAX_WAITS
from rm_plugin.service.store_memory import MemoryStore
from themis.bids import PlacedGang, RhoOf
from themis.cluster import Allocation, Level
from themis.wire import themis_pb2 as pb


def answers_of(entry, session):
    """An app that holds nothing reports, and bids."""

    def answers(round_id, body):
        if body == "bid":
            message = bid(round_id)
            # As its report says: rho is 2.
            message.empty_value, message.rows[0].value = 0.5, 1.0
            yield entry, session, pb.AmMessage(bid=message)
            return
        message = report(round_id)
        message.demands[0].ClearField("held")
        yield entry, session, pb.AmMessage(rho=message)

    return answers


def details(case, round_id):
    """The details of a round's events by kind, without the round's number."""
    events = [event for event in case.recorder.events(0, "", 1000) if event.detail.get("round_id") == round_id]
    return {
        event.kind: {name: value for name, value in event.detail.items() if name != "round_id"}
        for event in events
        if event.kind.startswith("round_")
    }


def test_events_of_a_round_with_an_auction():
    async def scenario():
        case = ServiceCase(MemoryStore())
        entry, session = await case.started("one")
        await case.round(answers_of(entry, session))
        app_id = entry.app_id
        found = details(case, 1)
        granted = found.pop("round_granted")
        auctioned = found.pop("round_auctioned")
        assert found == {
            "round_started": {"reasons": ["test"], "free": {"m0": 4, "m1": 4}, "renewable": {}, "active": [app_id]},
            "round_reported": {"rho": {app_id: 2.0}, "absent": [], "demand_gpus": {app_id: 2}},
            "round_offered": {"apps": [app_id]},
            "round_bids": {
                "bids": {
                    app_id: {
                        "rows": 2, "rows_dropped": 0, "empty_value": 0.5, "best_value": 1.0, "prepare_ms": 1.0,
                    }
                },
                "absent": {},
            },
            "round_ended": {"duration_ms": 0.0, "outcome": "granted"},
        }  # fmt: skip
        (machine,) = {lease.gpu.machine_id for lease in case.arbiter.table.of_app(app_id)}
        held = {app_id: {machine: 2}}
        assert granted["auction"] == auctioned["proportional_fair"] == held
        assert (auctioned["status"], auctioned["bidders"], auctioned["payments"]) == ("optimal", 1, {app_id: 1.0})
        assert (granted["leftovers"], granted["refused"]) == ({}, {})
        case.clock.advance_to(case.arbiter.next_lease_round_s())
        await case.round()
        later = details(case, 2)
        assert later["round_started"]["renewable"] == held
        assert later["round_reported"]["absent"] == [app_id]
        assert later["round_ended"]["outcome"] == "nothing granted"

    run_instantly(scenario())


class Decides:
    """A policy whose decision a test makes."""

    name, rho_of = "decides", RhoOf.EVERY_APP

    def __init__(self, decide):
        self.decide = decide


def test_waits_are_shown_until_the_next_round_and_the_first_to_end_are_written():
    decisions = []

    async def scenario():
        case = ServiceCase(MemoryStore(), decider=Decides(lambda snapshot: decisions.pop(0)))
        entry, session = await case.started("one")
        until_s = {entry.app_id: None, **{f"x{place:02}": NOW_S + place for place in range(MAX_WAITS)}}
        waits = {app_id: Wait(job_id="job-0", reason="later", until_s=at_s) for app_id, at_s in until_s.items()}
        decisions.extend([Decision(waits=waits), Decision()])
        await case.round(answers_of(entry, session))
        written = details(case, 1)["round_granted"]["waits"]
        assert list(written) == [f"x{place:02}" for place in range(MAX_WAITS)]
        assert written["x01"] == {"job_id": "job-0", "reason": "later", "machine_id": "", "until_s": NOW_S + 1}
        assert case.manager.waits_for(entry) == "later"
        await case.round(answers_of(entry, session))
        assert "waits" not in details(case, 2)["round_granted"]
        assert case.manager.waits_for(entry) == ""

    run_instantly(scenario())


def test_gpus_of_an_app_that_leaves_during_a_round_are_free_for_the_next_round():
    async def scenario():
        def decide(snapshot):
            case.arbiter.leave(entry.app_id, now_s=NOW_S, reason="killed")
            return Decision(auction={entry.app_id: (PlacedGang(Allocation.of({"m0": 2}), Level.MACHINE),)})

        case = ServiceCase(MemoryStore(), decider=Decides(decide))
        entry, session = await case.started("one")
        case.rounds._reasons.clear()
        await case.round(answers_of(entry, session))
        assert details(case, 1)["round_granted"]["auction"] == {}
        assert details(case, 1)["round_ended"]["outcome"] == "nothing granted"
        assert case.rounds._reasons == ["gpus free"]

    run_instantly(scenario())


@pytest.mark.parametrize("answered", [True, False])
def test_pause_before_a_repeated_round_doubles_up_to_a_bound_until_all_have_answered(tmp_path, answered):
    async def scenario():
        rounds = MemoryService(tmp_path).rounds
        assert [rounds._next_retry_s() for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        rounds._unanswered = not answered
        rounds._plan_retry()
        assert (rounds._retry_at_s, rounds._next_retry_s()) == ((None, 1.0) if answered else (1_030.0, 30.0))

    run_instantly(scenario())
