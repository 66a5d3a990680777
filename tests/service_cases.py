"""An app for tests of the service, and an app master that answers the reports of rounds."""

from __future__ import annotations

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.memory_service import MemoryService
from rm_plugin.service.session import Session
from themis.apps import AppSpec, JobSpec, ProgramSpec, TunerSpec
from themis.bids import AppReport, GangDemand, PhaseLeft
from themis.wire import themis_pb2 as pb
from themis.wire.values import report_to_message

SPEC = AppSpec(
    name="mine",
    tuner=TunerSpec(name="single"),
    program=ProgramSpec(name="digits"),
    jobs=(JobSpec(job_id="job-0", iterations_total=10),),
)
_DEMAND = GangDemand(job_id="job-0", min_gpus=1, max_gpus=1, work_left_gpu_s=10.0)
_PHASE = PhaseLeft(jobs=1, work_gpu_s=10.0, longest_gpu_s=10.0, gang_gpus=1)


async def answer(rm: MemoryService, entry: AppEntry, session: Session, *, deaf_for: int = 0) -> None:
    """An app that could use one GPU more than it has, as long as it has none; deaf to the first rounds."""
    async for message in session.outgoing():
        if message.WhichOneof("body") != "ask_rho":
            continue
        deaf_for -= 1
        if deaf_for < 0:
            wanted = () if rm.arbiter.table.live_of(entry.app_id) else (_DEMAND,)
            report = AppReport(
                app_id=entry.app_id,
                round_id=message.ask_rho.round_id,
                rho=2.0,
                t_shared_s=20.0,
                t_ideal_s=10.0,
                demands=wanted,
                phases_left=(_PHASE,),
            )
            await rm.manager.receive(entry, session, pb.AmMessage(id=message.id, rho=report_to_message(report)))
