"""What a round does not believe of reports and bids: events name it, and apps that are not honest are counted."""

from instant_loop import run_instantly
from service_cases import ServiceCase, bid, report

from rm_plugin.service.claims import WITHIN_APP
from rm_plugin.service.store_memory import MemoryStore
from themis.bids import PlacedGang
from themis.cluster import Allocation, Level
from themis.wire import themis_pb2 as pb


async def grant(case, entry, **gpus):
    """Lease GPUs to an app, outside a round."""
    gangs = {entry.app_id: [PlacedGang(Allocation.of(gpus), Level.MACHINE)]}

    def give(change):
        end_of = lambda at_s: at_s + 600.0  # noqa: E731
        change.leases(case.arbiter.table.settle(gangs, [], now_s=change.now_s, end_s=end_of, round_id=1))

    await case.manager.changes.make(give)


def honest(round_id):
    """The report of an app whose job holds nothing."""
    message = report(round_id)
    message.demands[0].ClearField("held")
    return message


def test_claims_that_are_cut_are_in_the_events_and_counted_unless_an_honest_app_makes_them():
    """The first app demands GPUs that it has already, as it does while a job moves; the second one lies."""

    async def scenario():
        case = ServiceCase(MemoryStore())
        moves, lies = [await case.started(name) for name in ("moves", "lies")]
        await grant(case, moves[0], m0=2)

        def answers(round_id, body):
            if body == "bid":
                untrue = bid(round_id)
                untrue.rows[0].value = 1e9
                yield *lies, pb.AmMessage(bid=untrue)
                return
            more, lie = honest(round_id), honest(round_id)
            more.demands.append(more.demands[0])
            more.demands[1].job_id = "job-1"
            yield *moves, pb.AmMessage(rho=more)
            lie.rho, lie.t_shared_s = 1e9, 1e11
            yield *lies, pb.AmMessage(rho=lie)

        await case.round(answers)
        first, second = moves[0].app_id, lies[0].app_id
        details = {event.kind: event.detail for event in case.recorder.events(0, "", 100)}
        reports, bids = details["round_reported"]["not_believed"], details["round_bids"]["not_believed"]
        assert [note.endswith(WITHIN_APP) for note in reports[first]] == [True]
        assert (list(reports), list(bids)) == ([first, second], [second])
        assert moves[0].cut_claims == 0
        assert lies[0].cut_claims == len(reports[second]) + len(bids[second]) >= 2

    run_instantly(scenario())


def test_lie_counts_also_beside_a_cut_that_an_honest_app_meets():
    async def scenario():
        case = ServiceCase(MemoryStore())
        entry, session = await case.started("lies")
        await grant(case, entry, m0=2)

        def answers(round_id, body):
            if body == "rho":
                message = honest(round_id)
                message.demands.append(message.demands[0])
                message.demands[1].job_id = "job-1"
                message.rho, message.t_shared_s = 1e9, 1e11
                yield entry, session, pb.AmMessage(rho=message)

        await case.round(answers)
        assert entry.cut_claims == 2

    run_instantly(scenario())


def test_round_of_claims_that_are_believed_says_of_none_that_it_is_not():
    async def scenario():
        case = ServiceCase(MemoryStore())
        entry, session = await case.started("one")

        def answers(round_id, body):
            if body == "rho":
                yield entry, session, pb.AmMessage(rho=honest(round_id))

        await case.round(answers)
        (reported,) = [event for event in case.recorder.events(0, "", 100) if event.kind == "round_reported"]
        assert list(reported.detail["rho"]) == [entry.app_id]
        assert "not_believed" not in reported.detail

    run_instantly(scenario())
