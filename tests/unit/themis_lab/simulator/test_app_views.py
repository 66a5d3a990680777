"""A simulated app and a live one in the same state are the same to the agent."""

import math

import pytest
from msgspec.structs import replace
from sim_cases import COSTS, FAR, app, cluster, job, settings, workload

from am.agent.model.fairness import rho_by_definition
from am.app import App
from am.app_view import work_gpu_s
from am.journal import Journal
from am.profiler.profile import JobProfile
from themis.apps import AppSpec, Estimate, ProgramSpec, TunerSpec
from themis.clock import VirtualClock
from themis.leases import renewable_until_s
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, cluster_to_message
from themis_lab.simulator.settings import NodeOutage
from themis_lab.simulator.simulation import Simulation

ON = cluster((2, 2), (2,), racks=("r0", "r1"))
LEAD_S = COSTS.checkpoint_s

TUNERS = [
    TunerSpec(name="single"),
    TunerSpec(name="successive_halving", settings={"eta": 2}),
    TunerSpec(name="asynchronous_halving"),
    TunerSpec(name="performance_curve"),
    TunerSpec(name="optuna", settings={"sampler": "random", "trials": 4, "parallel": 2}),
]


class LiveTwin:
    """A live app that is put into the state of a simulated one."""

    def __init__(self, sim, folder):
        spec = AppSpec(
            name=sim.trace.name,
            tuner=sim.trace.tuner,
            program=ProgramSpec(name="p"),
            jobs=tuple(each.spec for each in sim.trace.jobs),
        )
        registered = pb.Registered(
            app_id=sim.app_id,
            spec=app_to_message(spec),
            cluster=cluster_to_message(ON),
            submitted_at_s=sim.submitted_at_s,
            lease_s=600.0,
            checkpoint_lead_s=LEAD_S,
            active_apps=1,
            bundle_rule="continuation",
        )
        self._clock = VirtualClock(0.0)
        self._journal = Journal(folder / f"{sim.app_id}.jsonl")
        self.app = App(registered, folder, str(folder), self._journal, self._clock)
        search = self.app.search
        for each in sim.trace.jobs:
            estimate = Estimate(serial_iteration_s=each.serial_iteration_s, slowdown=each.slowdown)
            search.jobs[each.job_id].profile = JobProfile(estimate)
        search.work_total_gpu_s = work_gpu_s(search.progress(), search.first_phases)
        self.app.restarted(sim.costs.restart_s)

    def follow(self, sim, now_s, contention):
        self._clock.advance_to(now_s)
        self.app.contention = contention
        self.app.leases = dict(sim.leases)
        self.app._reserved = frozenset(sim._reserved)
        self.app.search._plan = sim.plan
        for job_id, simulated in sim.jobs.items():
            live = self.app.search.jobs[job_id]
            live.gpus, live.stop_reason = simulated.gpus, "it stops" if simulated.stopping else ""
            live.profile.iteration = simulated.iteration_at(now_s)

    def close(self):
        self._journal.close()


def without_forecasts(view):
    """Only the simulator knows the losses to come."""
    return replace(view, jobs=tuple(replace(each, forecast=None) for each in view.jobs))


def conditions(sim, view):
    """The conditions of an app in which the two could differ."""
    yield from (["planned gang"] if any(not sim.jobs[gang.job_id].gpus for gang in view.held) else [])
    yield from (["renewable gang"] if view.renewable else [])
    yield from (["kept gang"] if view.kept else [])
    yield from (["stopped job"] if sim.plan.stopped else [])
    yield from (["job that stops"] if any(each.stopping for each in sim.jobs.values()) else [])
    yield from (["later phases"] if view.later_phases else [])
    yield from (["latest stop"] if sim.plan.latest else [])


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Conditions that were compared, of all tuners. Fails if any view differs."""
    seen = set()
    for tuner in TUNERS:
        seen |= compared_conditions(tuner, tmp_path_factory.mktemp(tuner.name))
    return seen


def compared_conditions(tuner, folder):
    twins, seen = {}, set()

    def compare(simulation):
        now_s = simulation.now_s
        for sim in simulation.apps.values():
            if sim.app_id not in twins:
                twins[sim.app_id] = LiveTwin(sim, folder)
            twin = twins[sim.app_id]
            contention = simulation.arbiter.contention(sim.app_id, now_s)
            twin.follow(sim, now_s, contention)
            for round_at_s in (-math.inf, now_s, now_s + 600.0):
                simulated = sim.view(now_s, renewable_until_s(round_at_s, LEAD_S), contention)
                assert twin.app.view(sim._planned, round_at_s) == without_forecasts(simulated)
                seen.update(conditions(sim, simulated))
            elapsed_s = now_s - sim.submitted_at_s
            by_definition = rho_by_definition(sim.whole_view(contention), elapsed_s, twin.app.cluster_view)
            assert twin.app.final_rho() == {each.value: rho for each, rho in by_definition.items()}

    jobs = [
        job(f"j{place}", 400 + 50 * place, 1.0 + 0.5 * place, gpus=2, least=1, slowdown=FAR, floor=0.1 * place)
        for place in range(5)
    ]
    apps = [app(name, *jobs, at_s=100.0 * place, tuner=tuner) for place, name in enumerate("abc")]
    outage = NodeOutage(machine_id="m1", lost_at_s=500.0, back_at_s=700.0)
    Simulation(workload(*apps), settings(ON, lease_s=120.0, outages=(outage,))).run(compare)
    for twin in twins.values():
        twin.close()
    return seen


@pytest.mark.parametrize(
    "condition",
    ["planned gang", "renewable gang", "kept gang", "stopped job", "job that stops", "later phases", "latest stop"],
)
def test_live_and_simulated_app_in_one_state_have_one_view(compared, condition):
    assert condition in compared
