"""The experiments on OEF, in the order of its paper's figures."""

from __future__ import annotations

from themis_lab.paper.oef import completion, examples, fairness, overheads, throughput
from themis_lab.paper.own_runs import OwnRuns

EXPERIMENTS: tuple[OwnRuns, ...] = (
    *examples.EXPERIMENTS,
    *fairness.EXPERIMENTS,
    *throughput.EXPERIMENTS,
    *completion.EXPERIMENTS,
    *overheads.EXPERIMENTS,
)
