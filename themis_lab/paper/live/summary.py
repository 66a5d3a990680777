"""Sentences on an experiment: what was run and how, what is emulated, and what failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from themis_lab.paper.live.plan import Experiment
from themis_lab.paper.live.results import PREDICTIONS, Results
from themis_lab.testbed.outcome import failed_conditions


def how_it_was_run(experiment: Experiment, results: Results) -> tuple[str, ...]:
    """Sentences on what was run, on which cluster, and what is emulated."""
    scale, arriving = experiment.scale, experiment.arriving
    trained = [arrival.spec.name for arrival in arriving if not arrival.spec.replay]
    jobs = sum(len(arrival.spec.jobs) for arrival in arriving)
    last_s = max(arrival.at_s for arrival in arriving)
    replay = (
        f"The other {len(arriving) - len(trained)} are replayed: real processes, leases and checkpoints, but they "
        f"follow measured speeds, {scale.time_scale:g} times faster than measured, and recorded loss curves."
    )
    return (
        f"Workload {experiment.workload[1:]} at the scale {scale.name}: {scale.about}.",
        f"{len(arriving)} apps with {jobs} jobs, the last of which comes after {last_s:.0f} s, on "
        f"{experiment.cluster.gpus} emulated GPUs in {len(experiment.cluster.machines)} machines: leases, auctions, "
        "app masters, task processes and checkpoints are real, the cards are not.",
        f"{', '.join(trained) or 'No app'} {'train' if len(trained) > 1 else 'trains'} with TensorFlow. {replay}",
        f"Leases of {scale.lease.duration_s:g} s; seed {experiment.seed}; one run a policy, of "
        f"{_range([report['wall_s'] for report in results.reports.values()])} s.",
        *_made_with(results),
        f"The simulator's column is the median of {PREDICTIONS} runs with the same arrivals, settings and apps and "
        "other draws; under a policy that draws nothing all of them are the same. It is calibrated on the very run "
        "that it is compared with: starts, stops and checkpoints take as long as measured there, and the apps that "
        "train go at the pace measured there.",
    )


def _made_with(results: Results) -> Iterator[str]:
    """The machine and the code. Warns if runs of one folder were made with different code."""
    made = {policy: report.get("environment") or {} for policy, report in results.reports.items()}
    loads = [each["load_1min"] for each in made.values() if each]
    cpus = sorted({each["cpus"] for each in made.values() if each})
    if loads:
        yield f"On {_range(cpus)} CPUs, with a load of {min(loads):.1f} to {max(loads):.1f} before a run."
    codes = {policy: each.get("code", "not known") for policy, each in made.items()}
    if len(set(codes.values())) > 1:
        digests = ", ".join(f"{policy} {code}" for policy, code in codes.items())
        yield (
            f"The runs were not all made with the same code ({digests}): remove the folders of some to run them again."
        )


def over_figures(experiment: Experiment) -> str:
    """The note on each figure about emulation; short, because figures are narrow."""
    trained = any(not arrival.spec.replay for arrival in experiment.arriving)
    replayed = f"emulated GPUs; replayed apps {experiment.scale.time_scale:g} times faster than measured"
    return f"{replayed}, trained apps in real time" if trained else replayed


def failures(results: Results) -> list[str]:
    """Failures of the runs, one line each."""
    return [
        *(f"{policy}: the run was cut short: {why}" for policy, why in results.cut_short.items()),
        *(
            f"{policy}: {condition}"
            for policy, report in results.reports.items()
            for condition in failed_conditions(dict(report))
        ),
    ]


def _range(values: Sequence[float]) -> str:
    low, high = round(min(values)), round(max(values))
    return f"{low}" if low == high else f"{low} to {high}"
