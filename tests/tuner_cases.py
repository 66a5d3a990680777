"""Jobs, observations and whole searches for the tests of tuners; loss curves that our own programs left."""

import csv
import math
from collections import defaultdict
from dataclasses import dataclass, field

from documents import ROOT

from am.tuners.port import Observation, ObservationKind, TunerPlan
from am.tuners.registry import make_tuner
from themis.apps import JobSpec, TunerSpec

ITERATIONS = 400


def jobs(count, total=100):
    return [JobSpec(job_id=f"j{index:02d}", iterations_total=total) for index in range(count)]


def jobs_of(totals):
    return [
        JobSpec(
            job_id=f"j{index:02d}",
            iterations_total=total,
            hyper_parameters={"rate": 10.0**-index, "kind": "ab"[index % 2]},
        )
        for index, total in enumerate(totals)
    ]


def make(name, arms, **settings):
    return make_tuner(TunerSpec(name=name, settings=settings), arms)


def reached(job_id, iteration, loss):
    return Observation(kind=ObservationKind.TARGET_REACHED, job_id=job_id, iteration=iteration, loss=loss)


def progress(job_id, iteration, loss):
    return Observation(kind=ObservationKind.PROGRESS, job_id=job_id, iteration=iteration, loss=loss)


def failed(job_id):
    return Observation(kind=ObservationKind.FAILED, job_id=job_id, iteration=0, loss=math.nan)


def facts(tuner):
    """The plan as a comparable value."""
    plan = tuner.plan()
    return plan.phase, plan.phases, dict(plan.targets), plan.stopped, plan.finished, plan.best, dict(plan.latest)


def recorded_curves(family):
    """Validation loss by iteration, by learning rate as text: real runs of a program of ours on the digits."""
    curves = defaultdict(dict)
    with (ROOT / "tf_jobs/tables/loss_curves.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if row["family"] == family:
                curves[row["learning_rate"]][int(row["iteration"])] = float(row["validation_loss"])
    return dict(curves)


def loss_at(curve, iteration):
    """The newest recorded loss at or before the iteration."""
    return curve[max(point for point in curve if point <= iteration)]


@dataclass
class Search:
    """A search from the app master's view: the jobs' progress, observations and plans."""

    tuner: object
    arms: list
    at: dict = field(default_factory=dict)
    given_up: set = field(default_factory=set)
    seen: list = field(default_factory=list)

    def __post_init__(self):
        self.at = {arm.job_id: 0 for arm in self.arms}
        self.reached = dict(self.at)

    @property
    def plan(self) -> TunerPlan:
        return self.tuner.plan()

    def tell(self, observation):
        self.seen.append(observation)
        self.tuner.observe(observation)

    def step(self, job_id, iterations, loss_of):
        """Run the job for this many iterations, at most to its target, and log its loss."""
        target = self.plan.targets[job_id]
        self.at[job_id] = min(target, self.at[job_id] + iterations)
        loss = loss_of(job_id, self.at[job_id])
        if self.at[job_id] == target:
            self.reached[job_id] = target
            self.tell(reached(job_id, target, loss))
        else:
            self.tell(progress(job_id, self.at[job_id], loss))

    def give_up(self, job_id):
        self.given_up.add(job_id)
        self.tell(failed(job_id))

    def run_phase(self, loss_of):
        """Every job that runs now reaches its target."""
        for job_id in sorted(self.plan.targets):
            self.step(job_id, self.plan.targets[job_id], loss_of)

    def run_in_turns(self, iterations, loss_of):
        """All jobs that run do so side by side until the search is over."""
        while not self.plan.finished:
            for job_id in sorted(self.plan.targets):
                if job_id in self.plan.targets:
                    self.step(job_id, iterations, loss_of)
        return self
