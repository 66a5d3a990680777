"""Make a workload from apps as users specify them, for example a testbed's mix, on the testbed's clock."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from msgspec.structs import replace

from rm_plugin.arbiter.seeds import child_seed
from tf_jobs.tables_reader import Curve as Recorded
from tf_jobs.tables_reader import Speed, family_of, model_speed, nearest_curve, parse_slowdown, parse_speeds
from themis.apps import CRUDE_SLOWDOWN, AppSpec, HyperParameter, JobSpec, Slowdown
from themis.errors import InputError
from themis.values import Value
from themis_lab.simulator.workload import AppTrace, Curve, JobTrace, Workload
from themis_lab.simulator.workloads.jobs import draw_curve

REPLAY = "replay"
DEFAULT_LEARNING_RATE = 0.05
DEFAULT_LOG_EVERY = 20
DEFAULT_CURVE_ITERATIONS = 500
DEFAULT_MODEL = "resnet50"
"""Defaults of the replay job's flags. A test compares them with its catalogue."""

_SOURCE = (
    "apps as submitted to the testbed; replayed jobs run at their measured speeds and on their recorded curves, others "
    "at their users' estimates with loss curves drawn"
)


class ReplayedCurve(Value, frozen=True, kw_only=True):
    """The loss in a replay job's last log line at an iteration.

    The job multiplies losses by noise from its app's seed and the iteration. All jobs of the app share this noise, so
    it does not change their order and is left out here. So is `log_every_s`, by which a slow job may log more often.
    """

    recorded: Recorded
    iterations: int
    log_every: int

    def at(self, iteration: float) -> float:
        """Return the loss of the last log line at or before an iteration."""
        logged = max(1, int(iteration) // self.log_every * self.log_every)
        return self.recorded.loss(logged / self.iterations)


def from_specs(
    arrivals: Iterable[tuple[float, AppSpec]], *, name: str, time_scale: float = 1.0, seed: int = 0
) -> Workload:
    """Return the workload of these apps, each with the second of its submission.

    A replayed app's iterations take `1 / time_scale` of the measured time, as on the testbed. Those of other apps take
    the time that the user estimates. S is the measured or estimated one, else the crude one.

    Args:
        arrivals: Pairs of seconds after the start and app, in any order.
        name: The name of the workload.
        time_scale: How many times faster replayed jobs run than measured.
        seed: The seed of the drawn loss curves.

    Raises:
        InputError: An app without replay has no estimate of its serial iteration time, or a replayed app has invalid
            arguments.
    """
    ordered = sorted(arrivals, key=lambda arrival: arrival[0])
    apps = tuple(
        AppTrace(
            name=spec.name,
            arrival_s=at_s,
            jobs=_jobs_of(spec, time_scale, seed),
            tuner=spec.tuner,
            resources=spec.resources,
            model=str(spec.program.arguments.get("model", "") or spec.program.name),
        )
        for at_s, spec in ordered
    )
    return Workload(name=name, apps=apps, source=f"{name}: {_SOURCE}.")


def _jobs_of(spec: AppSpec, time_scale: float, seed: int) -> tuple[JobTrace, ...]:
    if spec.replay or spec.program.name == REPLAY:
        return tuple(_replayed_job(job, _Arguments(spec, job), time_scale) for job in spec.jobs)
    serial_s = spec.estimate.serial_iteration_s
    if serial_s is None:
        remedy = "add estimate.serial_iteration_s to its group"
        raise InputError("an app that trains can only be simulated by its estimate", value=spec.name, remedy=remedy)
    slowdown = spec.estimate.slowdown or CRUDE_SLOWDOWN
    rng = Random(child_seed(seed, "mix", spec.name))
    return tuple(_trace(job, serial_s, slowdown, draw_curve(job.iterations_total, rng)) for job in spec.jobs)


def _replayed_job(job: JobSpec, given: _Arguments, time_scale: float) -> JobTrace:
    model = given.text("model") or DEFAULT_MODEL
    speed: Speed = model_speed(model)
    serial_s = given.number("serial_iteration_s", 0.0) or speed.serial_iteration_time_s
    slowdown = parse_slowdown(given.text("slowdown")) if given.text("slowdown") else speed.slowdown
    recorded = nearest_curve(
        given.text("curve") or family_of(model), given.number("learning_rate", DEFAULT_LEARNING_RATE)
    )
    curve = ReplayedCurve(
        recorded=recorded,
        iterations=int(given.number("curve_iterations", DEFAULT_CURVE_ITERATIONS)),
        log_every=int(given.number("log_every", DEFAULT_LOG_EVERY)),
    )
    trace = _trace(job, serial_s / time_scale, Slowdown(**slowdown), curve)
    return replace(trace, speed_by_device={**job.speed_by_device, **parse_speeds(given.text("speeds"))})


def _trace(job: JobSpec, serial_s: float, slowdown: Slowdown, curve: Curve) -> JobTrace:
    return JobTrace(
        job_id=job.job_id,
        iterations_total=job.iterations_total,
        serial_iteration_s=serial_s,
        slowdown=slowdown,
        shape=job.shape,
        curve=curve,
        speed_by_device=job.speed_by_device,
    )


class _Arguments:
    """The arguments of a replay job: those of its app, overridden by its hyper-parameters."""

    def __init__(self, spec: AppSpec, job: JobSpec) -> None:
        self._app = spec.name
        self._values: dict[str, HyperParameter] = {**spec.program.arguments, **job.hyper_parameters}

    def text(self, name: str) -> str:
        """Return a text, empty if it is not given."""
        return str(self._values.get(name, ""))

    def number(self, name: str, default: float) -> float:
        """Return a number. Raises InputError for any other text."""
        value = self._values.get(name, default)
        try:
            return float(value)
        except ValueError:
            raise InputError(f"app {self._app}: {name} must be a number", value=value) from None
