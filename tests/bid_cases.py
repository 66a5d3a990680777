"""Random apps on tiny clusters: slots, two racks, GPUs that others hold, gangs that are kept or renewable."""

from agent_cases import CRUDE_SLOWDOWN, FLAT, STRICT, app_of, cluster_of, cluster_view_of, job, offer_of

from am.app_view import held_gang
from am.tuners.port import Phase
from themis.apps import JobShape

MACHINES = [(2, 2), (2,), (4,), (1,), (3,), (2, 1)]


def random_cluster(rng, max_gpus=8):
    layout = [rng.choice(MACHINES) for _ in range(rng.randint(2, 4))]
    while sum(map(sum, layout)) > max_gpus:
        layout.pop()
    return cluster_of(*layout, racks=rng.choice([("r0",), ("r0", "r1")]))


def random_shape(rng):
    least = rng.choice([1, 1, 2])
    return JobShape(tasks=least + rng.choice([0, 0, 1, 2, 3]), min_tasks=least, gpus_per_task=rng.choice([1, 1, 1, 2]))


def random_jobs(rng, most_jobs=3):
    """Jobs of one shape, or of a shape each; most of one S."""
    one, mixed = random_shape(rng), rng.random() < 0.35
    slowdown = rng.choice([FLAT, CRUDE_SLOWDOWN, STRICT])
    return [
        job(
            f"j{place}",
            rng.randint(20, 200) * rng.choice([1, 1, 1, 5]),
            random_shape(rng) if mixed else one,
            slowdown if rng.random() < 0.8 else CRUDE_SLOWDOWN,
        )
        for place in range(rng.randint(1, most_jobs))
    ]


def random_held(rng, jobs, left, cluster, fate):
    """Gangs of some jobs on GPUs that are taken out of `left`; `fate`: they are kept, renew, or of either kind."""
    gangs = []
    for each in jobs:
        shape = each.shape
        by_machine = {}
        for gpu in sorted(left):
            by_machine.setdefault(gpu.machine_id, []).append(gpu)
        unit = shape.gpus_per_task
        tasks = [free[at : at + unit] for free in by_machine.values() for at in range(0, len(free) - unit + 1, unit)]
        wanted = rng.randint(shape.min_tasks, shape.tasks)
        if len(tasks) < wanted or rng.random() < 0.3:
            continue
        first = rng.randrange(len(tasks) - wanted + 1)
        taken = [gpu for task in tasks[first : first + wanted] for gpu in task]
        left.difference_update(taken)
        up = [] if fate == "kept" or (fate == "both" and rng.random() < 0.5) else taken
        if up and rng.random() < 0.3:
            up = rng.sample(taken, rng.randint(1, len(taken)))
        gangs.append((held_gang(each.job_id, taken, up, cluster), up))
    return gangs


def offer_of_gpus(gpus, cluster):
    slots = {machine.machine_id: [0] * len(machine.slots) for machine in cluster.machines}
    for gpu in gpus:
        slots[gpu.machine_id][cluster.machine(gpu.machine_id).slot_of(gpu.index)] += 1
    return offer_of({machine: tuple(counts) for machine, counts in slots.items() if sum(counts)})


def random_app(rng, cluster, left, jobs, name="app"):
    """An app that takes what it holds out of `left`, and its renewable GPUs."""
    fate = rng.choice(["none", "none", "kept", "renew", "both"])
    held = random_held(rng, jobs, left, cluster, fate) if fate != "none" else []
    phases = tuple(Phase(jobs=rng.randint(1, 2), iterations=rng.randint(1, 3)) for _ in range(rng.choice([0, 0, 1, 2])))
    app = app_of(
        jobs,
        app_id=name,
        held=tuple(gang for gang, _ in held),
        elapsed_s=float(rng.choice([0, 50])),
        contention=2.0,
        restart_s=rng.choice([0.0, 2.0, 8.0, 30.0]),
        later_phases=phases,
    )
    return app, {gpu for _, up in held for gpu in up}


def random_cluster_view(rng, cluster):
    return cluster_view_of(cluster, active_apps=rng.randint(1, 4), lease_s=rng.choice([20.0, 100.0, 1000.0]))


def random_market(rng, bidders, max_gpus=8, most_jobs=3):
    """Apps and the offer that is made to all of them: all GPUs that no app keeps, without those of other holders."""
    cluster = random_cluster(rng, max_gpus)
    left, up = set(cluster.gpu_ids()), set()
    apps = []
    for place in range(bidders):
        app, mine = random_app(rng, cluster, left, random_jobs(rng, most_jobs), f"app-{place}")
        apps.append(app)
        up |= mine
    strangers = rng.sample(sorted(left), min(len(left), rng.choice([0, 0, 1, 2])))
    return apps, offer_of_gpus((left - set(strangers)) | up, cluster), random_cluster_view(rng, cluster), cluster
