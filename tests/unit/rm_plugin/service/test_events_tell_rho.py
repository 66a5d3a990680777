"""The events of apps that ended tell what their rho by the fluid fair cluster follows from."""

from instant_loop import run_instantly
from service_cases import app

from rm_plugin.service.memory_service import memory_service
from themis.fluid_cluster import Declaration, FluidPhase
from themis.wire import themis_pb2 as pb
from themis.wire.values import declaration_to_message
from themis_lab.testbed.audit_fairness import FLUID_RHO, check_fluid_rho
from themis_lab.testbed.audit_values import AuditInput, AuditLimits, Findings
from themis_lab.testbed.events import Event

LIMITS = AuditLimits(lease_s=600.0, grace_s=5.0, round_s=4.0)


def declared(time_s):
    phases = (FluidPhase(time_s, 4.0), FluidPhase(time_s / 2, 1.0))
    return declaration_to_message(Declaration(phases=phases, cluster_time_s=time_s, share_demand=0.5))


def finished(time_s):
    return pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED", declaration=declared(time_s), rho={"themis": 0.5}))


def test_audit_of_the_events_finds_the_rho_that_the_service_reports(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            first, first_session = await rm.registered(app("first"))
            rm.clock.advance_to(rm.clock.now_s() + 30.0)
            second, second_session = await rm.registered(app("second"))
            rm.clock.advance_to(rm.clock.now_s() + 200.0)
            # The declaration counts that it sends at its end, not that of a heartbeat.
            rm.entries.take_heartbeat(first, pb.Heartbeat(declaration=declared(900.0)))
            await rm.manager.sessions.receive(first, first_session, finished(100.0))
            rm.clock.advance_to(rm.clock.now_s() + 50.0)
            # An app that is killed has sent no more than heartbeats.
            rm.entries.take_heartbeat(second, pb.Heartbeat(declaration=declared(400.0)))
            killed = pb.AmMessage(id=1, finish=pb.Finish(state="KILLED"))
            await rm.manager.sessions.receive(second, second_session, killed)
            events = tuple(
                Event(
                    sequence=told.sequence, time_s=told.time_s, kind=told.kind, app_id=told.app_id, detail=told.detail
                )
                for told in rm.store.events()
            )
            rho = rm.manager.final_rho(first)
            assert rho.keys() == {"fluid", "isolated_fluid", "themis_fluid", "themis"}
            gpus = tuple(str(gpu) for gpu in rm.arbiter.cluster.gpu_ids())
            run = AuditInput(events=events, gpus=gpus, limits=LIMITS, rho={first.app_id: rho})
            findings = Findings(run.start_s)
            check_fluid_rho(run, findings)
            result = findings.result()
            assert result.violations == ()
            assert result.checks[FLUID_RHO] == 3

    run_instantly(scenario())


def test_end_of_an_app_that_never_declared_itself_tells_no_declaration(tmp_path):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, session = await rm.registered(app("mine"))
            failed = pb.AmMessage(id=1, finish=pb.Finish(state="FAILED"))
            await rm.manager.sessions.receive(entry, session, failed)
            (end,) = [event for event in rm.store.events(app_id=entry.app_id) if event.kind == "app_state"]
            assert end.detail == {"state": "FAILED", "diagnostics": ""}

    run_instantly(scenario())
