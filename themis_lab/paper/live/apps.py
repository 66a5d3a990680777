"""Convert apps of a simulated workload to apps of the testbed: every job is replayed with its own work."""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random

from rm_plugin.arbiter.seeds import child_seed
from submarine_client.programs import check_program
from themis.apps import AppSpec, Estimate, HyperParameter, JobSpec, ProgramSpec, Slowdown, TaskResources
from themis_lab.simulator.workload import AppTrace, JobTrace
from themis_lab.simulator.workloads.models import model_named
from themis_lab.testbed.mix import Arrival

LOG_EVERY_S = 1.0
"""Real seconds between a job's log lines, on any GPUs.

More frequent lines would only use CPU time. Lines by iterations only would come too rarely on a job's fewest GPUs."""

CHECKPOINT_EVERY_S = 10.0
"""Real seconds between a job's checkpoints at its fastest."""

LEARNING_RATES = (0.001, 0.3)
"""Range of the random learning rates. Each job replays the recorded loss curve nearest to its own."""

MEMORY_MB = 256


def replayed(app: AppTrace, *, time_scale: float, seed: int) -> Arrival:
    """Return an app of a workload as one to submit `arrival_s / time_scale` real seconds after the start.

    Its jobs have the iterations, the serial iteration time and S of the trace. The seed determines which loss curve a
    job replays, so a tuner may keep other jobs than in the simulator's workload of the same name.

    Args:
        app: The simulated app.
        time_scale: Factor on its speed when replayed.
        seed: Seed of the learning rates.
    """
    measured_as = model_named(app.model).measured_as
    fastest_s = min(job.serial_iteration_s / job.shape.demand_max_gpus for job in app.jobs) / time_scale
    arguments: dict[str, HyperParameter] = {
        "model": measured_as,
        "slowdown": _slowdown_text(app.jobs[0].slowdown),
        "curve_iterations": max(job.iterations_total for job in app.jobs),
        "log_every": max(1, math.ceil(LOG_EVERY_S / fastest_s)),
        "log_every_s": LOG_EVERY_S,
    }
    spec = AppSpec(
        # The service refuses names that look like its ids.
        name=app.name.replace("app-", "trace-"),
        tuner=app.tuner,
        program=ProgramSpec(name="replay", arguments=arguments),
        jobs=_jobs(app.jobs, Random(child_seed(seed, "learning rates", app.name))),
        resources=TaskResources(memory_mb=MEMORY_MB),
        estimate=Estimate(serial_iteration_s=_typical_s(app.jobs), slowdown=app.jobs[0].slowdown),
        checkpoint_every=max(1, math.ceil(CHECKPOINT_EVERY_S / fastest_s)),
        seed=child_seed(seed, "replay", app.name) % 2**31,
    )
    return Arrival(at_s=app.arrival_s / time_scale, spec=check_program(spec, app.name))


def _jobs(traces: Iterable[JobTrace], rng: Random) -> tuple[JobSpec, ...]:
    low, high = (math.log(rate) for rate in LEARNING_RATES)
    return tuple(
        JobSpec(
            job_id=trace.job_id,
            hyper_parameters={
                "learning_rate": float(f"{math.exp(rng.uniform(low, high)):.4g}"),
                "serial_iteration_s": trace.serial_iteration_s,
            },
            shape=trace.shape,
            iterations_total=trace.iterations_total,
        )
        for trace in traces
    )


def _typical_s(traces: Iterable[JobTrace]) -> float:
    times = sorted(trace.serial_iteration_s for trace in traces)
    return times[len(times) // 2]


def _slowdown_text(slowdown: Slowdown) -> str:
    return ",".join(f"{factor:g}" for factor in (slowdown.slot, slowdown.machine, slowdown.rack, slowdown.cluster))
