"""Rounds of the policy `oef` on a small cluster of two device types."""

from collections import Counter

from rm_plugin.arbiter.round_values import AppStanding, RoundSettings, RoundSnapshot
from rm_plugin.policies.registry import make_policy
from themis.apps import CRUDE_SLOWDOWN
from themis.bids import AppReport, FreeMachine, GangDemand
from themis.cluster import Allocation, Cluster, DeviceType, Machine
from themis.queues import AppOwner
from themis.speeds import Speeds
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

K80, V100 = DeviceType(name="k80"), DeviceType(name="v100", speed=2.0)
CLUSTER = Cluster(
    name="two types",
    machines=(
        Machine(machine_id="k", rack_id="r", slots=(4,), device="k80"),
        Machine(machine_id="v", rack_id="r", slots=(4,), device="v100"),
    ),
    devices={"k80": K80, "v100": V100},
)


def speeds(v100, k80=1.0):
    return Speeds.of([("k80", k80), ("v100", v100)])


def demand(v100=2.0, *, job="j", gpus=8, least=1, **more):
    defaults = {"work_left_gpu_s": 1e6, "speeds": speeds(v100), "measured": ("k80", "v100")}
    return GangDemand(job_id=job, min_gpus=least, max_gpus=gpus, **{**defaults, **more})


def jobs(v100=2.0):
    """Jobs of one GPU each, so that whole GPUs of any type can be used."""
    return [demand(v100, job=f"j{n}", gpus=1) for n in range(8)]


def round_of(demands, *, memory=None, renewable=None, kept=None, owners=None, silent=(), **rounds):
    """A round on the free GPUs of both machines, less those that are kept. `demands` by app, in order of submission."""
    kept = {app: Allocation.of(counts) for app, counts in (kept or {}).items()}
    taken = sum(kept.values(), Allocation())
    apps = tuple(
        AppStanding(
            app_id=app,
            submitted_at_s=float(place),
            kept=kept.get(app, Allocation()),
            renewable=Allocation.of((renewable or {}).get(app, {})),
            silent=app in silent,
            owner=(owners or {}).get(app, AppOwner()),
        )
        for place, app in enumerate(demands)
    )
    return RoundSnapshot(
        round_id=1,
        now_s=0.0,
        lease_s=600.0,
        cluster=CLUSTER,
        machines=tuple(
            FreeMachine(
                machine_id=each.machine_id,
                rack_id="r",
                free_slots=(4 - taken.count(each.machine_id),),
                device=each.device,
            )
            for each in CLUSTER.machines
        ),
        apps=apps,
        settings=RoundSettings(**rounds),
        seed=1,
        reports={
            app: AppReport(app_id=app, round_id=1, demands=tuple(wanted))
            for app, wanted in demands.items()
            if app not in silent
        },
        memory=memory,
    )


def granted(decision):
    """GPUs by app and machine."""
    return {
        app: sum((gang.gpus for gang in gangs), Allocation()).by_machine() for app, gangs in decision.grants().items()
    }


def played(policy, demands, rounds, **more):
    """Play rounds in which all leases end. Returns GPUs by (app, machine), and the last memory."""
    policy, memory, renewable, had = make_policy(policy), None, {}, Counter()
    for _ in range(rounds):
        decision = policy.decide(round_of(demands, memory=memory, renewable=renewable, **more))
        memory, renewable = decision.memory, granted(decision)
        had.update({(app, machine): n for app, counts in renewable.items() for machine, n in counts.items()})
    return had, memory


def four_apps(policy, observer=None, **rounds):
    """A simulation of four apps of five jobs each, with speeds of their own on the faster type."""
    apps = [
        AppTrace(
            name=f"a{n}",
            arrival_s=700.0 * n,
            jobs=tuple(
                JobTrace(
                    job_id=f"a{n}-j{job}",
                    iterations_total=5000,
                    serial_iteration_s=1.0,
                    slowdown=CRUDE_SLOWDOWN,
                    speed_by_device={"v100": 1.5 + n},
                )
                for job in range(5)
            ),
        )
        for n in range(4)
    ]
    settings = Settings(cluster=CLUSTER, policy=policy, rounds=RoundSettings(**rounds))
    return Simulation(Workload(name="four apps", apps=tuple(apps)), settings, observer=observer)
