"""A simulated job: its state, and its progress at any time. Progress is computed for a time, never stepped."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from am.agent.model.views import JobView
from am.app_view import iterations_left
from am.jobs.planner import PlannedJob
from themis.bids import LossForecast
from themis.cluster import GpuId, Level
from themis.speeds import SAME_SPEED, Speeds
from themis_lab.simulator.workload import JobTrace, LossCurve

_ROUNDING = 1e-9

STEADY_ITERATIONS = 3
"""Iterations on a type that measure a job's time there, the first one after each start left out: as the profiler."""


@dataclass(slots=True)
class SimJob:
    """One job. `iteration` is the last one done and saved before its last start.

    `run` changes with every start and stop, so that events scheduled for an earlier run can be recognised.
    `interrupted` is true if it was stopped before its target and has not run since. While it runs, `gpus` are its gang,
    and its first iteration begins at `ready_at_s`. While it stops, `gpus` are still busy, but it does no iterations.
    `device` is the type of its gang, empty where types need no name.
    """

    trace: JobTrace
    speeds: Speeds = SAME_SPEED
    iteration: int = 0
    target: int = 0
    latest: int | None = None
    gpus: tuple[GpuId, ...] = ()
    level: Level = Level.SLOT
    ready_at_s: float = 0.0
    reaches_at_s: float = math.inf
    iteration_s: float = math.inf
    stopping: bool = False
    run: int = 0
    interrupted: bool = False
    saved: int = 0
    device: str = ""
    _steady: dict[str, int] = field(default_factory=dict, repr=False)
    _view: JobView | None = field(default=None, repr=False)
    _viewed: int = field(default=-1, repr=False)
    _waiting: PlannedJob | None = field(default=None, repr=False)

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.trace.job_id

    @property
    def iterations_total(self) -> int:
        """Iterations of the whole job."""
        return self.trace.iterations_total

    @property
    def running(self) -> bool:
        """Whether it makes iterations, or will after its start delay."""
        return bool(self.gpus) and not self.stopping

    def start(
        self,
        gpus: tuple[GpuId, ...],
        level: Level,
        now_s: float,
        delay_s: float,
        speed: float = 1.0,
        device: str = "",
    ) -> float:
        """Start the job on a gang. The first iteration begins after `delay_s`. Returns when it reaches its target."""
        self.gpus, self.level, self.stopping, self.device = gpus, level, False, device
        self.ready_at_s = now_s + delay_s
        usable = self.trace.shape.usable_gpus(len(gpus))
        self.iteration_s = self.trace.serial_iteration_s * self.trace.slowdown.at(level) / (usable * speed)
        self.run += 1
        self._view = self._waiting = None
        self.reaches_at_s = self.ready_at_s + (self.target - self.iteration) * self.iteration_s
        return self.reaches_at_s

    def aim(self, target: int, latest: int | None = None) -> None:
        """Set the target iteration, and the last iteration before it at which the tuner may stop the job."""
        if target != self.target or latest != self.latest:
            self.target, self.latest, self._view, self._waiting = target, latest, None, None

    def halt(self, iteration: int, *, interrupted: bool, saving: bool = False, saved: int = 0) -> None:
        """Make no more iterations. While it is `saving` its GPUs stay busy, and `saved` is all that is saved whole."""
        self.saved = saved
        if self.device and self.gpus:
            self._steady[self.device] = self._steady_at(iteration)
        self.iteration, self.interrupted, self.stopping = iteration, interrupted, saving
        self.run += 1
        self._view = self._waiting = None
        if not saving:
            self.gpus = ()

    def freed(self) -> None:
        """Free its GPUs: its state is saved."""
        self.gpus, self.stopping = (), False

    def iteration_at(self, now_s: float) -> int:
        """Return the whole iterations done at a time."""
        if self.stopping or not self.gpus or now_s <= self.ready_at_s:
            return self.iteration
        done = int((now_s - self.ready_at_s) / self.iteration_s + _ROUNDING)
        return min(self.target, self.iteration + done)

    def _steady_at(self, iteration: int) -> int:
        """Return the iterations on the present type that measure its time there, once the job is at an iteration."""
        return self._steady.get(self.device, 0) + max(0, iteration - self.iteration - 1)

    def _measured_at(self, iteration: int) -> tuple[str, ...]:
        if not self.device:
            return ()
        steady = self._steady
        if self.running:
            steady = {**steady, self.device: self._steady_at(iteration)}
        return tuple([device for device, count in steady.items() if count >= STEADY_ITERATIONS])

    def ran_s(self, now_s: float) -> float:
        """Return the seconds for which it has made iterations since its last start."""
        return max(0.0, min(now_s, self.reaches_at_s) - self.ready_at_s) if self.running else 0.0

    def view(self, now_s: float) -> JobView:
        """Return the job as its agent sees it. The view is the same object until the job makes an iteration."""
        view = self._view
        if view is not None and (self.stopping or not self.gpus):
            return view
        iteration = self.iteration_at(now_s)
        if view is None or self._viewed != iteration:
            self._viewed = iteration
            trace = self.trace
            view = self._view = JobView(
                job_id=trace.job_id,
                iterations_left=iterations_left(iteration, self.target, self.latest),
                serial_iteration_s=trace.serial_iteration_s,
                slowdown=trace.slowdown,
                shape=trace.shape,
                forecast=self._forecast(iteration),
                speeds=self.speeds,
                measured=self._measured_at(iteration),
            )
        return view

    def view_with(self, iterations_left: int) -> JobView:
        """Return the view with these iterations left, without a forecast of the loss."""
        return JobView(
            job_id=self.trace.job_id,
            iterations_left=iterations_left,
            serial_iteration_s=self.trace.serial_iteration_s,
            slowdown=self.trace.slowdown,
            shape=self.trace.shape,
            speeds=self.speeds,
        )

    def planned(self, now_s: float) -> PlannedJob:
        """Return the job as the planner sees it."""
        if self.gpus:
            return PlannedJob(view=self.view(now_s), gpus=self.gpus, stopping=self.stopping)
        if self._waiting is None:
            self._waiting = PlannedJob(view=self.view(now_s))
        return self._waiting

    def _forecast(self, iteration: int) -> LossForecast | None:
        """Return the forecast of the loss. It is exact, except for recorded curves."""
        curve = self.trace.curve
        if not isinstance(curve, LossCurve):
            return None
        return LossForecast(
            floor=curve.floor,
            drop=curve.drop,
            scale=curve.scale,
            power=curve.power,
            iteration=iteration,
            serial_iteration_s=self.trace.serial_iteration_s,
        )
