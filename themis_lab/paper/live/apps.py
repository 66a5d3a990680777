"""Apps of a simulated workload as apps that a testbed can run: every job is replayed, with its own work."""

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
"""Real seconds between log lines of a job, on whatever it runs: any more often would only heat the machine, and with
lines by iterations alone one on its fewest GPUs would be judged by progress of long ago."""

CHECKPOINT_EVERY_S = 10.0
"""Real seconds between checkpoints of a job at its fastest."""

LEARNING_RATES = (0.001, 0.3)
"""Range of the rates that are drawn; each job replays the recorded loss curve nearest to its own."""

MEMORY_MB = 256


def replayed(app: AppTrace, *, time_scale: float, seed: int) -> Arrival:
    """An app of a workload, to be submitted `arrival_s / time_scale` real seconds after the start.

    Its jobs have the iterations, the serial iteration time and S of the trace. Which loss curve a job replays is drawn
    by seed, so a tuner may keep other jobs than it would in the simulator's workload of that name.

    Args:
        app: As the simulator has it.
        time_scale: How many times faster than that it is replayed.
        seed: Of the learning rates.
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
        name=app.name,
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
