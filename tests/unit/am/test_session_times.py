"""An app master's session notes when it sent what will be acknowledged, and nothing else."""

import asyncio

from am.session import RmSession
from themis.clock import VirtualClock
from themis.wire import themis_pb2 as pb


def test_thousand_answers_to_rounds_leave_no_times():
    session = RmSession("rm:1", pb.Register, lambda _: None, clock=VirtualClock(), give_up_s=1.0)
    session._outgoing = asyncio.Queue()
    session.send(pb.AmMessage(heartbeat=pb.Heartbeat()))
    for _ in range(1_000):
        session.send(pb.AmMessage(rho=pb.RhoReport()))
        session.send(pb.AmMessage(bid=pb.Bid()))
    session.send(pb.AmMessage(rest=pb.Rest()))
    assert list(session.sent_at_s) == [1, 2_002]
    assert session._outgoing.qsize() == 2_002
